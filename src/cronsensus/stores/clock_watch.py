"""Detect that a store's clock was set back, and which of its instants came twice.

Every record has the time of the store's clock. If that clock was set back, a later record may have an earlier time, and
no reader can see that. So a handle compares the clock with one that never steps. If the two moved apart, it records in
the trail which stretch of time may have come twice (action ``CLOCK_SET_BACK``), in the transaction of the next verb
that writes. The audit does not judge by the order of two times within that stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cronsensus.timing.durations import format_duration
from cronsensus.timing.instants import format_instant, from_micros

BY_ITSELF = "the store"
"""The name under which the trail records that the clock was set back."""
SLACK = 1_000
"""Microseconds by which two clocks may disagree about a duration, and …"""
DRIFT = 1_000
"""… one microsecond more for so many: they run on different crystals."""
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
class Looked:
    """A reading of the store's clock (microseconds), and the seconds of a steady clock between which it was taken."""

    now: int
    after: float
    before: float


class ClockWatch:
    """Compares readings of a store's clock with a clock that never steps. One for each handle."""

    def __init__(self) -> None:
        self._last: Looked | None = None

    def compare_reading(self, look: Looked) -> SetBack | None:
        """Return how the clock was set back since the last kept reading; ``None``: it was not."""
        last = self._last
        if last is None or look.before < last.after:
            return None
        passed = round((look.before - last.after) * 1_000_000)
        back = round((look.after - last.before) * 1_000_000) - (look.now - last.now)
        if back <= SLACK + passed // DRIFT:
            return None
        # It happened between the two readings: at most this long after the last, and this long before this one.
        return SetBack(since=look.now - passed, until=last.now + passed, by=back)

    def keep_reading(self, look: Looked) -> None:
        """Compare with this reading from now on: everything before it has been recorded."""
        self._last = look
