"""Find out that a store's clock was set back, and which of its instants came twice.

What a store writes down bears the time of its clock. Where that was set back, what came later may bear the earlier
time, and no reader can tell. So a handle compares the clock with one that never steps; where the two moved apart it
writes into the trail (action ``CLOCK_SET_BACK``) which stretch may have come twice, in the transaction of the first
verb that writes something after it. The audit leaves open what rests on the order of two times within that stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cronsensus.durations import format_duration
from cronsensus.instants import format_instant, from_micros

BY_ITSELF = "the store"
"""Who says in the trail that the clock was set back."""
SLACK = 1_000
"""Microseconds by which two clocks may disagree about how long something took …"""
DRIFT = 1_000
"""… and one in so many more: they run on different crystals."""
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

    def compare(self, look: Looked) -> SetBack | None:
        """Return what happened to the clock since the look that was kept last."""
        last = self._last
        if last is None or look.before < last.after:
            return None
        passed = round((look.before - last.after) * 1_000_000)
        back = round((look.after - last.before) * 1_000_000) - (look.now - last.now)
        if back <= SLACK + passed // DRIFT:
            return None
        # Somewhere between the two looks: at most this long after the last, and at most this long before this one.
        return SetBack(since=look.now - passed, until=last.now + passed, by=back)

    def keep(self, look: Looked) -> None:
        """Compare with this look from now on; what happened before is written down."""
        self._last = look
