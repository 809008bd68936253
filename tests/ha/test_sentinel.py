"""Three Redis and three Sentinels: the master is killed, stopped and cut off, again and again, under load."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ha.weather import LEASE, PATIENCE, SECONDS, nodes_on, weather
from tests.servers.programs import ServiceMissing
from tests.servers.sentinel import WatchedRedis, WatchedServer


class Watched(WatchedRedis):
    """As a place for a store, whose URL may say how many replicas must have each write."""

    blows: tuple[str, ...] = ("killed", "stopped", "cut off")
    struck: WatchedServer
    options = ""

    @property
    def url(self) -> str:
        return super().url + self.options

    def prepare_blow(self) -> None:
        self.struck = self.await_whole(PATIENCE)

    def strike(self, blow: str) -> Callable[[], object]:
        act, undo = {
            "killed": (self.struck.kill9, self.struck.start),
            "stopped": (self.struck.pause, self.struck.resume),
            "cut off": (self.struck.cut_off, self.struck.let_in),
        }[blow]
        act()
        return undo

    def has_successor(self) -> bool:
        return self.master() not in {None, self.struck}


CONFIRMED = {"min-replicas-to-write": "1", "min-replicas-max-lag": "3"}


@pytest.fixture(params=[True, False], ids=["confirmed", "unconfirmed"])
def place(request: pytest.FixtureRequest) -> Iterator[Watched]:
    try:
        made = Watched(settings=CONFIRMED if request.param else {})
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    made.options = "?min_replicas=1" if request.param else ""
    with made:
        yield made


@pytest.mark.timeout(SECONDS + 4 * PATIENCE)
def test_what_failovers_lose(place: Watched, tmp_path: Path, dice: random.Random) -> None:
    with nodes_on(place, tmp_path) as cluster:
        outcome = weather(place, cluster, dice)
    print(f"Redis under Sentinel{place.options}, lease {LEASE:g} s\n{outcome}")
    outcome.is_as_promised(loses=not place.options)
