"""The trigger ``every``: nominal times at a fixed interval, in whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from cronsensus.errors import InvalidTrigger
from cronsensus.timing.durations import Duration, format_duration
from cronsensus.timing.instants import EPOCH, as_utc, from_micros, to_micros
from cronsensus.triggers.base import Trigger
from cronsensus.triggers.bounds import (
    LAST,
    bounds_in_words,
    bounds_to_json,
    midnight_of,
    names_without_zone,
    read_duration,
    read_instant_default_utc,
    read_optional_instant,
)
from cronsensus.triggers.cron_words import interval_in_words
from cronsensus.triggers.options import refuse_unknown_options

_SHORTEST = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
_LAST_MICROS = to_micros(LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Every(Trigger):
    """Give ``start``, ``start + interval``, ``start + 2 * interval``, … up to ``end``. Made by ``every``."""

    interval: timedelta
    start: datetime = EPOCH
    end: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first of them after ``instant``."""
        first, step = to_micros(self.start), self.interval // _MICROSECOND
        micros = first + max((to_micros(as_utc(instant)) - first) // step + 1, 0) * step
        return None if micros > self._end_micros() else from_micros(micros)

    def latest_until(self, instant: datetime, after: datetime) -> datetime | None:
        """Return the last of them in (after, instant]."""
        first, step = to_micros(self.start), self.interval // _MICROSECOND
        top = min(to_micros(as_utc(instant)), self._end_micros())
        micros = first + (top - first) // step * step
        if micros < first or micros <= to_micros(as_utc(after, what="after")):
            return None
        return from_micros(micros)

    def count_between(self, after: datetime, until: datetime, limit: int) -> int | None:
        """Return how many of them lie in (after, until], or None when more than ``limit``."""
        first, step = to_micros(self.start), self.interval // _MICROSECOND
        top = min(to_micros(as_utc(until, what="until")), self._end_micros())
        bottom = max(to_micros(as_utc(after, what="after")), first - 1)
        count = max((top - first) // step - (bottom - first) // step, 0)
        return None if count > limit else count

    def _end_micros(self) -> int:
        return _LAST_MICROS if self.end is None else to_micros(self.end)

    def describe(self) -> str:
        """Return the interval in words, with the anchor if one was given."""
        start = None if self.start == EPOCH else self.start
        return f"every {interval_in_words(self.interval)}{bounds_in_words(start, self.end, self.jitter)}"

    def to_json(self) -> dict[str, Any]:
        """Return the kind ``every``."""
        start = None if self.start == EPOCH else self.start
        bounds = bounds_to_json(start, self.end, self.jitter)
        return {"kind": "every", "interval": format_duration(self.interval), **bounds}


_WRITE_INSTEAD = {
    **{unit: f"every('5{unit[0]}')" for unit in ("seconds", "minutes", "hours", "days", "weeks")},
    "start_date": "start='…'",
    "end_date": "end='…'",
    "anchor": "start='…', from which it counts",
    **dict.fromkeys(
        ("timezone", "tz"),
        "cron('0 3 * * *', tz='Europe/Berlin'), and every='2 days', start='2027-01-04' there: an interval is elapsed "
        "time, alike in all zones",
    ),
}


@refuse_unknown_options(_WRITE_INSTEAD)
def every(
    interval: Duration,
    *,
    start: date | str | None = None,
    end: date | str | None = None,
    jitter: Duration = 0,
) -> Trigger:
    """Return a trigger for every ``interval``, counted from a fixed anchor.

    All nodes agree on the nominal times, before and after any restart, because they are ``start + k * interval`` for
    k = 0, 1, 2, … and depend on nothing else. An interval is elapsed time: ``every("1d")`` stays at one time in UTC
    and moves on the wall clock with daylight saving; for a time of the day write ``cron``, which has ``every=``, too.

    Example:
        >>> every("5m").describe()
        'every 5 minutes'

    Args:
        interval: one millisecond or more.
        start: the anchor and first nominal time. Defaults to 1970-01-01T00:00:00Z. Text without an offset, here and in
            ``end``, is of the ``tz`` of the scheduler that gets the trigger; a date is its midnight.
        end: the last moment that may be a nominal time, itself included.
        jitter: a run may be started up to this much later than its nominal time.

    Raises:
        InvalidTrigger: something cannot be read, or ``end`` is before ``start``.
    """
    start, end = midnight_of(start), midnight_of(end)
    step = read_duration(interval, "interval")
    if step < _SHORTEST:
        raise InvalidTrigger(f"interval={interval!r} is too short; write 1 millisecond ('1ms') or more")
    anchor = EPOCH if start is None else read_instant_default_utc(start, "start")
    last = read_optional_instant(end, "end")
    if last is not None and last < anchor:
        raise InvalidTrigger(f"end={end!s} is before start={anchor.isoformat()}, so it never fires; write a later end")
    return Every(
        interval=step,
        start=anchor,
        end=last,
        jitter=read_duration(jitter, "jitter"),
        walls=names_without_zone(start=start, end=end),
    )
