"""Find the wall-clock times that match a cron text, in each period: a calendar and a clock face, no time zone.

Wall-clock times are naive datetimes in whole seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, datetime

from cronsensus.triggers.bounds import FIRST, LAST
from cronsensus.triggers.fields import CronFields, month_shape
from cronsensus.triggers.period import Period

_NONE = 255


@dataclass(frozen=True, slots=True)
class WallClock:
    """Find and count matching wall-clock times."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    day_masks: tuple[int, ...]
    next_second: bytes
    """At v the smallest match that is v or more, or ``_NONE``: a table, because it is used at every firing."""
    next_minute: bytes
    next_hour: bytes
    next_month: bytes
    period: Period | None = None
    anchor: date = date.min
    """The first day of the first period."""

    @staticmethod
    def of(fields: CronFields, period: Period | None = None, anchor: date = date.min) -> WallClock:
        """Return the wall clock of ``fields``, on the days of each ``period`` from ``anchor`` on."""
        values = fields.seconds, fields.minutes, fields.hours, fields.months
        return WallClock.of_values(*values, fields.day_masks, period=period, anchor=anchor)

    @staticmethod
    def of_values(
        seconds: tuple[int, ...],
        minutes: tuple[int, ...],
        hours: tuple[int, ...],
        months: tuple[int, ...],
        day_masks: tuple[int, ...],
        *,
        period: Period | None = None,
        anchor: date = date.min,
    ) -> WallClock:
        """Return the wall clock of sorted values, and of the days in ``day_masks``: one for each ``month_shape()``."""
        return WallClock(
            seconds=seconds,
            minutes=minutes,
            hours=hours,
            day_masks=day_masks,
            next_second=_successors(seconds, 60),
            next_minute=_successors(minutes, 60),
            next_hour=_successors(hours, 24),
            next_month=_successors(months, 13),
            period=period,
            anchor=anchor,
        )

    def at_or_after(self, wall: datetime) -> datetime | None:
        """Return the first match at or after ``wall``, or None when the calendar ends."""
        year, month, day = wall.year, wall.month, wall.day
        days = self._days(year, month) >> day
        if days & 1:
            time = self._time_at_or_after(wall.hour, wall.minute, wall.second)
            if time is not None:
                return datetime(year, month, day, *time)  # noqa: DTZ001 - a wall-clock time
        days &= ~1
        while not days:
            month = self.next_month[month + 1]
            if month == _NONE:
                year, month = year + 1, self.next_month[1]
                if year > LAST.year:
                    return None
            day, days = 0, self._days(year, month)
        day += (days & -days).bit_length() - 1
        return datetime(year, month, day, self.hours[0], self.minutes[0], self.seconds[0])  # noqa: DTZ001

    def _days(self, year: int, month: int) -> int:
        if self.next_month[month] != month or not FIRST.year <= year <= LAST.year:
            return 0
        days = self.day_masks[month_shape(year, month)]
        return days if self.period is None else days & self.period.days_of(year, month, self.anchor)

    def _time_at_or_after(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        next_hour = self.next_hour[hour]
        if next_hour == hour:
            next_minute = self.next_minute[minute]
            if next_minute == minute:
                next_second = self.next_second[second]
                if next_second != _NONE:
                    return hour, minute, next_second
                next_minute = self.next_minute[minute + 1]
            if next_minute != _NONE:
                return hour, next_minute, self.seconds[0]
            next_hour = self.next_hour[hour + 1]
        if next_hour != _NONE:
            return next_hour, self.minutes[0], self.seconds[0]
        return None

    def count(self, start: datetime, stop: datetime) -> int:
        """Return how many matches lie at or after ``start`` and before ``stop``: a step per month, not per match."""
        if stop <= start:
            return 0
        a_day = len(self.hours) * len(self.minutes) * len(self.seconds)
        days = self._count_days(start.date(), stop.date())
        return a_day * days - self._count_before(start) + self._count_before(stop)

    def _count_days(self, start: date, stop: date) -> int:
        year, month, total = start.year, start.month, 0
        skipped = start.day
        while (year, month) < (stop.year, stop.month):
            total += (self._days(year, month) >> skipped).bit_count()
            skipped = 0
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        before_stop = self._days(year, month) & ((1 << stop.day) - 1)
        return total + (before_stop >> skipped).bit_count()

    def _count_before(self, wall: datetime) -> int:
        """Return how many matches lie on the day of ``wall``, before it."""
        if not self._days(wall.year, wall.month) >> wall.day & 1:
            return 0
        seconds, minutes = len(self.seconds), len(self.minutes)
        count = bisect_left(self.hours, wall.hour) * minutes * seconds
        if self.next_hour[wall.hour] == wall.hour:
            count += bisect_left(self.minutes, wall.minute) * seconds
            if self.next_minute[wall.minute] == wall.minute:
                count += bisect_left(self.seconds, wall.second)
        return count


def _successors(values: tuple[int, ...], size: int) -> bytes:
    return bytes(min((value for value in values if value >= start), default=_NONE) for start in range(size + 1))
