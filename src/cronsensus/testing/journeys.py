"""How a test moves time: due actions on the way run in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, cast

from cronsensus.run import current_run
from cronsensus.testing.borrowed_loop import BorrowedLoop
from cronsensus.testing.hand_executor import Died
from cronsensus.testing.virtual_time import SECOND
from cronsensus.timing.durations import Duration, parse_duration

if TYPE_CHECKING:
    from cronsensus.node.run import BaseRun
    from cronsensus.testing.stage import AttemptRecord, HandTurned, Stage
    from cronsensus.testing.virtual_time import Agenda, VirtualClock

MOST_ASLEEP = 50
"""Jobs that may sleep below each other on the test's thread."""
LINGER = SECOND // 10
"""Microseconds that time goes on at most, after each attempt, until what is due at the end of a journey has ended."""
LONGEST_WAIT = 366 * 86400.0
"""Seconds of virtual time that a coroutine may wait for something that never comes."""


class Journeys:
    """The time of a kit.

    Attributes:
        task_loop: the loop of an async test while it travels: async jobs are its tasks.
    """

    clock: VirtualClock
    agenda: Agenda
    task_loop: BorrowedLoop | None = None
    _borrowed: BorrowedLoop | None = None
    _depth = 0
    _fatal: BaseException | None = None
    _records: list[AttemptRecord]
    _under_way: dict[int, tuple[HandTurned, BaseRun]]
    _asleep: list[tuple[int, str]]

    if TYPE_CHECKING:

        @property
        def zone(self) -> Any:
            """The zone of times that belong to no job."""

        def read_instant(self, time: datetime | str, job: Any = None) -> datetime:
            """Return the instant of a test's time."""
            raise NotImplementedError

        def _is_busy(self) -> bool: ...

        def _begin_journey(self) -> None: ...

    @property
    def now(self) -> datetime:
        """The time at which the kit stands, in ``tz``."""
        return self.clock.now().astimezone(self.zone)

    def travel(self, by: Duration | None = None, *, to: datetime | str | None = None) -> list[AttemptRecord]:
        """Move time, and run due actions on the way in order; return the attempts that began.

        Runs that are due at the end are run to their end, too.

        Args:
            by: how far: ``"36h"``, a ``timedelta``, or seconds.
            to: until when: aware, or text, which without an offset is of ``tz``.

        Raises:
            AssertionError: a job enqueues itself without end; or jobs that slept at once woke too late, because all of
                them sleep on one thread.
        """
        __tracebackhide__ = True
        until, before = self._read_destination(by, to), len(self._records)
        with self._turning():
            while self._turn_next(until):
                pass
            begun, until = len(self._records), self.clock.micros + LINGER
            while self._is_busy() and self._turn_next(until):
                if len(self._records) > begun:
                    begun, until = len(self._records), self.clock.micros + LINGER
        return self._records[before:]

    async def atravel(self, by: Duration | None = None, *, to: datetime | str | None = None) -> list[AttemptRecord]:
        """Do what ``travel`` does, with async jobs as tasks of the test's own event loop.

        So they may use the test's objects there: locks, a pool of connections. Time stands still while a job waits for
        a socket or a thread. A job that still sleeps at the end goes on in the next ``atravel``. If the loop is not
        asyncio's own (uvloop), they run on the kit's loop, as in ``travel``.

        Raises:
            AssertionError: as ``travel``.
        """
        __tracebackhide__ = True
        until, before = self._read_destination(by, to), len(self._records)
        loop = self._borrow_loop()
        if loop is None:
            return self.travel(by, to=to)
        with self._turning(loop):
            while await self._aturn_next(loop, until):
                pass
            begun, until = len(self._records), self.clock.micros + LINGER
            while self._is_busy() and await self._aturn_next(loop, until):
                if len(self._records) > begun:
                    begun, until = len(self._records), self.clock.micros + LINGER
        return self._records[before:]

    def run_due(self) -> list[AttemptRecord]:
        """Run all that is due now, and all that becomes due by that; return the attempts that began."""
        __tracebackhide__ = True
        return self.travel(0)

    async def arun_due(self) -> list[AttemptRecord]:
        """Do what ``run_due`` does, with async jobs as tasks of the test's own event loop."""
        __tracebackhide__ = True
        return await self.atravel(0)

    def _read_destination(self, by: Duration | None, to: datetime | str | None) -> int:
        """Return when to arrive, in microseconds of the clock."""
        __tracebackhide__ = True
        if (by is None) == (to is None):
            raise TypeError('travel("36h"), or travel(to="2027-03-29 00:00")')
        if current_run() is not None or self._depth:
            raise AssertionError("travel() in a job, or twice at once: the job is called by a travel; let it sleep")
        if isinstance(by, str) and by.count("-") > 1:
            raise TypeError(f"travel({by!r}): that is a time and no duration; write travel(to={by!r})")
        if to is not None:
            until = self.clock.micros_of(self.read_instant(to))
        else:
            until = self.clock.micros + (round(parse_duration(by, what="by").total_seconds() * SECOND) if by else 0)
        if until < self.clock.micros:
            raise AssertionError(f"{to} is before {self.now}: time only moves forward")
        self._begin_journey()
        return until

    # --- what happens next --------------------------------------------------------------------------------------------

    @contextmanager
    def _turning(self, loop: BorrowedLoop | None = None) -> Iterator[None]:
        """Record that the agenda runs, and on which loop async jobs begin meanwhile."""
        self._depth, before, self.task_loop = self._depth + 1, self.task_loop, loop
        try:
            if self._depth > MOST_ASLEEP:
                self.fail(
                    f"{MOST_ASLEEP} jobs sleep at once, which is too many for one thread; travel in shorter steps"
                )
            yield
        finally:
            self._depth, self.task_loop = self._depth - 1, before

    def _turn_next(self, until: int) -> bool:
        __tracebackhide__ = True
        happened = self.agenda.run_next(until)
        self._raise_fatal()
        return happened

    async def _aturn_next(self, loop: BorrowedLoop, until: int) -> bool:
        __tracebackhide__ = True
        await loop.settle()
        self._raise_fatal()
        return self._turn_next(until)

    def _borrow_loop(self) -> BorrowedLoop | None:
        running = asyncio.get_running_loop()
        if self._borrowed is None or self._borrowed.loop is not running:
            self._give_loop_back()
            if BorrowedLoop.can_borrow(running):
                self._borrowed = BorrowedLoop(cast("Stage", self), running)
        return self._borrowed

    def _give_loop_back(self) -> None:
        if self._borrowed is not None:
            self._borrowed.give_back()
            self._borrowed = None

    def pass_below(self, seconds: float | None) -> None:
        """Let an idle job wait for the next action of the agenda, at most so long."""
        process, run = self._under_way[id(current_run())]
        until = self.clock.micros + round((LONGEST_WAIT if seconds is None else seconds) * SECOND) + 1
        with self._turning(self.task_loop):
            happened = self._turn_next(until)
        if process.gone:
            raise Died
        if seconds is None and not happened:
            self.fail(f"{run.job!r} waits for something that nothing brings")

    def sleep(self, seconds: float) -> None:
        """Let the calling job sleep; due actions run meanwhile."""
        process, run = self._under_way[id(current_run())]
        until = self.clock.micros + round(seconds * SECOND)
        self._asleep.append((until, run.job))
        try:
            with self._turning(self.task_loop):
                while self._turn_next(until):
                    pass
        finally:
            self._asleep.pop()
        if process.gone:
            raise Died
        if (late := self.clock.micros - until) > SECOND:
            self.fail(
                f"{run.job!r} slept for {seconds:g} s and woke {late // SECOND} s too late: another job slept at "
                "the same time, and both do so on the test's thread; give them other times in this test"
            )

    def pass_time(self, seconds: float) -> None:
        """Run the next action within so many seconds, or else let them pass: a caller waits for a run."""
        if self._find_caller() is not None:
            self.pass_below(seconds)
            return
        with self._turning():
            self._turn_next(self.clock.micros + round(seconds * SECOND))

    def pass_while_blocked(self, seconds: float, what: str) -> None:
        """Run the next action, within so long, for a caller that waits for ``what``, which another process has.

        If its holder sleeps below on this thread, it never wakes: that fails the test.
        """
        for until, job in self._asleep:
            if self.clock.micros - until > SECOND:
                self.fail(
                    f"{what} is waited for on the test's thread, below {job!r}, which sleeps there, should have gone "
                    "on by now and cannot; give them other times in this test, or make them async and await atravel()"
                )
        self.pass_time(seconds)

    async def apass_time(self, seconds: float) -> None:
        """Run the next action within so many seconds, or else let them pass: an async caller waits for a run."""
        running = asyncio.get_running_loop()
        if current_run() is not None and self._borrowed is not None and running is self._borrowed.loop:
            await asyncio.sleep(seconds)  # virtual: a job asks
            return
        loop = None if current_run() is not None or self._depth else self._borrow_loop()
        if loop is None:
            self.pass_time(seconds)
            return
        with self._turning(loop):
            await self._aturn_next(loop, self.clock.micros + round(seconds * SECOND))
            await loop.settle()
        self._raise_fatal()

    def _find_caller(self) -> HandTurned | None:
        """Return the process of the job or guarded call that calls this."""
        process = self._under_way.get(id(current_run()))
        return None if process is None else process[0]

    @property
    def is_turning(self) -> bool:
        """Whether an action of the agenda runs, and not the test itself."""
        return self._depth > 0

    def fail(self, why: str) -> NoReturn:
        """End the journey and fail the test, even if jobs catch the exception."""
        self._fatal = AssertionError(why)
        raise self._fatal

    def _raise_fatal(self) -> None:
        __tracebackhide__ = True
        if self._fatal is not None:
            if self._depth <= 1:
                fatal, self._fatal = self._fatal, None
                raise fatal
            raise self._fatal
