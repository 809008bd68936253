"""Find the instants at which a wall clock matches, also where clocks are put forward or back.

Where the clock jumps forward, wall-clock times are missing (a gap); where it is put back, they come twice (a fold: a
first and a second pass). ``gaps`` and ``second_pass`` say what a policy does there; ``cron.py`` has the table.

cronsim handles time zones, too. But if it starts in a second pass, it returns a time in the past, and if a clock moves
by half an hour, it leaves times out. So it only parses the text, and times are searched here. Everything rests on PEP
495: the UTC offset of a wall-clock time with ``fold=0`` is larger than with ``fold=1`` inside a fold, and smaller
inside a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsensus.triggers.wall import WallClock

_SECOND = timedelta(seconds=1)
_LONGEST_FOLD = timedelta(days=1)
_PROBE = timedelta(days=3)
"""The distance between two reads of the UTC offset: no zone has ever changed twice in less than four days."""
_ZERO = timedelta(0)
_LAST_LISTED_YEAR = 2100
"""Time zone data lists changes one by one up to here at most (Morocco's up to 2087); after it yearly rules repeat."""
_CYCLE = 400
"""Years after which dates and weekdays, and so yearly rules, repeat. A time that has not come by then never comes."""


@dataclass(frozen=True, slots=True)
class ZonedClock:
    """Find and count the instants at which the wall clock of a zone matches."""

    wall: WallClock
    zone: tzinfo
    gaps: bool
    """Whether matches inside a gap run, once, at the end of the gap."""
    second_pass: bool
    """Whether matches in the second pass of a fold run."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first match after ``instant``, which is in UTC and within the calendar."""
        if self.zone is UTC:
            found = self.wall.at_or_after(instant.replace(microsecond=0, tzinfo=None) + _SECOND)
            return None if found is None else found.replace(tzinfo=UTC)
        local = instant.replace(microsecond=0).astimezone(self.zone)
        here = local.replace(tzinfo=None, fold=0)
        first, second = _offset(local.replace(fold=0)), _offset(local.replace(fold=1))
        # From the second after, by the old offset: just before the end of a gap this looks into the gap, as it must.
        start = here + _SECOND
        if first > second:
            change = self._change(_instant(here, first), _instant(here, second))
            found = self._in_fold(start, change, first, second, is_second=bool(local.fold))
            if found is not None:
                return found
            start = max(start, _wall_time(change, first))
        return self._forward(start)

    def _in_fold(
        self, start: datetime, change: datetime, first: timedelta, second: timedelta, *, is_second: bool
    ) -> datetime | None:
        """Return the first match from ``start`` on in the rest of a fold around ``change``."""
        end = _wall_time(change, first)
        if not is_second:
            found = self.wall.at_or_after(start)
            if found is not None and found < end:
                return _instant(found, first)
            start = _wall_time(change, second)
        found = self.wall.at_or_after(start) if self.second_pass else None
        return _instant(found, second) if found is not None and found < end else None

    def _forward(self, start: datetime) -> datetime | None:
        """Return the first match from the wall-clock time ``start`` on, which is not inside a fold already begun."""
        last_year = max(start.year, _LAST_LISTED_YEAR) + _CYCLE
        while True:
            found = self.wall.at_or_after(start)
            if found is None or found.year > last_year:
                return None
            first, second = _offset(found.replace(tzinfo=self.zone)), _offset(found.replace(tzinfo=self.zone, fold=1))
            if first >= second:
                return _instant(found, first)
            change = self._change(_instant(found, second), _instant(found, first))
            if self.gaps:
                return change
            start = _wall_time(change, second)

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many matches lie in (after, until]: in steps of days, not of matches."""
        start, stop = _next_second(after), _next_second(until)
        if self.zone is UTC:
            return self.wall.count(start.replace(tzinfo=None), stop.replace(tzinfo=None))
        total = 0
        position = stretch = start - 2 * _LONGEST_FOLD  # early enough for a fold that ``start`` may lie in
        offset = self._offset_at(position)
        seen = _wall_time(position, offset)  # earlier times have had their first pass
        while position < stop:
            probe = min(position + _PROBE, stop)
            if self._offset_at(probe) == offset:
                position = probe
                continue
            change = self._change(position, probe)
            total += self._count_stretch(max(stretch, start), change, offset, seen)
            old_end, offset = _wall_time(change, offset), self._offset_at(change)
            new_start = _wall_time(change, offset)
            if not self.second_pass:
                seen = max(seen, old_end)
            if self.gaps and start <= change < stop and self._only_gap_matches(old_end, new_start):
                total += 1
            position = stretch = change
        return total + self._count_stretch(max(stretch, start), stop, offset, seen)

    def _count_stretch(self, start: datetime, stop: datetime, offset: timedelta, seen: datetime) -> int:
        return self.wall.count(max(_wall_time(start, offset), seen), _wall_time(stop, offset))

    def _only_gap_matches(self, old_end: datetime, new_start: datetime) -> bool:
        """Return whether the end of a gap runs because of the gap, and is no match by itself."""
        return self.wall.count(old_end, new_start) > 0 and self.wall.count(new_start, new_start + _SECOND) == 0

    def _offset_at(self, instant: datetime) -> timedelta:
        return _offset(instant.astimezone(self.zone))

    def _change(self, low: datetime, high: datetime) -> datetime:
        """Return the second in (low, high] at which the UTC offset becomes that of ``high``."""
        offset = self._offset_at(high)
        span = (high - low) // _SECOND
        while span > 1:
            half = span // 2
            middle = high - half * _SECOND
            if self._offset_at(middle) == offset:
                high, span = middle, span - half
            else:
                span = half
        return high


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    return _ZERO if offset is None else offset


def _wall_time(instant: datetime, offset: timedelta) -> datetime:
    return instant.replace(tzinfo=None) + offset


def _instant(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _next_second(instant: datetime) -> datetime:
    return instant.replace(microsecond=0) + _SECOND
