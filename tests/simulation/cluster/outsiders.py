"""Programs with timers of their own: they win occurrences by name, and hold locks.

A host such as a crontab or another scheduler opens a session, calls ``acquire`` for a time that its own timer gave it,
runs what it won, and tells the store how that ended. Beside that it takes locks, some in its session's name. It lives a
rough life like a node's: it stands still, dies, or does not hear an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from cronsensus.errors import CoordinationError, LeaseLost
from cronsensus.model.acquiring import AskNamed, NotWon
from cronsensus.model.ending import Ending, EndingKind
from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim, RunError
from cronsensus.model.session import LockGrant, SessionSpec
from cronsensus.model.step import Step
from cronsensus.node.executors.base import Call
from cronsensus.node.registered import Registered
from cronsensus.retry import decide_end
from cronsensus.run import Run
from tests.simulation.cluster.clocks import SECOND, NodeClock
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.node import HOST
from tests.simulation.cluster.stage import Stage

LOCKS = ("lock a", "lock b")
KEYS = 30
"""People enqueue under the same keys."""
GRID = 5 * SECOND
"""Timers of several programs fire for the same times."""
IDLE_LEASE = timedelta(seconds=60)


class Errand:
    """One attempt that an outsider runs, as the judge sees it."""

    def __init__(self, node: Outsider, claim: Claim) -> None:
        self.node = node
        self.call = Call(claim, Run(claim), Registered(claim.spec.function, _never, "thread"))


class Outsider:
    """One such program."""

    def __init__(self, stage: Stage, judge: Judge, name: str, pid: int) -> None:
        """Make a program that is not started yet."""
        self.stage = stage
        self.name = name
        self._rng = stage.chance[f"outsider {name}"]
        self.clock = NodeClock(stage.clock, skew=timedelta(0), rate=1.0)
        self.suspended: list[Any] = []
        self.phases: list[Any] = []
        self.gone = False
        self.thaw_at = 0
        self._judge = judge
        self._pid = pid
        self._dazed = False
        self._sessions = 0
        self._session = ""
        self._errands: dict[tuple[int, int], Errand] = {}
        self._grants: list[LockGrant] = []

    # --- how it lives ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open a session, and go on from there."""
        self._sessions += 1
        self._session = f"{self._pid:04}-{self.name}-{self._sessions}"
        spec = SessionSpec(
            id=self._session,
            node=self.name,
            host=HOST,
            pid=self._pid,
            pid_started=self._pid,
            release=f"release {self.stage.release}",
            concurrency=1,
            version="simulated",
        )
        self._do("open_session", spec, lease=IDLE_LEASE)
        if self._sessions == 1:
            self._every(self.stage.scenario.lease / 4, self._renew)
            self._every(timedelta(seconds=2), self._act)

    @property
    def frozen(self) -> bool:
        """Whether it stands still, or has not looked at its session since."""
        return self._dazed

    def freeze(self, micros: int) -> None:
        """Stand still for a while."""
        self._dazed = True
        self.thaw_at = max(self.thaw_at, self.stage.clock.micros + micros)
        self.stage.trace.add(self.stage.clock.micros, self.name, "freezes", f"{micros / SECOND:g}s")

    def crash(self) -> None:
        """End without a word."""
        if self.gone:
            return
        self.gone = True
        self.stage.trace.add(self.stage.clock.micros, self.name, "crashes")
        for errand in self._errands.values():
            self.stage.witness.work_dies(errand)
        self.stage.process_gone(self._pid)

    def leave(self) -> None:
        """End in order: what still runs is cut off and goes the way of the session."""
        if self.gone:
            return
        self._look()
        for errand in list(self._errands.values()):
            self._end(errand, "returned")
        self._do("close_session", self._session)
        self.gone = True
        self.stage.trace.add(self.stage.clock.micros, self.name, "exits")

    def later(self, micros: int, action: Callable[[], None]) -> None:
        """Do something after a while: later when it stands still then, never when it is gone."""
        self.stage.at(self.stage.clock.micros + micros, action, self)

    def _every(self, while_: timedelta, act: Callable[[], None]) -> None:
        def go() -> None:
            # Nothing tells a program that it stood still: now and then it acts before it asks.
            if act != self._act or self._rng.random() < 0.5:
                self._look()
            act()
            self.later(int(while_.total_seconds() * SECOND * self._rng.uniform(0.5, 1)), go)

        self.later(1000, go)

    # --- its session -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """After it stood still: is the session still there?"""
        if self._dazed and self.stage.clock.micros >= self.thaw_at:
            self._dazed = False
            self._renew()

    def _renew(self) -> None:
        renewal = self._do("renew", self._session, lease=self.stage.scenario.lease, idle_lease=IDLE_LEASE)
        if not renewal.alive:
            self._lost()
        for errand in list(self._errands.values()):
            if errand.call.run.id in renewal.cancel:
                errand.call.run.request_stop(renewal.cancel[errand.call.run.id])

    def _lost(self) -> None:
        for errand in self._errands.values():
            errand.call.run.request_stop("lease lost", lease_lost=True)
        self.begin()

    # --- what it does ------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        act = self._rng.choice([self._acquire, self._acquire, self._lock, self._extend, self._unlock])
        try:
            act()
        except LeaseLost:
            self._lost()
        except CoordinationError as error:
            self.stage.trace.add(self.stage.clock.micros, self.name, "refused", str(error))
        self.stage.hint_all(self.name)

    def _acquire(self) -> None:
        rng = self._rng
        if len(self._errands) >= 2 or self.stage.calm:
            return
        job = rng.choice(self.stage.scenario.names)
        book = self._judge.jobs.get(job)
        ask = AskNamed(job, key=f"key {rng.randint(0, KEYS)}")
        if book is not None and book.kept_elsewhere and rng.random() < 0.7:
            times = list(self._timer(book.eras[-1][0]))
            if times:
                ask = AskNamed(job, scheduled_for=rng.choice(times))
        [[claim]] = self._do("acquire", self._session, [ask], lease=self.stage.scenario.lease)
        if isinstance(claim, NotWon):
            return
        if rng.random() < 0.1:
            self.stage.trace.add(self.stage.clock.micros, self.name, "hears no answer")
            self.crash()
            return
        errand = Errand(self, claim)
        self._errands[claim.id, claim.token] = errand
        self.stage.witness.work_begins(errand)
        kind: EndingKind = rng.choice(["returned", "returned", "raised"])
        self.later(int(rng.uniform(0.1, 15) * SECOND), lambda: self._end(errand, kind))

    def _timer(self, after: Any) -> Iterator[Any]:
        """Give the times near now that its timer knows, and that lie after ``after``."""
        now = self.stage.clock.now()
        whole = now.replace(microsecond=0)
        first = whole - timedelta(seconds=whole.second % (GRID // SECOND))
        for step in range(-2, 2):
            time = first + step * timedelta(microseconds=GRID)
            if time > after:
                yield time

    def _end(self, errand: Errand, kind: EndingKind) -> None:
        self._look()
        claim = errand.call.claim
        if self._errands.pop((claim.id, claim.token), None) is None:
            return
        run = errand.call.run
        if run.cancelled.is_set():
            kind = "cancelled"
        self.stage.witness.work_ends(errand, kind)
        error = RunError(type="Simulated", message=kind) if kind == "raised" else None
        reason = run.cancel_reason if kind == "cancelled" else None
        outcome = decide_end(claim, Ending(kind=kind, error=error, reason=reason))
        if run.lease_lost.is_set():
            return  # it knows that nobody wants to hear it
        self._tell(outcome)

    def _tell(self, outcome: End) -> None:
        step = Step(ends=(outcome,))
        self._do("step", self._session, step)
        if self._rng.random() < 0.2:
            self.later(SECOND, lambda: self._do("step", self._session, step))  # the answer was lost

    # --- locks -------------------------------------------------------------------------------------------------------

    def _lock(self) -> None:
        rng = self._rng
        ttl = timedelta(seconds=rng.choice([2, 8, 30]))
        session = self._session if rng.random() < 0.6 else None
        grant = self._do("lock", rng.choice(LOCKS), self.name, ttl=ttl, session=session)
        if grant is not None:
            self._grants.append(grant)

    def _extend(self) -> None:
        if self._grants:
            self._do("extend", self._rng.choice(self._grants), ttl=timedelta(seconds=8))

    def _unlock(self) -> None:
        if self._grants:
            grant = self._rng.choice(self._grants)
            self._do("unlock", grant)
            if self._rng.random() < 0.5:
                self._grants.remove(grant)

    def _do(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return self.stage.commit(self.name, verb, args, kwargs)


def _never() -> None:
    raise AssertionError("simulated work is not called")
