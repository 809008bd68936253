"""Each verb of a store that is far away answers as it does beside its server, on the server's own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cronsensus.errors import LeaseLost
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, give_back, settle, take, win_named
from tests.servers.proxy import Proxy

LEASE = timedelta(seconds=60)
FUNCTIONS = ("job",)

WEATHER: dict[str, Callable[[Proxy, float], None]] = {
    "late-answers": lambda network, seconds: network.delay(seconds / 10, seconds * 0.8, jitter=seconds / 10),
    "late-questions": lambda network, seconds: network.delay(seconds * 0.8, seconds / 10, jitter=seconds / 10),
}


@pytest.fixture(params=WEATHER)
def far(request: pytest.FixtureRequest, network: Proxy, round_trip: float) -> Iterator[Store]:
    """Return a handle on a store with a job, from far away, in each weather."""
    store = open_store(network.url)
    store.migrate()
    store.define_jobs([JobSpec(name="job", function="job", trigger=None)], release="r1")
    WEATHER[request.param](network, round_trip)
    yield store
    network.pass_on()
    store.close()


def test_verbs_of_a_session_far_away_answer_as_beside_the_server(far: Store) -> None:
    far.open_session(a_session("node"), lease=LEASE)
    for _ in range(2):
        assert far.renew("node", lease=LEASE, idle_lease=2 * LEASE).lease == 2 * LEASE
    [created] = far.enqueue([Item(job="job", key="key")])
    [claim] = take(far, "node", 5, FUNCTIONS, lease=LEASE)
    assert claim.id == created.id
    assert far.renew("node", lease=LEASE, idle_lease=2 * LEASE).lease == LEASE
    [settled] = settle(far, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
    assert settled.accepted
    won = win_named(far, "node", "job", key="another", lease=LEASE)
    assert won is not None
    assert give_back(far, [won]) == [True]
    grant = far.lock("lock", "me", ttl=LEASE, session="node")
    assert grant is not None
    assert far.lock("lock", "other", ttl=LEASE) is None
    assert far.extend(grant, ttl=LEASE)
    assert far.unlock(grant)
    far.open_session(a_session("brief"), lease=timedelta(milliseconds=1))
    assert not far.renew("brief", lease=LEASE).alive
    with pytest.raises(LeaseLost):
        take(far, "brief", 1, FUNCTIONS, lease=LEASE)
