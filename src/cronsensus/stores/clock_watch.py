"""Detect that a store's clock was set back, and which of its instants came twice.

The times of records are those of the store's clock. If it was set back, a later record may have an earlier time, and a
reader of the records cannot see that. So a handle compares the store's clock with the host's monotonic clock. If the
store's clock has fallen behind, the next verb that writes records in the trail which stretch of time may have come
twice (action ``CLOCK_SET_BACK``). The audit does not judge by the order of two times within that stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cronsensus.timing.durations import format_duration
from cronsensus.timing.instants import format_instant, from_micros

STORE_ACTOR = "the store"
"""The actor of entries that a store writes into the trail by itself."""
TOLERANCE = 1_000
"""Microseconds by which two clocks may disagree about a duration, however short."""
ELAPSED_PER_DRIFT = 1_000
"""For every so many elapsed microseconds they may disagree by one more: they run on different crystals."""
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SetBack:
    """A clock was set back.

    Attributes:
        since: the first instant that may have come twice, microseconds.
        until: the last one.
        by: by how many microseconds it was set back, or a little more.
    """

    since: int
    until: int
    by: int

    @property
    def why(self) -> str:
        """Return by how much, for people."""
        return f"by {format_duration(max(_MILLISECOND, timedelta(milliseconds=self.by // 1000)))}"

    @property
    def details(self) -> dict[str, str]:
        """Return the stretch, as the trail keeps it."""
        return {"from": format_instant(from_micros(self.since)), "until": format_instant(from_micros(self.until))}


@dataclass(slots=True)  # not frozen: one is made for each write, and that takes three times as long
class ClockReading:
    """A reading of a store's clock.

    Attributes:
        now: the store's clock, microseconds.
        asked_at: the monotonic clock before the reading, seconds.
        answered_at: the monotonic clock after the reading, seconds.
    """

    now: int
    asked_at: float
    answered_at: float


class ClockWatch:
    """Compares readings of a store's clock with the monotonic clock. Each handle has one."""

    def __init__(self) -> None:
        self._last: ClockReading | None = None

    def compare_reading(self, reading: ClockReading) -> SetBack | None:
        """Return how the clock was set back since the last kept reading; ``None``: it was not."""
        last = self._last
        if last is None or reading.answered_at < last.asked_at:
            return None
        elapsed = round((reading.answered_at - last.asked_at) * 1_000_000)
        set_back_by = round((reading.asked_at - last.answered_at) * 1_000_000) - (reading.now - last.now)
        if set_back_by <= TOLERANCE + elapsed // ELAPSED_PER_DRIFT:
            return None
        # It happened between the two readings: at most this long after the last, and this long before this one.
        return SetBack(since=reading.now - elapsed, until=last.now + elapsed, by=set_back_by)

    def keep_reading(self, reading: ClockReading) -> None:
        """Compare later readings with this one: a step before it has been recorded."""
        self._last = reading
