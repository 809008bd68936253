"""Very much due at once, on nodes whose cranks are turned by hand: who plans what, and what need not wait."""

from collections import Counter
from datetime import timedelta

import pytest

from cronsensus import JobSpec, at
from cronsensus.clock import ManualClock
from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.node.decide import MOST_DUE
from cronsensus.node.round import Round
from cronsensus.node.turn_order import ACTIVE
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.values import Partition, View
from tests.node.recording_executor import RecordingExecutor, node_by_hand

LEASE = timedelta(seconds=10)
LEAD = timedelta(milliseconds=10)
"""Before midnight: when one node plans ahead."""
MIDNIGHT = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
HERD = 6 * MOST_DUE
MANY_ROUNDS = 400


class Watched(MemoryStore):
    """A store that notes which partitions are looked at."""

    partitions: list[Partition | None]
    hints = 0

    def notify(self) -> None:
        self.hints += 1

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        self.partitions.append(partition)
        return super()._look(limit, partition, ahead)


class Nodes:
    """Nodes on one store, that take turns: in each round, each does one step, and then all that runs has ended."""

    def __init__(self, count: int, *, concurrency: int = 100) -> None:
        self.clock = ManualClock()
        self.store = Watched(clock=self.clock)
        self.store.partitions = []
        self.concurrency = concurrency
        self.hands = [RecordingExecutor() for _ in range(count)]
        self.nodes = [self._node(number, hands) for number, hands in enumerate(self.hands)]
        self.midnight = self.clock.now() + MIDNIGHT

    def _node(self, number: int, hands: RecordingExecutor) -> Round:
        node = node_by_hand(
            self.store,
            self.clock,
            hands,
            lease=LEASE,
            name=str(number),
            concurrency=self.concurrency,
            functions=["noop"],
        )
        node.begin()
        return node

    def put(self, name: str, count: int, after: timedelta = MIDNIGHT) -> None:
        due = self.clock.now() + after
        specs = [JobSpec(name=f"{name}-{i}", function="noop", trigger=at(due), source="runtime") for i in range(count)]
        self.store.define_jobs(specs, release="1")

    def turn(self, *, only: range | None = None, ending: bool = True) -> None:
        for number in only or range(len(self.nodes)):
            node, hands = self.nodes[number], self.hands[number]
            node.step()
            if ending:
                for call in hands.calls:
                    node.active_runs.ended(call, Ending(kind="returned"))
                hands.calls.clear()
        self.clock.advance(0.005)

    @property
    def fired(self) -> list[int]:
        return [node.stats.fired for node in self.nodes]

    def until_all_ran(self, count: int, *, only: range | None = None) -> int:
        for rounds in range(MANY_ROUNDS):
            if sum(node.stats.settled for node in self.nodes) >= count:
                return rounds
            self.turn(only=only)
        raise AssertionError(f"{self.fired} fired, {[node.stats.settled for node in self.nodes]} ran")


def test_many_due_jobs_are_planned_once_by_all_nodes():
    nodes = Nodes(4)
    nodes.put("herd", HERD)
    nodes.turn()
    nodes.clock.advance(MIDNIGHT + SECOND)  # it is the turn of each
    nodes.until_all_ran(HERD)
    assert sum(nodes.fired) == HERD
    assert min(nodes.fired) > HERD // 8, nodes.fired
    assert {Partition(place, 4) for place in range(4)} <= set(nodes.store.partitions)
    looks = Counter(partition is None for partition in nodes.store.partitions[4:])
    assert looks[True] <= 4 * 4, "all look at everything, and plan the same"
    ran = Counter(one.job for one in nodes.store.occurrences(OccurrenceFilter(), limit=2 * HERD))
    assert set(ran.values()) == {1}
    assert len(ran) == HERD


@pytest.mark.parametrize("count", [1, 4])
def test_job_due_later_does_not_wait_for_many_due_jobs(count):
    nodes = Nodes(count, concurrency=50)
    nodes.put("herd", 2 * HERD)
    nodes.put("behind", 1, MIDNIGHT + timedelta(milliseconds=1))
    nodes.turn()
    nodes.clock.advance(MIDNIGHT - LEAD)
    nodes.turn()
    nodes.clock.advance(LEAD)
    nodes.turn()  # one fires what it planned ahead: more than it can begin
    nodes.clock.advance(SECOND)
    for _ in range(8):
        nodes.turn()
    (behind,) = nodes.store.occurrences(OccurrenceFilter(job="behind-0"))
    assert behind.started_at is not None, "created, and waits behind the herd"
    assert sum(nodes.fired) < 2 * HERD, "the herd was over by then"
    nodes.until_all_ran(2 * HERD + 1)


def test_the_share_of_a_dead_node_is_taken_by_the_others():
    nodes = Nodes(4)
    nodes.put("herd", HERD)
    nodes.turn()
    nodes.clock.advance(MIDNIGHT)
    nodes.until_all_ran(HERD, only=range(1, 4))
    assert nodes.fired[0] == 0
    assert sum(nodes.fired) == HERD


def test_many_due_jobs_are_fired_also_without_a_free_slot():
    nodes = Nodes(2, concurrency=5)
    nodes.put("herd", HERD)
    nodes.turn()
    nodes.clock.advance(MIDNIGHT)
    rounds = 0
    while sum(nodes.fired) < HERD:
        nodes.turn(ending=False)
        rounds += 1
        assert rounds < MANY_ROUNDS * 3, nodes.fired
    assert [len(hands.calls) for hands in nodes.hands] == [5, 5]


@pytest.mark.parametrize(("count", "hints"), [(ACTIVE, 0), (ACTIVE + 1, 1)])
def test_many_due_jobs_wake_idle_nodes(count, hints):
    nodes = Nodes(count)
    nodes.put("herd", HERD)
    nodes.turn()
    nodes.clock.advance(MIDNIGHT + SECOND)
    before = nodes.store.hints
    nodes.turn(only=range(1))
    assert nodes.store.hints - before == hints
