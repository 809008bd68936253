"""Nights of batches: listers and items are killed, wake-ups are lost, and still each list is done, each item once.

The books of ``Judge`` know nothing of batches, so here the ledger itself is judged when all is over: every batch final;
of one that succeeded, the items of its list and no others, each of them succeeded, and as many results collected; no
item left open under any; and what the audit finds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, cast

from cronsensus.audit import audit
from cronsensus.errors import CoordinationError, UnknownJob
from cronsensus.model.batch import shown_key
from cronsensus.model.ending import EndingKind
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node.items import Batch
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


class BatchScenario(Scenario):
    """One job with items, on rough nights only."""

    def __init__(self, rng: Random) -> None:
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
                "keep": 86_400,
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

    def do_one(self) -> None:
        """Start a batch, or cancel something."""
        if self._rng.random() < 0.75:
            self.do("trigger", JOB, by="people", why="")
        else:
            self.cancel_some(JOB)

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

    def _arm(self, node: SimulatedNode, kind: Kind) -> None:
        rng = self._stage.rng
        cranks: Sequence[Crank] = [node.turning, node.batching, *node.phases]
        rng.choice(cranks).fault = Fault(kind, rng.choice([0, 0, 1, 1, 2, 3]), self._while())


class SleepersWorld(World):
    """A night in which much sleeps until it is woken: some wake-ups are lost, also when all else goes well again."""

    def commit(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the store carry a verb out."""
        if verb == "awaken" and self.rng.random() < LOST:
            self.trace.add(self.clock.micros, who, "LOST", args)
            return 0
        return super().commit(who, verb, args, kwargs)

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
        self._lists = BatchScenario(self.rng)
        self.scenario = self._lists
        self.judge = cast("Judge", BatchJudge(self))
        self.people = BatchPeople(self, self.judge, self.nodes)
        self.troubles = BatchTroubles(self, self.people, self.nodes, self.outsiders)

    def _reckon(self) -> None:
        judge, items = self.judge, defaultdict[int, list[Occurrence]](list)
        everything = self._everything()
        for one in everything:
            if one.parent is not None:
                items[one.parent].append(one)
            if not one.state.final:
                judge.broken("progress", f"#{one.id} {one.key} is still {one.state} ({one.reason}), due {one.due_at}")
        for one in everything:
            if one.parent is None and one.state is State.SUCCEEDED:
                self._complete(one, items[one.id])
        for finding in audit(self.store).findings:
            judge.broken("audit", finding.sentence)

    def _complete(self, batch: Occurrence, items: Sequence[Occurrence]) -> None:
        said = sorted((shown_key(one.key), str(one.state)) for one in items)
        states = Counter(one.state for one in items)
        if (
            [key for key, _ in said] != sorted(self._lists.keys)
            or set(states) - {State.SUCCEEDED, State.SKIPPED}
            or batch.result != str(states[State.SUCCEEDED])
        ):
            self.judge.broken("batch", f"#{batch.id} succeeded with {batch.result} results of {said}")
