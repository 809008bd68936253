"""The store's clock: read every so often, and in between advanced by this machine's monotonic clock.

Machines' clocks differ. A beat whose clock is ahead would send each task too early, before all others, so beats go by
the store's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from cronsensus.timing.clock import Clock, SystemClock

READ_EVERY = 60.0
"""Seconds between two readings: quartz clocks drift apart by some milliseconds in this time."""


class StoreClock:
    """Tells the store's time without asking it each time; the machine's own until it was read once."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Read nothing yet; ``clock`` is the machine's."""
        self._clock = SystemClock() if clock is None else clock
        self._read: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the present instant; never later than the store's own clock says it, but for drift."""
        if self._read is None:
            return self._clock.now()
        instant, at = self._read
        return instant + timedelta(seconds=self._clock.monotonic() - at)

    def read_when_due(self, store_now: Callable[[], datetime]) -> None:
        """Read the store's clock, if the last reading is old.

        Raises:
            StoreError: the store cannot be asked; the last reading goes on.
        """
        if self._read is not None and self._clock.monotonic() - self._read[1] < READ_EVERY:
            return
        # By the time at which the answer is here, the store's clock has gone on: a little late is right, early is not.
        instant = store_now()
        self._read = (instant, self._clock.monotonic())
