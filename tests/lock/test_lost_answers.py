"""The connection breaks after a verb on a lock was carried out, and before its answer came: that is no lost lock."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from cronsensus import Scheduler
from cronsensus.errors import LeaseLost
from cronsensus.lock import opening
from cronsensus.stores import open_store
from tests.servers.proxy import Proxy

FREEING = {"postgres": b"DELETE FROM", "mysql": b"COMMIT", "redis": b"EVALSHA"}
EXTENDING = {"postgres": b"UPDATE", "mysql": b"COMMIT", "redis": b"EVALSHA"}


@pytest.fixture(params=FREEING)
def kind(request: pytest.FixtureRequest) -> str:
    """Return one kind of server after the other."""
    found: str = request.param
    return found


@pytest.fixture
def network(request: pytest.FixtureRequest, kind: str) -> Iterator[Proxy]:
    """Return the network to a server of that kind."""
    with Proxy(request.getfixturevalue(f"{kind}_url")) as proxy:
        yield proxy


@pytest.fixture
def scheduler(network: Proxy) -> Iterator[Scheduler]:
    """Return a scheduler at the other end of it."""
    made = Scheduler(network.url)
    yield made
    network.pass_on()
    opening.close_all()
    made._opened.close()


def test_release_with_a_lost_answer_releases(kind: str, network: Proxy, scheduler: Scheduler) -> None:
    lock = scheduler.lock("lock", ttl="60s")
    lock.acquire()
    network.lose_answer_to(FREEING[kind])
    lock.release()
    assert network.struck == 1
    assert open_store(network.url).locks(name="lock") == []
    assert lock.acquire(blocking=False)
    lock.release()


def test_extend_with_a_lost_answer_extends(kind: str, network: Proxy, scheduler: Scheduler) -> None:
    with scheduler.lock("lock", ttl="60s", renew=False) as lease:
        network.lose_answer_to(EXTENDING[kind])
        assert lease.extend("600s", replace_ttl=True)
        assert network.struck == 1
        [view] = open_store(network.url).locks(name="lock")
        assert view.expires_in > timedelta(seconds=500)


def test_a_lock_that_had_run_out_is_lost_also_where_the_answer_is(
    kind: str, network: Proxy, scheduler: Scheduler
) -> None:
    lock = scheduler.lock("lock", ttl="100ms", renew=False)
    assert lock.acquire()
    assert lock.lost.wait(60)
    network.lose_answer_to(FREEING[kind])
    with pytest.raises(LeaseLost):
        lock.release()
