"""Nodes are killed in the middle of diamonds: each foot runs once, and never before what it comes after."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronsensus.audit import audit
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.chaos.cluster import Cluster
from tests.chaos.diamond_jobs import BEHIND, LINES

NODES = ("a", "b", "c")
NIGHTS = 50
KILL_EVERY = 2.0


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lines.txt"
    path.touch()
    monkeypatch.setenv(LINES, str(path))
    return path


@pytest.fixture(params=["postgres", "redis"])
def cluster(request: pytest.FixtureRequest, lines: Path, tmp_path: Path) -> Iterator[Cluster]:
    del lines
    url = request.getfixturevalue(f"{request.param}_url")
    made = Cluster(tmp_path, app="diamond_jobs:scheduler", url=url)
    yield made
    made.end_all()


@pytest.mark.timeout(300)
def test_killed_every_two_seconds_each_foot_runs_once_and_after_both_sides(
    cluster: Cluster, lines: Path, dice: random.Random
) -> None:
    cluster.start(*NODES)
    cluster.await_all()
    begun, kills, at_second = time.monotonic(), 0, dice.random()
    while time.monotonic() - begun < NIGHTS + 3:
        threading.Event().wait(0.05)
        # At another moment of a night each time.
        if time.monotonic() - begun > KILL_EVERY * (kills + 1) + at_second:
            victim = NODES[kills % len(NODES)]
            cluster.kill(victim)
            cluster.start(victim)
            kills, at_second = kills + 1, dice.random()
    cluster.await_all()
    until = cluster.store.now()
    cluster.until(lambda: not audit(cluster.store, until=until).pending, f"everything up to {until} is done")
    assert cluster.drain() == [0, 0, 0]

    report = audit(cluster.store, until=until)
    assert [one.sentence for one in report.findings] == []
    assert (report.duplicates, report.missed) == (0, 0)
    nights: dict[str, dict[int, tuple[float, float]]] = {}
    crashes: dict[tuple[str, int], int] = {}
    for job in BEHIND:
        found = cluster.store.occurrences(OccurrenceFilter(job=job, scheduled_until=until), limit=1000)
        assert {one.state for one in found} == {State.SUCCEEDED}
        nights[job] = {
            int(one.result or "0"): (one.started_at.timestamp(), one.finished_at.timestamp())
            for one in found
            if one.started_at and one.finished_at
        }
        assert len(nights[job]) == len(found)
        crashes |= {(job, int(one.result or "0")): one.crashes for one in found}
    assert len(nights["foot"]) >= NIGHTS
    assert nights["foot"].keys() == nights["left"].keys() == nights["right"].keys() == nights["top"].keys()
    for job, upstreams in BEHIND.items():
        for night, (started, _) in nights[job].items():
            assert all(nights[one][night][1] <= started for one in upstreams), f"{job} began too soon, by the ledger"
    at = moments(lines)
    for job, upstreams in BEHIND.items():
        for night in nights[job]:
            begins = at["begin", job, night]
            assert 1 <= len(begins) <= 1 + crashes[job, night], f"{job} of {night} began {len(begins)} times"
            assert all(min(at["end", one, night]) <= min(begins) for one in upstreams), f"{job} began too soon"
    assert sum(crashes.values()) >= 3, "the fault did not bite: no kill cut a run"
    print(f"{len(nights['foot'])} nights, {kills} kills cut {sum(crashes.values())} runs")


def moments(lines: Path) -> dict[tuple[str, str, int], list[float]]:
    """Return when the runs said what they did, by event, job and night."""
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for line in lines.read_text().splitlines():
        event, job, night, moment = line.split()
        found[event, job, int(night)].append(float(moment))
    return found
