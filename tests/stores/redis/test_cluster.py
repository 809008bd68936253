"""A real Cluster of servers: found, followed when the slot moves, and never written to in the middle of a move."""

import uuid
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from cronsensus.errors import StoreUnavailable
from cronsensus.model.occurrence import Item
from cronsensus.stores import Store
from cronsensus.stores.redis import RedisStore
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.testing.conformance import Claiming, Locks, Racing
from cronsensus.testing.conformance.steps import settle, take
from cronsensus.timing.clock import Clock
from tests.servers.cluster import ClusterServer, RedisCluster
from tests.servers.fixtures import with_query
from tests.servers.programs import ServiceMissing
from tests.stores.redis.conftest import LEASE, Opening, a_claim, queue, succeeded

SPACE = Keyspace("cronsensus", "default")
SLOT = key_slot(SPACE.meta)


@pytest.fixture
def cluster() -> Iterator[tuple[ClusterServer, ClusterServer]]:
    """Give two servers that each have half of the slots; the first has ours."""
    try:
        made = RedisCluster(masters=2, first_has=SLOT)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with made:
        first, second = made.servers
        yield first, second


@pytest.fixture(scope="module")
def three() -> Iterator[RedisCluster]:
    """Give a Cluster of three masters."""
    try:
        made = RedisCluster()
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


class TestOnACluster(Racing, Claiming, Locks):
    @pytest.fixture(autouse=True)
    def _place(self, three: RedisCluster) -> None:
        # Other prefixes are other slots: the tests are on all three.
        self.url = with_query(three.url, prefix=f"test_{uuid.uuid4().hex[:12]}")

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return RedisStore(self.url, namespace=namespace, clock=clock)


def keys_on(server: ClusterServer) -> int:
    return int(str(server.ask("CLUSTER", "COUNTKEYSINSLOT", SLOT)))


def begin_move(source: ClusterServer, target: ClusterServer) -> None:
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", source.name)
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.name)


def move(source: ClusterServer, target: ClusterServer, keys: list[str]) -> None:
    for key in keys:
        assert source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000) == "OK"


def all_keys(server: ClusterServer) -> list[str]:
    return [str(key) for key in server.ask("CLUSTER", "GETKEYSINSLOT", SLOT, 1000)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [0, 1])
def test_any_server_of_a_cluster_leads_to_the_one_with_our_slot(
    cluster: tuple[ClusterServer, ClusterServer], opening: Opening, seed: int
) -> None:
    store = opening(f"redis+cluster://127.0.0.1:{cluster[seed].port}")
    store.check()
    claim = a_claim(store)
    assert settle(store, [succeeded(claim)])[0].accepted
    assert store.describe()["cluster"]
    assert keys_on(cluster[0]) > 5
    assert keys_on(cluster[1]) == 0
    assert not store.wait(0.0)
    line = store.wait_queues()
    line.join_queue("name")
    grant = store.lock("name", "holder", ttl=LEASE)
    assert grant is not None
    assert store.unlock(grant)
    assert line.receive(30) == ["name"]
    line.close()


def test_a_plain_url_of_the_wrong_server_says_how_to_write_it(
    cluster: tuple[ClusterServer, ClusterServer], opening: Opening
) -> None:
    store = opening(f"redis://127.0.0.1:{cluster[1].port}")
    with pytest.raises(StoreUnavailable, match=r"redis\+cluster://"):
        store.look()


def test_a_slot_that_moved_is_followed(cluster: tuple[ClusterServer, ClusterServer], opening: Opening) -> None:
    first, second = cluster
    store = opening(f"redis+cluster://127.0.0.1:{first.port}")
    claim = a_claim(store)
    begin_move(first, second)
    move(first, second, all_keys(first))
    for server in (second, first):
        server.ask("CLUSTER", "SETSLOT", SLOT, "NODE", second.name)
    assert settle(store, [succeeded(claim)])[0].accepted
    assert store.enqueue([Item(job="queue")])[0].created
    assert keys_on(first) == 0


@pytest.mark.parametrize("moved", ["none", "some", "the first", "all but one", "all"])
def test_in_the_middle_of_a_move_nothing_is_done_by_halves(
    cluster: tuple[ClusterServer, ClusterServer], opening: Opening, moved: str
) -> None:
    first, second = cluster
    store = opening(f"redis+cluster://127.0.0.1:{first.port}")
    claim = a_claim(store)
    store.enqueue([Item(job="queue", key="waits")])
    begin_move(first, second)
    keys = sorted(all_keys(first))
    meta = SPACE.meta.decode()
    some = {
        "none": [],
        "some": keys[::2],
        "the first": [meta],
        "all but one": [key for key in keys if key != meta],
        "all": keys,
    }[moved]
    move(first, second, some)
    before = sorted(all_keys(first)), sorted(all_keys(second))
    for verb in (
        lambda: settle(store, [succeeded(claim)]),
        lambda: take(store, "s1", 10, ["queue"], lease=LEASE),
        lambda: store.enqueue([Item(job="queue", key="new")]),
        lambda: queue(store, "another"),
        store.look,
    ):
        with pytest.raises(StoreUnavailable, match="moving our slot"):
            verb()
    assert before == (sorted(all_keys(first)), sorted(all_keys(second)))
    move(first, second, [key for key in keys if key not in some])
    for server in (second, first):
        server.ask("CLUSTER", "SETSLOT", SLOT, "NODE", second.name)
    assert settle(store, [succeeded(claim)])[0].accepted
    assert [one.key for one in take(store, "s1", 10, ["queue"], lease=LEASE)] == ["waits"]


def test_a_server_that_is_gone_is_looked_for_among_the_others(
    cluster: tuple[ClusterServer, ClusterServer], opening: Opening
) -> None:
    first, _second = cluster
    store = opening(f"redis+cluster://127.0.0.1:{first.port}?connect_timeout=1s")
    a_claim(store)
    first.kill9()
    with pytest.raises(StoreUnavailable):
        store.look()
    # The other one still says that the first has the slot; nobody else has it until a failover.
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.look()


def test_each_namespace_is_in_a_slot_of_its_own(cluster: tuple[ClusterServer, ClusterServer], opening: Opening) -> None:
    stores: list[RedisStore] = []
    for number in range(12):
        store = opening(f"redis+cluster://127.0.0.1:{cluster[0].port}", f"space {number}")
        queue(store)
        assert store.enqueue([Item(job="queue")])[0].created
        stores.append(store)
    assert len({key_slot(store._keyspace.meta) for store in stores}) > 6
    assert all(server.ask("DBSIZE") for server in cluster)
