"""Clocks: the only module that reads the time.

Two readings, two uses. ``now()`` is a wall clock: it names moments and may step. ``monotonic()`` never steps: it
measures how long something took and how long to sleep. No decision about *due* or *dead* rests on a node's wall
clock; stores judge those by their own.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from cronsensus.timing.instants import from_micros


class Clock(Protocol):
    """The source of time for stores and nodes."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC, in whole microseconds."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never steps back. Shared by all processes of one host."""


class SystemClock:
    """The host's clocks."""

    def now(self) -> datetime:
        """Return the host's wall clock."""
        return from_micros(time.time_ns() // 1000)

    monotonic = staticmethod(time.monotonic)
    """The host's ``CLOCK_MONOTONIC``, which all processes of one boot share. Asked often, so without a call between."""


class ManualClock:
    """A clock that moves only when it is set or advanced; for tests and simulations. Safe to share between threads."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = start.astimezone(UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """Return the wall clock as last set."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Return the monotonic clock as last advanced."""
        with self._lock:
            return self._monotonic

    def advance(self, by: timedelta | float) -> None:
        """Advance both clocks by ``by``: seconds or a timedelta, not negative."""
        delta = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if delta < timedelta(0):
            raise ValueError("time only moves forward; use step() to set a wall clock back")
        with self._lock:
            self._now += delta
            self._monotonic += delta.total_seconds()

    def step(self, by: timedelta | float) -> None:
        """Set the wall clock ahead or back, as an operator or NTP does; no time passes."""
        delta = by if isinstance(by, timedelta) else timedelta(seconds=by)
        with self._lock:
            self._now += delta
