"""Operators and callers, who act at any moment: through the store, as the command line does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from cronsensus.errors import CoordinationError, UnknownJob
from cronsensus.model.occurrence import Item
from cronsensus.model.states import ACTIVE
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.judge.books import Record
from tests.simulation.cluster.node import SimulatedNode
from tests.simulation.cluster.stage import Stage


class People:
    """Somebody who does something now and again."""

    def __init__(self, stage: Stage, judge: Judge, nodes: Sequence[SimulatedNode]) -> None:
        self._stage = stage
        self._judge = judge
        self._nodes = nodes
        self._rng = stage.chance["people"]
        self._acts: list[Callable[[str], None]] = [
            self._pause, self._resume, self._resume, self._trigger, self._trigger, self._cancel, self._retry,
            self._backfill, self._enqueue, self._enqueue, self._enqueue, self._retire,
        ]  # fmt: skip

    def act(self) -> None:
        """Do one thing; what is refused is refused."""
        if self._rng.random() < 0.1:
            self._rng.choice([self._prune, self._drain])()
        else:
            self._try(self._rng.choice(self._acts), self._rng.choice(self._stage.scenario.names))

    def _try(self, act: Callable[[str], None], job: str) -> None:
        try:
            act(job)
        except (CoordinationError, UnknownJob) as error:
            self._stage.trace.add(self._stage.clock.micros, "people", "refused", str(error))
        self._stage.hint_all("people")

    def ask(self) -> None:
        """Ask for work, as people do on a quiet night too."""
        job = self._rng.choice(self._stage.scenario.names)
        if job in self._judge.jobs:
            self._rng.choice([self._enqueue, self._trigger])(job)
            self._stage.hint_all("people")

    def interfere(self, job: str) -> None:
        """Change something about a job between a plan for it and its being carried out."""
        rng = self._stage.chance["interference"]
        act = rng.choice([self._pause, self._trigger, self._cancel, self._retire])
        self._stage.after(1, lambda: self._try(act, job))

    def do(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Call a verb of the store."""
        return self._stage.commit("people", verb, args, kwargs)

    def _pause(self, job: str) -> None:
        self.do("pause", job, by="people", why="simulated")

    def _resume(self, job: str) -> None:
        self.do("resume", job, by="people")

    def _trigger(self, job: str) -> None:
        self.do("trigger", job, by="people")

    def _retire(self, job: str) -> None:
        if self._rng.random() < 0.2:
            self.do("retire", job, by="people", why="simulated")

    def _cancel(self, job: str) -> None:
        record = self._some(job, active=True)
        if record is not None:
            self.do("cancel", record.id, by="people", why="simulated")

    def _retry(self, job: str) -> None:
        record = self._some(job, active=False)
        if record is not None:
            self.do("retry", record.id, by="people", again=self._rng.random() < 0.5)

    def _some(self, job: str, *, active: bool) -> Record | None:
        book = self._judge.jobs.get(job)
        records = [] if book is None else book.records
        some = [record for record in records if not record.pruned and (record.state in ACTIVE) == active]
        return self._rng.choice(some) if some else None

    def _backfill(self, job: str) -> None:
        book = self._judge.jobs.get(job)
        if book is None:
            return
        now = self._stage.clock.now()
        times = book.nominals(now - timedelta(seconds=60), now + timedelta(seconds=20))
        if times:
            self.do("backfill", job, self._rng.sample(times, min(3, len(times))), by="people")
        if self._rng.random() < 0.3:
            self._stage.after(self._rng.randint(1, 8 * SECOND), lambda: self.do("prune", self._stage.clock.now()))

    def _enqueue(self, job: str) -> None:
        rng = self._rng
        items = [
            Item(
                job=job,
                key=f"key {rng.randint(0, 30)}",
                delay=timedelta(seconds=rng.choice([0, 0, 2, 20])),
                expires_in=rng.choice([None, None, timedelta(seconds=3)]),
                priority=rng.choice([None, 9]),
            )
            for _ in range(rng.choice([1, 1, 5]))
        ]
        self.do("enqueue", items)
        if rng.random() < 0.2:
            self.do("enqueue", items)

    def _prune(self) -> None:
        before = (
            None if self._rng.random() < 0.5 else self._stage.clock.now() - timedelta(seconds=self._rng.randint(0, 60))
        )
        self.do("prune", before, limit=self._rng.choice([3, 1000]))

    def _drain(self) -> None:
        nodes = [node for node in self._nodes if node.session is not None]
        if nodes and self._rng.random() < 0.3:
            self.do("drain", self._rng.choice(nodes).session, by="people", why="simulated")

    def leave_alone(self) -> None:
        """Pause everything, so that what is left can come to its end."""
        for job, book in self._judge.jobs.items():
            if not book.paused and not book.retired:
                self._pause(job)

    def next_in(self) -> int:
        """Return the microseconds until the next act."""
        return int(self._rng.expovariate(1 / self._stage.scenario.seconds_between_acts) * SECOND)
