"""Three PostgreSQL under Patroni: the primary is killed, stopped and cut off, again and again, under load."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cronsensus.insight.doctor import examine_store
from tests.ha.weather import LEASE, PATIENCE, SECONDS, nodes_on, weather
from tests.servers.patroni import PatroniCluster, PatroniMember
from tests.servers.programs import ServiceMissing


class Patroni(PatroniCluster):
    """As a place for a store."""

    blows: tuple[str, ...] = ("killed", "stopped", "cut off", "split off")
    struck: PatroniMember

    def prepare_blow(self) -> None:
        self.struck = self.await_whole(PATIENCE)

    def strike(self, blow: str) -> Callable[[], object]:
        act, undo = {
            "killed": (self.struck.kill9, self.struck.start),
            "stopped": (self.struck.pause, self.struck.resume),
            "cut off": (self.struck.cut_off, self.struck.let_in),
            "split off": (self.struck.split_off, self.struck.let_in),
        }[blow]
        act()
        return undo

    def has_successor(self) -> bool:
        return any(member.is_primary() for member in self.members if member is not self.struck)


@pytest.fixture(params=[True, False], ids=["synchronous", "asynchronous"])
def place(request: pytest.FixtureRequest) -> Iterator[Patroni]:
    try:
        made = Patroni(synchronous=request.param)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


@pytest.mark.timeout(SECONDS + 4 * PATIENCE)
def test_what_failovers_lose(place: Patroni, tmp_path: Path, dice: random.Random) -> None:
    with nodes_on(place, tmp_path) as cluster:
        failover = next(check for check in examine_store(cluster.store) if check.name == "failover")
        assert (failover.level, "2 standbys" in failover.text) == ("ok" if place.synchronous else "warn", True)
        outcome = weather(place, cluster, dice)
    print(f"PostgreSQL under Patroni, {'' if place.synchronous else 'a'}synchronous, lease {LEASE:g} s\n{outcome}")
    outcome.is_as_promised(loses=not place.synchronous)
