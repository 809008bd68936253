"""A Redis Cluster whose master of the store's slot, of three, is killed and stopped, again and again, under load."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.crc import key_slot

from tests.ha.weather import LEASE, PATIENCE, SECONDS, nodes_on, wait_for, weather
from tests.servers.cluster import ClusterServer, RedisCluster
from tests.servers.programs import ServiceMissing


class Clustered(RedisCluster):
    """As a place for a store, all of whose keys are in one slot."""

    blows: tuple[str, ...] = ("killed", "stopped")
    struck: ClusterServer
    options = ""

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{server.port}" for server in (*self.servers, *self.replicas))
        return f"redis+cluster://{places}{self.options}"

    def master(self) -> ClusterServer | None:
        """Return the server that takes writes of the slot, as a master of other slots says; it is not asked itself."""
        slots = cast("list[list[Any]]", self.servers[1].ask("CLUSTER", "SLOTS"))
        named = next((one[2][1] for one in slots if one[0] <= SLOT <= one[1]), None)
        return next((server for server in (self.servers[0], *self.replicas) if server.port == named), None)

    def prepare_blow(self) -> None:
        wait_for(self._is_whole, "all to be whole")
        self.struck = cast("ClusterServer", self.master())

    def _is_whole(self) -> bool:
        master = self.master()
        return master is not None and str(master.ask("INFO", "replication")).count("'state': 'online'") >= 2

    def strike(self, blow: str) -> Callable[[], object]:
        act, undo = {
            "killed": (self.struck.kill9, self.struck.start),
            "stopped": (self.struck.pause, self.struck.resume),
        }[blow]
        act()
        return undo

    def has_successor(self) -> bool:
        return self.master() not in {None, self.struck}


SLOT = key_slot(b"cronsensus:default")


@pytest.fixture(params=[True, False], ids=["confirmed", "unconfirmed"])
def place(request: pytest.FixtureRequest) -> Iterator[Clustered]:
    try:
        made = Clustered(durable=True, first_has=SLOT, replicas=2)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    made.options = "?min_replicas=1" if request.param else ""
    with made:
        yield made


@pytest.mark.timeout(SECONDS + 4 * PATIENCE)
def test_what_failovers_lose(place: Clustered, tmp_path: Path, dice: random.Random) -> None:
    with nodes_on(place, tmp_path) as cluster:
        outcome = weather(place, cluster, dice)
    print(f"Redis Cluster{place.options}, lease {LEASE:g} s\n{outcome}")
    outcome.is_as_promised(loses=not place.options)
