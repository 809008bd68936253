"""Virtual time: it stands still until a test moves it, with a single queue of actions for all nodes of the test.

::

    Agenda.call_at ──▶ heap of (time, order, action) ──▶ run_next: move the clock there, call the action
         ▲                                                    │
         └──────── Crank: turn, and again after so long ◀─────┘

A ``Crank`` replaces a node's thread: it uses the agenda instead of events and sleeps. So a test of many nodes has a
single thread and a fixed order, and each run of it is the same.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

SECOND = 1_000_000
"""Time is counted in whole microseconds: no sum of floats differs between two machines."""
SHORTEST_TURN = 100
"""Microseconds that a turn takes at least, so that no crank can turn for ever in one moment."""
FAR = 10 * 366 * 86400.0
"""Seconds of a sleep that only a wake-up should end."""


class Process(Protocol):
    """The process that an action belongs to.

    Attributes:
        gone: its actions do not run any more.
        stands_until: its actions wait until this time, in microseconds of the clock.
    """

    gone: bool
    stands_until: int


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime) -> None:
        """Show ``start``, which is aware."""
        self.micros = 0
        """Microseconds since the start."""
        self._start = self._now = start

    def now(self) -> datetime:
        """Return the time that it shows."""
        return self._now

    def monotonic(self) -> float:
        """Return the same in seconds since a time before the start."""
        return 1000.0 + self.micros / SECOND

    def advance_to(self, micros: int) -> None:
        """Show a later time, in microseconds since the start."""
        if micros > self.micros:
            self.micros = micros
            self._now = self._start + timedelta(microseconds=micros)

    def micros_of(self, instant: datetime) -> int:
        """Return when it shows ``instant``."""
        return (instant - self._start) // timedelta(microseconds=1)


class SkewedClock:
    """The clock of a node whose host is wrong about the time of day."""

    def __init__(self, clock: VirtualClock) -> None:
        """Be right, until ``skew`` is set."""
        self._clock = clock
        self.skew = timedelta(0)

    def now(self) -> datetime:
        """Return the wrong time."""
        return self._clock.now() + self.skew

    def monotonic(self) -> float:
        """Return the monotonic time, which is right on every node."""
        return self._clock.monotonic()


class Agenda:
    """The actions to come, in order of time, and at equal times in the order of their calls."""

    def __init__(self, clock: VirtualClock) -> None:
        """Start empty; ``run_next`` moves ``clock``."""
        self.clock = clock
        self.happened = 0
        """How many actions were run so far."""
        self._heap: list[tuple[int, int, Callable[[], None], Process]] = []
        self._order = itertools.count()

    def call_at(self, micros: int, action: Callable[[], None], process: Process) -> None:
        """Call ``action`` at a time, or now if that is past, unless its process is gone."""
        heapq.heappush(self._heap, (max(micros, self.clock.micros), next(self._order), action, process))

    def call_in(self, seconds: float, action: Callable[[], None], process: Process) -> None:
        """Call ``action`` in so many seconds."""
        self.call_at(self.clock.micros + int(seconds * SECOND) + 1, action, process)

    def run_next(self, until: int) -> bool:
        """Run the next action up to a time; without one, move the clock there and return ``False``."""
        while self._heap and self._heap[0][0] <= until:
            micros, _, action, process = heapq.heappop(self._heap)
            if process.gone:
                continue
            if process.stands_until > micros:
                self.call_at(process.stands_until, action, process)
                continue
            self.clock.advance_to(micros)
            self.happened += 1
            action()
            return True
        self.clock.advance_to(until)
        return False


class Crank:
    """Calls ``turn`` again and again: after the seconds that it returns, or sooner when woken."""

    def __init__(self, agenda: Agenda, process: Process, turn: Callable[[], float], soonest: float = 0.0) -> None:
        """Make a crank that sleeps no shorter than ``soonest`` between two turns, if it is not woken."""
        self._agenda = agenda
        self._process = process
        self._turn = turn
        self._soonest = soonest
        self._planned = 0
        self._turning = self._woken = False

    def wake(self) -> None:
        """Turn now, or again after the present turn."""
        if self._turning:
            self._woken = True
        else:
            self._plan(0)

    set = wake
    """Replaces the event that a node's rounds wait for: setting it wakes the crank."""

    def _plan(self, micros: int) -> None:
        self._planned += 1
        number = self._planned
        self._agenda.call_at(self._agenda.clock.micros + micros, lambda: self._run_call(number), self._process)

    def _run_call(self, number: int) -> None:
        if number != self._planned or self._turning:
            return
        self._turning, self._woken = True, False
        try:
            wait = self._turn()
        finally:
            self._turning = False
        if self._woken:
            self._plan(SHORTEST_TURN)
        elif wait < FAR:
            self._plan(max(SHORTEST_TURN, int(max(wait, self._soonest) * SECOND) + 1))


class Deadlines:
    """Replaces a node's ``Timer``."""

    closed = False

    def __init__(self, agenda: Agenda, process: Process) -> None:
        self._agenda = agenda
        self._process = process

    def call_after(self, seconds: float, action: Callable[[], None]) -> Deadline:
        """Call ``action`` in so many seconds, unless it is cancelled before."""
        deadline = Deadline(action)
        if seconds < FAR:
            self._agenda.call_in(seconds, deadline.call_back, self._process)
        return deadline

    def close(self) -> None:
        """Do nothing: actions of a process that is gone are not called."""


class Deadline:
    """An action that is run once, at its time."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel it."""
        self._action = None

    def call_back(self) -> None:
        """Run it."""
        action, self._action = self._action, None
        if action is not None:
            action()
