"""Two of four nodes end in one moment, and the next due time was theirs: the third looks at its turn, as ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cronsensus.node.turn_order import place_of
from tests.chaos.cluster import Cluster

NODES = ("a", "b", "c", "d")
BEFORE = 0.4
"""Seconds from the end of the two to the due time, which nobody has decided by then."""
LATEST = 0.3
"""Seconds. The third in turn order comes 30 ms after the due time; the rest is for busy machines."""
WATCHED = 4


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def four(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Return what starts four nodes, each for itself on a host of its own, and waits until each second is run."""
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    made: list[Cluster] = []

    def start() -> Cluster:
        cluster = Cluster(tmp_path, app="half_app:scheduler", url=url, apps=Path(__file__).parent)
        made.append(cluster)
        cluster.environment = {"EVIDENCE": str(tmp_path / "evidence")}
        cluster.start(*NODES)
        cluster.await_all()
        cluster.until(lambda: len(seconds(cluster)) >= 8, "the nodes know each other, and have run some")
        return cluster

    yield start
    for cluster in made:
        cluster.end_all()


def seconds(cluster: Cluster) -> dict[int, float]:
    """Return how late each second began."""
    evidence = cluster.folder / "evidence"
    lines = evidence.read_text().splitlines() if evidence.exists() else []
    return {int(second): float(late) for second, late in (line.split() for line in lines)}


def end_those_whose_turn_it_is(cluster: Cluster, end: Callable[[str], object]) -> int:
    """End the first two in turn order for a due time, a moment before that; return the due time."""
    sessions = {one.id: one.node for one in cluster.store.sessions() if one.is_node}
    due = int(time.time()) + 2
    order = sorted(sessions, key=lambda one: place_of(one, tuple(sessions), datetime.fromtimestamp(due, UTC)))
    time.sleep(due - BEFORE - time.time())
    for session in order[:2]:
        end(sessions[session])
    return due


def judge(cluster: Cluster, due: int) -> None:
    last = due + WATCHED - 1
    cluster.until(lambda: last in seconds(cluster), f"second {last} is run")
    late = {second - due: lateness for second, lateness in seconds(cluster).items() if second >= due}
    assert sorted(late)[:WATCHED] == list(range(WATCHED)), late
    assert late[0] <= LATEST, late


ENDS: dict[str, Callable[[Cluster, str], object]] = {
    "killed": lambda cluster, node: cluster.processes[node].kill(),
    # As those of a host that lost its power or its network: nothing tells the server, either.
    "stand still": lambda cluster, node: cluster.freeze(node),
    "leave": lambda cluster, node: cluster.processes[node].terminate(),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_due_time_whose_first_two_nodes_end_in_one_moment_is_a_moment_late(
    four: Callable[[], Cluster], how: str
) -> None:
    cluster = four()
    due = end_those_whose_turn_it_is(cluster, lambda node: ENDS[how](cluster, node))
    judge(cluster, due)
