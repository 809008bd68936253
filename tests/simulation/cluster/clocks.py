"""Virtual time: one true time, the store's clock upon it, and the nodes' clocks beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = 1_000_000
"""True time is counted in whole microseconds, so that no sum of floats can differ between two machines."""


class StoreClock:
    """True time, and the wall clock that the store reads: it may be set ahead or back."""

    def __init__(self) -> None:
        self.micros = 0
        self._set_by = 0
        self._now = START

    def now(self) -> datetime:
        """Return the store's wall clock."""
        return self._now

    def monotonic(self) -> float:
        """Return true time in seconds."""
        return 1000.0 + self.micros / SECOND

    def advance_to(self, micros: int) -> None:
        """Let time pass."""
        self.micros = micros
        self._now = START + timedelta(microseconds=micros + self._set_by)

    def step(self, micros: int) -> None:
        """Set the wall clock ahead or back; no time passes."""
        self._set_by += micros
        self.advance_to(self.micros)


class NodeClock:
    """A node's clocks: a wall clock that is wrong, and a monotonic one that runs a little fast or slow."""

    def __init__(self, true: StoreClock, *, skew: timedelta, rate: float) -> None:
        """Make a clock that shows ``skew`` more than the store's, and counts ``rate`` seconds in a second."""
        self._true = true
        self.skew = skew
        self.rate = rate

    def now(self) -> datetime:
        """Return the node's wall clock."""
        return self._true.now() + self.skew

    def monotonic(self) -> float:
        """Return the node's monotonic clock."""
        return 5000.0 + self._true.micros * self.rate / SECOND

    def micros(self, seconds: float) -> int:
        """Return the true microseconds in which this clock counts ``seconds``, rounded up."""
        return int(seconds * SECOND / self.rate) + 1
