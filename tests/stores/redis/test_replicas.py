"""Replicas: writes that must reach them, and what a promoted one may never do. The servers are real."""

from collections.abc import Iterator

import pytest
import redis

from cronsensus.errors import StoreUnavailable
from cronsensus.model.occurrence import Claim, Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.stores.redis import RedisStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import settle, take, win_named
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer
from tests.stores.redis.conftest import LEASE, Opening, a_claim, queue, succeeded, wait_until


@pytest.fixture
def replica(own_server: RedisServer) -> Iterator[RedisServer]:
    """Give a replica of ``own_server`` that has caught up."""
    try:
        server = RedisServer(durable=False, settings={"repl-diskless-load": "swapdb"})
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with server:
        with redis.Redis.from_url(own_server.url) as client:
            client.config_set("repl-diskless-sync-delay", 0)
            with redis.Redis.from_url(server.url) as follower:
                follower.replicaof("127.0.0.1", own_server.port)
            wait_until(lambda: client.wait(1, 100) == 1, "the replica")
        yield server


def test_a_write_counts_once_enough_replicas_have_it(
    own_server: RedisServer, replica: RedisServer, opening: Opening
) -> None:
    store = opening(own_server.url + "?min_replicas=1&replica_timeout=20s")
    claim = a_claim(store)
    assert settle(store, [succeeded(claim)])[0].accepted
    with redis.Redis.from_url(replica.url) as client:
        # Without waiting: it was there before the verb returned.
        assert client.hget(f"{{cronsensus:default}}:occurrence:{claim.id:014d}", "state") == b"succeeded"
    assert 1 == store.describe()["replicas"] == store.describe()["min_replicas"]


def test_without_enough_replicas_nothing_is_started_and_what_is_done_stands(
    own_server: RedisServer, replica: RedisServer, opening: Opening
) -> None:
    plain = opening(own_server.url)
    running = a_claim(plain)
    made = [plain.enqueue([Item(job="queue", key=str(number))])[0] for number in range(3)]
    store = opening(own_server.url + "?min_replicas=1&replica_timeout=200ms")
    replica.pause()
    want = Want(limit=10, functions=["queue"], lease=LEASE)
    # The claim was made, and is given back: a failover could lose it, and another node would run the same.
    with pytest.raises(StoreUnavailable, match="min_replicas asks for 1"):
        store.step("s1", Step(want=want))
    assert [_look(store, one.id) for one in made] == [State.PENDING] * 3
    assert [run.end for one in made for run in store.runs(one.id)] == ["released"] * 3
    # From here on nothing is even claimed.
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="nothing new starts"):
            store.step("s1", Step(ends=(succeeded(running),), want=want))
        with pytest.raises(StoreUnavailable, match="nothing new starts"):
            win_named(store, "s1", "queue", key="2", lease=LEASE)
    assert sum(len(store.runs(one.id)) for one in made) == 3
    assert State.RUNNING is _look(store, running.id)
    # A result by itself stands, but is only confirmed when it is safe.
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.step("s1", Step(ends=(succeeded(running),)))
    assert State.SUCCEEDED is _look(store, running.id)
    # A lock is not granted; what is held is kept.
    with pytest.raises(StoreUnavailable):
        store.lock("name", "holder", ttl=LEASE)
    assert store.locks() == []
    assert store.renew("s1", lease=LEASE).alive
    replica.resume()
    wait_until(lambda: _claims(store), "the replica's return")
    wait_until(lambda: _confirmed(store, running), "the confirmation")
    assert sum(one.state is State.RUNNING for one in store.occurrences(OccurrenceFilter())) == 3


def _look(store: RedisStore, occurrence: int) -> State:
    found = store.occurrence(occurrence)
    assert found is not None
    return found.state


def _claims(store: RedisStore) -> int:
    try:
        return len(take(store, "s1", 10, ["queue"], lease=LEASE))
    except StoreUnavailable:
        return 0


def test_a_repeated_result_is_not_confirmed_before_the_first_one_is(
    own_server: RedisServer, replica: RedisServer, opening: Opening
) -> None:
    claim = a_claim(opening(own_server.url))
    store = opening(own_server.url + "?min_replicas=1&replica_timeout=200ms")
    replica.pause()
    with pytest.raises(StoreUnavailable):
        settle(store, [succeeded(claim)])
    # Another handle, another connection, and a verb that writes nothing: WAIT alone would be content with that.
    other = opening(own_server.url + "?min_replicas=1&replica_timeout=200ms")
    with pytest.raises(StoreUnavailable):
        settle(other, [succeeded(claim)])
    replica.resume()
    wait_until(lambda: _confirmed(other, claim), "the confirmation")


def _confirmed(store: RedisStore, claim: Claim) -> bool:
    try:
        return settle(store, [succeeded(claim)])[0].accepted
    except StoreUnavailable:
        return False


def test_a_promoted_replica_without_the_last_writes_gives_no_token_twice(
    own_server: RedisServer, replica: RedisServer, opening: Opening
) -> None:
    old = opening(own_server.url)
    queue(old)
    old.open_session(a_session("s1"), lease=LEASE)
    old.enqueue([Item(job="queue", key=str(number)) for number in range(20)])
    with redis.Redis.from_url(own_server.url) as client, redis.Redis.from_url(replica.url) as promoted:
        wait_until(
            lambda: client.info("replication")["slave0"]["offset"] == client.info("replication")["master_repl_offset"],
            "the replica to catch up",
        )
        promoted.replicaof("NO", "ONE")
    stale = take(old, "s1", 20, ["queue"], lease=LEASE)
    given = [one.token for one in stale]
    given += [grant.token for number in range(20) if (grant := old.lock(f"l{number}", "h", ttl=LEASE)) is not None]
    own_server.kill9()
    new = opening(replica.url)
    again = [one.token for one in take(new, "s1", 20, ["queue"], lease=LEASE)]
    grant = new.lock("l1", "h", ttl=LEASE)
    assert grant is not None
    assert (len(given), len(again)) == (40, 20)
    # The same occurrences and the same lock, under greater tokens: what still runs under the old ones is refused.
    assert max(given) < min(again)
    assert max(given) < grant.token
    assert not any(answer.accepted for answer in settle(new, [succeeded(claim) for claim in stale]))
