"""Find the instants at which a wall clock matches, also over changes to and from daylight saving time.

Where clocks are put forward, wall-clock times are missing (a gap). Where they are put back, times come twice (a fold,
with a first and a second pass). ``gaps`` and ``second_pass`` are the policy for both; ``cron.py`` has the table.

cronsim parses the text, but its own search is not used: started in a second pass, it returns a time in the past, and
if a clock moves by half an hour, it omits times. The search here relies on PEP 495: inside a fold the UTC offset of a
wall-clock time is larger with ``fold=0`` than with ``fold=1``, inside a gap it is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsensus.triggers.wall import WallClock

_SECOND = timedelta(seconds=1)
_LONGEST_FOLD = timedelta(days=1)
_PROBE_STEP = timedelta(days=3)
"""``count`` reads the UTC offset in steps of this: no zone has ever changed twice in less than four days."""
_ZERO = timedelta(0)
_LAST_LISTED_YEAR = 2100
"""Time zone data lists changes one by one up to here at most (Morocco's up to 2087); after it yearly rules repeat."""
_CALENDAR_CYCLE_YEARS = 400
"""Years after which dates and weekdays, and so yearly rules, repeat. A time that has no match by then has none."""


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
            match = self.wall.at_or_after(instant.replace(microsecond=0, tzinfo=None) + _SECOND)
            return None if match is None else match.replace(tzinfo=UTC)
        local = instant.replace(microsecond=0).astimezone(self.zone)
        wall_now = local.replace(tzinfo=None, fold=0)
        first, second = _offset(local.replace(fold=0)), _offset(local.replace(fold=1))
        # The next second by the offset before: from just before a gap, the search begins inside the gap, as it must.
        start = wall_now + _SECOND
        if first > second:
            change = self._find_change(_to_instant(wall_now, first), _to_instant(wall_now, second))
            match = self._next_in_fold(start, change, first, second, is_second=bool(local.fold))
            if match is not None:
                return match
            start = max(start, _wall_time(change, first))
        return self._next_outside_fold(start)

    def _next_in_fold(
        self, start: datetime, change: datetime, first: timedelta, second: timedelta, *, is_second: bool
    ) -> datetime | None:
        """Return the first match from ``start`` on in the rest of a fold around ``change``."""
        end = _wall_time(change, first)
        if not is_second:
            match = self.wall.at_or_after(start)
            if match is not None and match < end:
                return _to_instant(match, first)
            start = _wall_time(change, second)
        match = self.wall.at_or_after(start) if self.second_pass else None
        return _to_instant(match, second) if match is not None and match < end else None

    def _next_outside_fold(self, start: datetime) -> datetime | None:
        """Return the first match from the wall-clock time ``start`` on, which lies outside of folds."""
        last_year = max(start.year, _LAST_LISTED_YEAR) + _CALENDAR_CYCLE_YEARS
        while True:
            match = self.wall.at_or_after(start)
            if match is None or match.year > last_year:
                return None
            first, second = _offset(match.replace(tzinfo=self.zone)), _offset(match.replace(tzinfo=self.zone, fold=1))
            if first >= second:
                return _to_instant(match, first)
            change = self._find_change(_to_instant(match, second), _to_instant(match, first))
            if self.gaps:
                return change
            start = _wall_time(change, second)

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many matches lie in (after, until]. Takes time by days, not by matches."""
        start, stop = _next_second(after), _next_second(until)
        if self.zone is UTC:
            return self.wall.count(start.replace(tzinfo=None), stop.replace(tzinfo=None))
        total = 0
        position = stretch_start = start - 2 * _LONGEST_FOLD  # early enough for a fold that ``start`` may lie in
        offset = self._offset_at(position)
        counted_until = _wall_time(position, offset)  # wall-clock times before this are counted already
        while position < stop:
            probe = min(position + _PROBE_STEP, stop)
            if self._offset_at(probe) == offset:
                position = probe
                continue
            change = self._find_change(position, probe)
            total += self._count_stretch(max(stretch_start, start), change, offset, counted_until)
            old_end, offset = _wall_time(change, offset), self._offset_at(change)
            new_start = _wall_time(change, offset)
            if not self.second_pass:
                counted_until = max(counted_until, old_end)
            if self.gaps and start <= change < stop and self._gap_end_runs_alone(old_end, new_start):
                total += 1
            position = stretch_start = change
        return total + self._count_stretch(max(stretch_start, start), stop, offset, counted_until)

    def _count_stretch(self, start: datetime, stop: datetime, offset: timedelta, counted_until: datetime) -> int:
        return self.wall.count(max(_wall_time(start, offset), counted_until), _wall_time(stop, offset))

    def _gap_end_runs_alone(self, old_end: datetime, new_start: datetime) -> bool:
        """Return whether the end of a gap runs only for matches inside the gap, and does not match by itself."""
        return self.wall.count(old_end, new_start) > 0 and self.wall.count(new_start, new_start + _SECOND) == 0

    def _offset_at(self, instant: datetime) -> timedelta:
        return _offset(instant.astimezone(self.zone))

    def _find_change(self, low: datetime, high: datetime) -> datetime:
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


def _to_instant(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _next_second(instant: datetime) -> datetime:
    return instant.replace(microsecond=0) + _SECOND
