"""Time that stands until a test moves it, and what is to happen then: one queue for all nodes of a test.

::

    Agenda.call_at ──▶ heap of (time, order, action) ──▶ run_next: move the clock there, call the action
         ▲                                                    │
         └──────── Crank: turn, and again after so long ◀─────┘

What a thread of a node does with an event and a sleep, a ``Crank`` does with the agenda. So a test of many nodes has
one thread and one order, and each run of it is the same.
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
"""Seconds of a sleep that only a wake-up ends."""


class Process(Protocol):
    """What an action belongs to.

    Attributes:
        gone: nothing of it happens any more.
        stands_until: what is due before, in microseconds of the clock, happens only then.
    """

    gone: bool
    stands_until: int


class VirtualClock:
    """A clock that stands until it is moved."""

    def __init__(self, start: datetime) -> None:
        """Show ``start``, which is aware."""
        self.micros = 0
        """Since the start."""
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
        """Return what every clock agrees on: how much time has passed."""
        return self._clock.monotonic()


class Agenda:
    """What is to happen, in order of time, and among equal times in the order in which it was asked for."""

    def __init__(self, clock: VirtualClock) -> None:
        """Have nothing to do; ``run_next`` moves ``clock``."""
        self.clock = clock
        self.happened = 0
        """How many things were done so far."""
        self._heap: list[tuple[int, int, Callable[[], None], Process]] = []
        self._order = itertools.count()

    def call_at(self, micros: int, action: Callable[[], None], process: Process) -> None:
        """Call ``action`` then, or now if that is past, unless its process is gone."""
        heapq.heappush(self._heap, (max(micros, self.clock.micros), next(self._order), action, process))

    def call_in(self, seconds: float, action: Callable[[], None], process: Process) -> None:
        """Call ``action`` in so many seconds."""
        self.call_at(self.clock.micros + int(seconds * SECOND) + 1, action, process)

    def run_next(self, until: int) -> bool:
        """Do the next thing until then, at its time; else let it be then, and return ``False``."""
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
    """Turns ``turn``, which returns the seconds until it wants to be turned again, and sooner when woken."""

    def __init__(self, agenda: Agenda, process: Process, turn: Callable[[], float], soonest: float = 0.0) -> None:
        """Make a crank that sleeps no shorter than ``soonest`` between two turns, if it is not woken."""
        self._agenda = agenda
        self._process = process
        self._turn = turn
        self._soonest = soonest
        self._planned = 0
        self._turning = self._woken = False

    def wake(self) -> None:
        """Turn now, or again when the turn under way is over."""
        if self._turning:
            self._woken = True
        else:
            self._plan(0)

    set = wake
    """A node's rounds wait for an event; that is set where this is woken."""

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
    """Stands where a node has its ``Timer``."""

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
        """Do nothing: what belongs to a process that is gone is not called."""


class Deadline:
    """Something that is to be done at its time, once."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do it not."""
        self._action = None

    def call_back(self) -> None:
        """Do it."""
        action, self._action = self._action, None
        if action is not None:
            action()
