"""A real Sentinel: it names the master, and after a failover another one."""

from collections.abc import Iterator

import pytest
import redis

from cronsensus.errors import StoreError, StoreUnavailable
from cronsensus.testing.conformance.steps import settle
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer
from tests.servers.sentinel import SentinelServer
from tests.stores.redis.conftest import Opening, a_claim, succeeded, wait_until


@pytest.fixture
def replica(own_server: RedisServer) -> Iterator[RedisServer]:
    with RedisServer(durable=False) as server, redis.Redis.from_url(server.url) as client:
        with redis.Redis.from_url(own_server.url) as master:
            master.config_set("repl-diskless-sync-delay", 0)
            client.replicaof("127.0.0.1", own_server.port)
            wait_until(lambda: master.wait(1, 100) == 1, "the replica")
        yield server


@pytest.fixture
def sentinel(own_server: RedisServer, replica: RedisServer) -> Iterator[SentinelServer]:
    try:
        server = SentinelServer(own_server.port)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with server, redis.Redis(port=server.port, decode_responses=True) as client:
        wait_until(lambda: client.sentinel_slaves("name"), "the Sentinel to know the replica")
        yield server


def test_the_master_that_the_sentinels_name_is_used_also_after_a_failover(
    own_server: RedisServer, replica: RedisServer, sentinel: SentinelServer, opening: Opening
) -> None:
    # One of the two addresses leads nowhere: it is passed over.
    store = opening(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/name?connect_timeout=1s&timeout=2s")
    store.check()
    claim = a_claim(store)
    with redis.Redis.from_url(own_server.url) as client:
        client.set("after", "the claim")  # WAIT is about what this connection wrote
        assert client.wait(1, 30_000) == 1
    own_server.kill9()
    with pytest.raises(StoreUnavailable):
        store.look()

    def answers() -> bool:
        try:
            return settle(store, [succeeded(claim)])[0].accepted
        except StoreError:
            return False

    wait_until(answers, "the failover")
    with redis.Redis.from_url(replica.url) as client:
        assert client.info("replication")["role"] == "master"
        assert client.hget(f"{{cronsensus:default}}:occurrence:{claim.id:014d}", "state") == b"succeeded"
    assert "127.0.0.1" in store.describe()["where"]


def begins(client: redis.Redis) -> bool:
    """Ask for a failover; a Sentinel that has not heard enough of the replica yet refuses."""
    try:
        return bool(client.sentinel_failover("name"))
    except redis.ResponseError:
        return False


def test_a_master_that_was_demoted_is_left(
    own_server: RedisServer, replica: RedisServer, sentinel: SentinelServer, opening: Opening
) -> None:
    store = opening(f"redis+sentinel://127.0.0.1:{sentinel.port}/name?connect_timeout=1s&timeout=2s")
    claim = a_claim(store)
    with redis.Redis(port=sentinel.port, decode_responses=True) as client:
        wait_until(lambda: begins(client), "the failover to begin")
        wait_until(lambda: client.sentinel_get_master_addr_by_name("name")[1] == replica.port, "the failover")

    def answers() -> bool:
        try:
            return settle(store, [succeeded(claim)])[0].accepted
        except StoreError:
            return False

    wait_until(answers, "the new master")


def test_an_unknown_service_is_an_error(sentinel: SentinelServer, opening: Opening) -> None:
    store = opening(f"redis+sentinel://127.0.0.1:{sentinel.port}/other?connect_timeout=1s")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.look()
