"""Very much due at once, on nodes that look at the same moment: all is planned once, and nothing waits for ever."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from cronsensus import at
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.node.herd import MOST_DUE_JOBS
from cronsensus.node.turn_order import place_of
from tests.node.crowd import A_PLAN, SECOND, Crowd, lateness, latest

MS = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)
HERD = 4 * MOST_DUE_JOBS
AFTER = 20.0
"""Seconds from the beginning to the herd."""
PLANNED = HERD * A_PLAN
"""Seconds that the store takes to carry out the plans of the herd."""


class Herd(Crowd):
    """Nodes that race for what is due ``AFTER`` seconds from the beginning."""

    def __init__(self, size: int, *, concurrency: int = 100, lasts: timedelta = MS) -> None:
        super().__init__(size, concurrency=concurrency, lasts=lasts, races=0.05)
        self.due = self.clock.now() + AFTER * SECOND

    def put_due(self, name: str, count: int = 1, after: timedelta = timedelta(0)) -> None:
        trigger = at(self.due + after)
        specs = [JobSpec(name=f"{name}-{i}", function="work", trigger=trigger, source="runtime") for i in range(count)]
        self.define(*specs)

    def begin(self) -> None:
        """Let time pass until shortly before the due time."""
        self.run(AFTER - 0.2)
        assert not self.all()

    def all(self) -> list[Occurrence]:
        return self.store.occurrences(OccurrenceFilter(), limit=10_000, newest_first=False)

    def one(self, name: str) -> Occurrence:
        (found,) = self.ran(name)
        return found

    def until_all_ran(self, count: int) -> float:
        """Return how many seconds after the due time the last of so many had ended."""
        self.run(60, until=lambda: sum(node.stats.settled for node in self.nodes) >= count)
        found = self.all()
        assert Counter(one.state for one in found) == {"succeeded": count}
        assert set(Counter(one.job for one in found).values()) == {1}
        return (self.clock.now() - self.due) / SECOND

    @property
    def fired(self) -> list[int]:
        return [node.stats.fired for node in self.nodes]

    @property
    def ran_on(self) -> Counter[str | None]:
        """Return how much each node ran."""
        return Counter(one.node for one in self.all())

    @property
    def first(self) -> int:
        """Return the node whose turn it is first."""
        ids = tuple(sorted(self.sessions))
        return self.sessions[min(ids, key=lambda one: place_of(one, ids, self.due))]

    @property
    def lost_races(self) -> int:
        return sum(node.stats.lost_races for node in self.nodes)


@pytest.mark.parametrize("nodes", [4, 6])
def test_many_due_jobs_are_planned_once_and_run_in_the_slots_of_all_nodes(nodes):
    herd = Herd(nodes, concurrency=50, lasts=60 * MS)
    herd.put_due("herd", HERD)
    herd.begin()
    took = herd.until_all_ran(HERD)
    assert sum(herd.fired) == HERD
    assert len(herd.ran_on) == nodes
    assert min(herd.ran_on.values()) >= 50, "a node whose slots are not used"
    assert took <= HERD * 0.06 / (nodes * 50) + 0.1


def test_nodes_that_all_find_many_jobs_overdue_at_one_moment_lose_at_most_one_race_each_and_share_the_rest():
    herd = Herd(4)
    herd.put_due("herd", HERD)
    herd.begin()
    herd.dead = set(range(4))
    herd.run(1)
    herd.dead = set()
    for number, node in enumerate(herd.nodes):
        node.woken = True  # as after an error
        herd.after(0.0, partial(herd.turn, number))
    took = herd.until_all_ran(HERD) - 0.8
    assert sum(herd.fired) == HERD
    assert herd.lost_races <= 3 * MOST_DUE_JOBS
    assert max(herd.fired) < HERD
    assert took <= PLANNED + 0.1


def test_the_share_of_a_dead_node_is_taken_by_the_others():
    herd = Herd(4)
    herd.put_due("herd", HERD)
    herd.begin()
    herd.dead = {herd.first}
    herd.until_all_ran(HERD)
    assert herd.fired[herd.first] == 0
    assert sum(herd.fired) == HERD
    assert len(herd.ran_on) == 3


def test_many_due_jobs_are_fired_also_without_a_free_slot():
    herd = Herd(2, concurrency=5, lasts=HOUR)
    herd.put_due("herd", HERD)
    herd.begin()
    herd.run(1)
    assert sum(herd.fired) == HERD
    assert [len(hands.calls) for hands in herd.hands] == [5, 5]


# --- what comes with a herd, or right after it ------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_job_behind_a_herd_that_finds_a_slot_each_is_a_moment_late(nodes):
    herd = Herd(nodes, concurrency=400 // nodes, lasts=HOUR)
    herd.put_due("herd", 300)
    herd.put_due("behind", 1, MS)
    herd.begin()
    herd.run(1)
    assert lateness(herd.one("behind-0")) <= 0.1
    assert latest(herd.all()) <= 0.1


def test_a_job_behind_a_herd_is_created_before_all_of_the_herd_is():
    herd = Herd(4, concurrency=50)
    herd.put_due("herd", 2 * HERD)
    herd.put_due("behind", 1, MS)
    herd.begin()
    herd.run(1, until=lambda: bool(herd.ran("behind-0")))
    assert sum(herd.fired) <= HERD


def test_a_job_behind_a_herd_for_which_there_are_not_slots_enough_begins_after_the_herd():
    """Not before what came due before it; what is due within milliseconds of it may be made before it."""
    slots = 2 * 50
    herd = Herd(2, concurrency=50, lasts=20 * MS)
    herd.put_due("herd", HERD)
    herd.put_due("behind", 1, MS)
    herd.put_due("later", 300, 2 * MS)
    herd.begin()
    herd.until_all_ran(HERD + 301)
    begun = [one.job for one in sorted(herd.all(), key=lambda one: one.started_at or herd.due)]
    assert HERD - slots <= begun.index("behind-0")
