"""Work that takes virtual time: an executor whose jobs end by events, and obey or do not."""

from __future__ import annotations

import inspect
import traceback
from datetime import timedelta
from random import Random

from cronsensus.model.ending import Ending, EndingKind
from cronsensus.model.occurrence import LogLine, RunError
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.result import ending_of_error, ending_of_value
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.cranks import Crank
from tests.simulation.cluster.faults import Fault
from tests.simulation.cluster.stage import Process

_KINDS: tuple[EndingKind, ...] = ("returned", "raised", "retry", "skipped", "cancelled")


class Work:
    """One attempt under way. ``call.run`` is the real one, so its events are what a job would see."""

    def __init__(self, node: Process, call: Call, done: Done) -> None:
        self.node = node
        self.call = call
        self.over = False
        self._done = done

    @property
    def _rng(self) -> Random:
        """What an occurrence draws is its own, whichever node runs it, and when."""
        claim = self.call.claim
        return self.node.stage.chance[f"work {claim.job} {claim.key}"]

    def begin(self) -> None:
        """Draw how long it takes and how it ends."""
        world, rng = self.node.stage, self._rng
        shape = world.scenario.shapes[self.call.claim.spec.function]
        seconds = 0.05 if world.calm else shape.shortest * (shape.longest / shape.shortest) ** rng.random()
        kind = "returned" if rng.random() < shape.succeeds else rng.choice(_KINDS)
        timeout = self.call.claim.spec.policies.timeout
        if timeout is not None and timeout.total_seconds() < seconds:
            seconds, kind = timeout.total_seconds(), "timed_out"
        self.node.later(int(seconds * SECOND) + 1, lambda: self._end(kind))
        for _ in range(rng.choice([0, 0, 0, 1, 4])):
            self.node.later(int(seconds * rng.random() * SECOND), self._say_something)

    def _say_something(self) -> None:
        """Tell how far it is, or log a line; also one that nobody believes any more goes on talking."""
        if self.over:
            return
        run, rng = self.call.run, self._rng
        if rng.random() < 0.5:
            run.progress(rng.randint(0, 100))
        else:
            run.line(LogLine(self.node.clock.now(), "info", f"line {rng.randint(0, 999)}"))

    def stop(self, reason: str, *, lease_lost: bool) -> None:
        """Ask it to stop: a coroutine does, soon; a thread looks at it now and again, or never."""
        self.call.run.request_stop(reason, lease_lost=lease_lost)
        rng = self._rng
        if self.call.registered.executor != "thread" or rng.random() < 0.3:
            # Some notice and just return, which is not what they were to do but what people write.
            kind: EndingKind = "returned" if rng.random() < 0.3 else "cancelled"
            self.node.later(int(rng.random() * 0.2 * SECOND), lambda: self._end(kind))

    def _end(self, kind: EndingKind) -> None:
        if self.over:
            return
        self.over = True
        run = self.call.run
        self.node.stage.witness.work_ends(self, kind)
        self._done(self.call, self._make_ending(kind, run.cancel_reason if run.cancelled.is_set() else "as it said"))

    def _make_ending(self, kind: EndingKind, reason: str | None) -> Ending:
        match kind:
            case "returned":
                return Ending(kind=kind, result="true")
            case "raised" | "timed_out":
                return Ending(kind=kind, error=RunError(type="Simulated", message=kind))
            case "retry":
                return Ending(kind=kind, reason=reason, retry_after=timedelta(seconds=1.5))
            case _:
                return Ending(kind=kind, reason=reason)


DIES = 0.02
"""How probable it is that a node dies while it lists or collects."""


class PhaseWork(Work):
    """A batch that lists or collects: the real function, which asks the store, on a crank of its own."""

    def begin(self) -> None:
        """Let it be turned, once."""
        claim = self.call.claim
        self._crank = Crank(self.node, f"{self.node.name}.phase{claim.id}", self._turn)
        self.node.phases.append(self._crank)
        stage = self.node.stage
        if not stage.calm and self._rng.random() < DIES:  # it is so short that no trouble at random meets it
            self._crank.fault = Fault("crash", self._rng.choice([1, 2, 3]))
        self._crank.wake()

    def _turn(self) -> float:
        run, registered = self.call.run, self.call.registered
        try:
            ending = ending_of_value(registered.function(run=run), registered.types)
        except Exception as error:  # noqa: BLE001 - as an executor does
            ending = ending_of_error(error, run)
        self._crank.stop()
        self.node.phases.remove(self._crank)
        if not self.over:
            self.over = True
            self.node.stage.witness.work_ends(self, ending.kind)
            self._done(self.call, ending)
        return 0.0

    def stop(self, reason: str, *, lease_lost: bool) -> None:
        """Ask it to stop: it looks before each page."""
        self.call.run.request_stop(reason, lease_lost=lease_lost)


class SimulatedExecutor(Executor):
    """Runs every kind of function of one node."""

    def __init__(self, node: Process, done: Done) -> None:
        self._node = node
        self._done = done
        self.works: dict[tuple[int, int], Work] = {}

    def start(self, call: Call) -> None:
        """Begin an attempt."""
        kind = PhaseWork if inspect.ismethod(call.registered.function) else self._node.stage.work
        work: Work = kind(self._node, call, self._ended)
        self.works[call.run.id, call.run.token] = work
        try:
            self._node.stage.witness.work_begins(work)
            work.begin()
        except Exception:  # noqa: BLE001 - the node would take a mistake of the simulation for one of the job's
            self._node.stage.witness.broken("simulation", traceback.format_exc())

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Ask an attempt to stop."""
        work = self.works.get((call.run.id, call.run.token))
        if work is not None:
            work.stop(reason, lease_lost=lease_lost)

    def _ended(self, call: Call, ending: Ending) -> None:
        self.works.pop((call.run.id, call.run.token), None)
        self._done(call, ending)

    def close(self) -> None:
        """End everything."""
        self.die()

    def die(self) -> None:
        """End everything, as it ends with its process."""
        for work in self.works.values():
            work.over = True
            self._node.stage.witness.work_dies(work)
        self.works.clear()
