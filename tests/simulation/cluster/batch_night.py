"""Nights of batches: listers and items are killed, wake-ups are lost, and still each list is done, each item once.

The books of ``Judge`` know nothing of batches, so here the ledger itself is judged when all is over: every batch final;
of one that succeeded, the items of its list and no others, each of them succeeded, and as many results collected; no
item left open under any; and what the audit finds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cached_property
from random import Random
from typing import Any, cast

from cronsensus.audit import audit
from cronsensus.batching.batch import Batch
from cronsensus.errors import CoordinationError, UnknownJob
from cronsensus.model.batch import shown_key
from cronsensus.model.ending import EndingKind
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import Reason, State
from cronsensus.timing.instants import LATEST
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.cranks import Crank
from tests.simulation.cluster.faults import Fault, Kind
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.node import SimulatedNode
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.people import People
from tests.simulation.cluster.scenario import Scenario, Shape
from tests.simulation.cluster.stage import Attempt, Process, Stage
from tests.simulation.cluster.troubles import Troubles
from tests.simulation.cluster.work import PhaseWork
from tests.simulation.cluster.world import LOOK, World

JOB = "list"
PATIENCE = 400 * SECOND
"""How long what was begun may take to its end: retries, leases, and two sweeps of a minute."""
LOST = 0.3
"""Which share of wake-ups is lost."""
KEEP = {False: 86_400, True: 4}
"""For how many seconds jobs keep what is over; where people prune, so short that much goes."""


class BatchScenario(Scenario):
    """One job with items, on rough nights only."""

    def __init__(self, rng: Random, *, prunes: bool) -> None:
        super().__init__(rng)
        self.names = [JOB]
        self.executors = {JOB: "thread"}
        self.shapes = {JOB: rng.choice([Shape(0.01, 0.5, 0.9), Shape(0.1, 3.0, 0.9), Shape(1.0, 12.0, 0.95)])}
        policies = Policies.read(
            {
                "overlap": rng.choice(["allow", "queue"]),
                "concurrency": rng.choice([None, None, 1, 3]),
                "max_crashes": 100,
                "retries": 20,
                "retry_delay": 0.5,
                "retry_max_delay": 2,
                "keep": KEEP[prunes],
            }
        )
        self.releases = [[JobSpec(name=JOB, function=JOB, trigger=None, policies=policies)]]
        self.keys = [f"item {number}" for number in range(rng.choice([1, 3, 9, 30]))]
        self.batches = {JOB: Batch(lister=self.keys, lister_name="items", bind=_bind, collect=_count)}
        self.outsiders = 0
        self.clock_steps = False
        self.rough = True
        self.nodes = max(2, self.nodes)
        self.seconds_between_acts = 15.0


def _bind(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (item,), {}


def _count(results: Iterable[Any]) -> int:
    return sum(1 for _ in results)


class BatchJudge:
    """Keeps no books."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.violations: list[str] = []

    def broken(self, rule: str, what: str) -> None:
        """Name a violation."""
        self.violations.append(f"{rule}: {what}")
        self.stage.trace.add(self.stage.clock.micros, "judge", "VIOLATION", rule, what)

    def trusts(self, node: Process, session: str, micros: int) -> None:
        """Leave that to other nights, as all below."""

    def work_begins(self, work: Attempt) -> None:
        """Say what begins."""
        claim = work.call.claim
        kind = "phase" if isinstance(work, PhaseWork) else "item"
        self.stage.trace.add(self.stage.clock.micros, work.node.name, "begins", kind, claim)

    def work_ends(self, work: Attempt, kind: EndingKind) -> None:
        """Say how it ends."""
        self.stage.trace.add(self.stage.clock.micros, work.node.name, "ends", kind, work.call.claim)

    def work_dies(self, work: Attempt) -> None:
        """Say what died."""
        kind = "phase" if isinstance(work, PhaseWork) else "item"
        self.stage.trace.add(self.stage.clock.micros, work.node.name, "dies", kind, work.call.claim)

    def saw(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        """Believe it."""

    def remember(self) -> None:
        """Have nothing to remember."""

    def forget(self, books: object) -> None:
        """Have nothing to forget."""


class BatchPeople(People):
    """Start batches, and now and then cancel one, or an item of one."""

    def act(self) -> None:
        """Do one thing; what is refused is refused."""
        try:
            self.do_one()
        except (CoordinationError, UnknownJob) as error:
            self._stage.trace.add(self._stage.clock.micros, "people", "refused", str(error))
        self._stage.hint_all("people")

    ask = act

    def prune_some(self) -> None:
        """Prune by ``keep``, and in the second half of a night now and then what ended before a time."""
        before = None
        rng = self._stage.chance["prunes"]
        if self._stage.clock.micros > self._stage.scenario.micros // 2 and rng.random() < 0.2:
            before = self._stage.clock.now() - timedelta(seconds=rng.randint(0, 30))
        self.do("prune", before, limit=rng.choice([3, 1000]))

    def do_one(self) -> None:
        """Start a batch, try a failed one again, or cancel something."""
        if self._stage.parts.prunes and self._rng.random() < 0.5 and (failed := self._failed_batches()):
            self.do("retry", self._rng.choice(failed).id, by="people")
        elif self._rng.random() < 0.75:
            self.do("trigger", JOB, by="people", why="")
        else:
            self.cancel_some(JOB)

    def _failed_batches(self) -> list[Occurrence]:
        where = OccurrenceFilter(job=JOB, states=(State.FAILED, State.CANCELLED))
        found = self._stage.store.occurrences(where, limit=50)
        return [one for one in found if one.parent is None and one.retried_as is None]

    def cancel_some(self, job: str) -> None:
        """Cancel something of a job that is not over."""
        where = OccurrenceFilter(job=job, states=(State.PENDING, State.RUNNING))
        if found := self._stage.store.occurrences(where, limit=50):
            self.do("cancel", self._rng.choice(found).id, by="people", why="")

    def interfere(self, job: str) -> None:
        """Leave plans alone."""

    def leave_alone(self) -> None:
        """Start no more."""


class BatchTroubles(Troubles):
    """Faults bite in listers and in watches too."""

    def begin(self) -> None:
        """Let people prune, too."""
        super().begin()
        people = cast("BatchPeople", self._people)
        if self._stage.parts.prunes:
            self._again(people.prune_some, lambda: int(self._stage.chance["prunes"].expovariate(1 / 3) * SECOND))

    def _arm(self, node: SimulatedNode, kind: Kind) -> None:
        rng = self._stage.chance["troubles"]
        cranks: Sequence[Crank] = [node.turning, node.waking, *node.phases]
        rng.choice(cranks).fault = Fault(kind, rng.choice([0, 0, 1, 1, 2, 3]), self._while())


def _waits_unparked(one: Occurrence) -> bool:
    return not one.state.final and one.due_at < LATEST


class SleepersWorld(World):
    """A night in which much sleeps until it is woken: some wake-ups are lost, also when all else goes well again."""

    def commit(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the store carry a verb out."""
        rng = self.chance["wakers"]
        if verb == "wake" and "listed" not in kwargs and rng.random() < LOST:
            self.trace.add(self.clock.micros, who, "LOST", args)
            if not self.calm and rng.random() < 0.5:
                self.after(0, lambda: self._end_waker(who))
            return 0
        if verb == "prune":
            self._judge_ended()
            self.named_a_time = self.named_a_time or args[0] is not None
            self.exposed |= {one.id for one in self._everything() if one.scheduled_for and _waits_unparked(one)}
        return super().commit(who, verb, args, kwargs)

    named_a_time = False
    """Whether somebody has pruned by a time: only then something open may miss what it needs."""

    @cached_property
    def exposed(self) -> set[int]:
        """What came after others and waited for a node when somebody pruned: a store knows only what is parked."""
        return set()

    def _end_waker(self, who: str) -> None:
        """Let a node die between its last commit and the wake-up."""
        for node in [node for node in self.nodes if node.name == who.partition(".")[0]]:
            self.trace.add(self.clock.micros, who, "DIES before it wakes")
            node.crash()

    def _judge_ended(self) -> None:
        """Judge what has ended, before it is pruned and when all is over."""
        for one in self._everything():
            said = f"{one.reason} {one.error.message if one.error else ''}"
            if str(Reason.UPSTREAM_PRUNED) in said and not self.named_a_time and one.id not in self.exposed:
                self.judge.broken("prune", f"#{one.id} {one.job} misses what only `keep` has pruned: {said}")

    def _look_around(self) -> None:
        """Leave idle hands to other nights."""

    def _finish(self) -> None:
        self.people.leave_alone()
        until = self.clock.micros + PATIENCE

        def look() -> None:
            if self.clock.micros >= until or all(one.state.final for one in self._everything()):
                self.over = True
            else:
                self.after(LOOK, look)

        self.after(LOOK, look)

    def _everything(self) -> list[Occurrence]:
        return self.store.occurrences(OccurrenceFilter(), limit=100_000)


class BatchWorld(SleepersWorld):
    """A night of batches."""

    def __init__(self, seed: int, parts: Parts) -> None:
        super().__init__(seed, parts)
        self._lists = BatchScenario(self.chance["scenario"], prunes=parts.prunes)
        self.scenario = self._lists
        self.judge = cast("Judge", BatchJudge(self))
        self.people = BatchPeople(self, self.judge, self.nodes)
        self.troubles = BatchTroubles(self, self.people, self.nodes, self.outsiders)

        self._judged = set[int]()

    def _reckon(self) -> None:
        for one in self._everything():
            if not one.state.final:
                self.judge.broken(
                    "progress", f"#{one.id} {one.key} is still {one.state} ({one.reason}), due {one.due_at}"
                )
        self._judge_ended()
        if not self.parts.prunes:
            for finding in audit(self.store).findings:
                self.judge.broken("audit", finding.sentence)

    def _judge_ended(self) -> None:
        super()._judge_ended()
        items, batches = defaultdict[int, list[Occurrence]](list), dict[int, Occurrence]()
        for one in self._everything():
            if one.parent is None:
                batches[one.id] = one
            else:
                items[one.parent].append(one)
        for batch in batches.values():
            if batch.state is State.SUCCEEDED and batch.id not in self._judged:
                self._judged.add(batch.id)
                done, before = list(items[batch.id]), batch.retry_of
                while before is not None and before in batches:
                    done += [one for one in items[before] if one.state is State.SUCCEEDED]
                    before = batches[before].retry_of
                self._complete(batch, done)

    def _complete(self, batch: Occurrence, items: Sequence[Occurrence]) -> None:
        said = sorted((shown_key(one.key), str(one.state)) for one in items)
        states = Counter(one.state for one in items)
        if (
            sorted({key for key, _ in said}) != sorted(self._lists.keys)
            or (len(said) > len(self._lists.keys) and batch.retry_of is None)  # one that still ran is done twice
            or set(states) - {State.SUCCEEDED, State.SKIPPED}
            or batch.result != str(states[State.SUCCEEDED])
        ):
            self.judge.broken("batch", f"#{batch.id} succeeded with {batch.result} results of {said}")
