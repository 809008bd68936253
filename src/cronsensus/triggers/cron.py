"""The trigger ``cron``: nominal times by wall clock and calendar."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

from cronsensus.errors import InvalidTrigger
from cronsensus.timing.durations import Duration
from cronsensus.timing.instants import as_utc, format_instant
from cronsensus.triggers.base import Trigger
from cronsensus.triggers.bounds import (
    FIRST,
    LAST,
    bounds_in_words,
    bounds_to_json,
    midnight_of,
    names_without_zone,
    quoted,
    read_duration,
    read_optional_instant,
)
from cronsensus.triggers.cron_words import cron_in_words
from cronsensus.triggers.dst import ZonedClock
from cronsensus.triggers.fields import read_cron
from cronsensus.triggers.options import refuse_unknown_options
from cronsensus.triggers.period import Period, read_period
from cronsensus.triggers.wall import WallClock
from cronsensus.triggers.zones import load_zone, zone_name

Dst = Literal["cron", "both", "skip"]

_DST_IN_WORDS = {
    "cron": "",
    "both": ", twice where clocks go back over it",
    "skip": ", not where clocks jump over it",
}
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_FEW = 100
_DAYS_FOR_ONE = 30
"""Counting by arithmetic costs as much for so many days as finding one nominal time does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(Trigger):
    """Give the times that match a cron text in a time zone. Made by ``cron``, which checks and normalizes."""

    expression: str
    tz: str = "UTC"
    names_zone: bool = field(default=True, repr=False, compare=False)
    """Whether ``tz`` was said, and is not only the default that a scheduler may change."""
    dst: Dst = "cron"
    start: datetime | None = None
    end: datetime | None = None
    every: Period | None = None
    """Only in each such period, counted from the local date of ``start``."""
    typed: str = field(default="", repr=False, compare=False)
    """The text before it was normalized, which another program may take for other times; empty of a stored trigger."""
    _clock: ZonedClock = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        anchor = date.min
        if self.every is not None and self.start is not None:
            anchor = self.start.astimezone(load_zone(self.tz)).date()
        object.__setattr__(self, "_clock", _clock_for(self.expression, self.tz, self.dst, self.every, anchor))

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first match after ``instant``, from ``start`` to ``end``."""
        position = max(as_utc(instant), FIRST - _SECOND)
        if self.start is not None and position < self.start:
            position = self.start - _MICROSECOND
        last = LAST if self.end is None else self.end
        if position >= last:
            return None
        match = self._clock.next_after(position)
        return None if match is None or match > last else match

    def count_between(self, after: datetime, until: datetime, limit: int) -> int | None:
        """Return how many matches lie in (after, until], or None when more than ``limit``."""
        bottom, top = as_utc(after, what="after"), as_utc(until, what="until")
        bottom = max(bottom, FIRST - _SECOND if self.start is None else self.start - _MICROSECOND)
        top = min(top, LAST if self.end is None else self.end)
        if limit < max(_FEW, (top - bottom).days // _DAYS_FOR_ONE):
            return super(Cron, self).count_between(bottom, top, limit)
        count = self._clock.count(bottom, top) if bottom < top else 0
        return None if count > limit else count

    def in_zone(self, zone: str) -> Trigger:
        """Return itself if it names a zone, else the same in ``zone``."""
        zoned = self if self.names_zone else replace(self, tz=zone, names_zone=True)
        return super(Cron, zoned).in_zone(zoned.tz)

    def describe(self) -> str:
        """Return the expression in words, with the zone."""
        words, start = cron_in_words(read_cron(self.expression)), self.start
        if self.every is not None and start is not None:
            local = start.astimezone(load_zone(self.tz))
            words = words.removesuffix(" every day").removesuffix(" of every month")
            words += f", every {self.every.in_words()} from {local:%Y-%m-%d}"
            start = None if local.time() == time.min else start
        words += f", {self.tz}{_DST_IN_WORDS[self.dst]}"
        return words + bounds_in_words(start, self.end, self.jitter)

    def to_json(self) -> dict[str, Any]:
        """Return the kind ``cron``, with the normalized expression."""
        bounds = bounds_to_json(self.start, self.end, self.jitter)
        counted = {} if self.every is None else {"every": str(self.every)}
        return {"kind": "cron", "expression": self.expression, "tz": self.tz, "dst": self.dst, **counted, **bounds}


_FIELDS = ("second", "minute", "hour", "day", "month", "week", "day_of_week", "year", "day_of_month", "month_of_year")
_WRITE_INSTEAD = {
    **dict.fromkeys(_FIELDS, "it into the text, minute hour day month day-of-week: cron('30 3 * * MON')"),
    **dict.fromkeys(("timezone", "tzinfo", "zone"), "tz='Europe/Berlin'"),
    "start_date": "start='…'",
    "end_date": "end='…'",
    **{unit: f"every='2 {unit}', start='2027-01-04'" for unit in ("days", "weeks", "months")},
    "interval": "every='2 weeks', start='2027-01-04'",
}


@refuse_unknown_options(_WRITE_INSTEAD)
def cron(
    expression: str,
    *,
    tz: str | ZoneInfo | None = None,
    every: str | None = None,
    dst: Dst = "cron",
    start: date | str | None = None,
    end: date | str | None = None,
    jitter: Duration = 0,
) -> Trigger:
    """Return a trigger for the wall-clock times that match a cron expression in a time zone.

    Five fields, ``minute hour day-of-month month day-of-week``, or six with seconds first. Names (``MON``, ``JAN``),
    ranges, lists, steps, ``L`` and ``LW`` as day-of-month, ``5L`` (last Friday) and ``MON#2`` (second Monday) as
    day-of-week; ``@hourly @daily @midnight @weekly @monthly @yearly @annually``. When one of the two day fields starts
    with ``*`` a day must match both of them, else either.

    ``dst`` says what happens where clocks are changed. An expression means *times of the day* when neither its
    seconds, minutes nor hours start with ``*`` (``30 2 * * *``); else it is *a frequency* (``*/30 * * * *``):

    ========  ================  ============================  ==================================
    ``dst``   expression        time that does not exist      time that exists twice
    ========  ================  ============================  ==================================
    "cron"    times of the day  once, right after the gap     the first
    "cron"    a frequency       not run, as no time passes    both: it goes on in real time
    "both"    times of the day  once, right after the gap     both
    "both"    a frequency       not run, as no time passes    both
    "skip"    either            not run                       the first
    ========  ================  ============================  ==================================

    "Once, right after the gap" is the first instant after it, one nominal time however many times of the day fell into
    the gap, and however long it was. "both" gives all that "cron" gives, and "cron" all that "skip" gives.
    Source: Debian cron(8), with two differences: there the rule ends at changes of three hours (here a day that a
    zone leaves out is a gap like any other), and it knows no seconds.

    ``every`` takes only the days in each second week, third day or sixth month, counted from the local date of
    ``start`` and not anew in each month or year: ``cron("0 9 * * MON", every="2 weeks", start="2027-01-04")`` is each
    second Monday at 09:00 local time, in summer, too. Weeks begin on Monday.

    Nodes compute nominal times from their own time zone data, so keep that current on all of them.

    Example:
        >>> cron("0 21 * * *", tz="Asia/Shanghai").describe()
        'at 21:00 every day, Asia/Shanghai'

    Args:
        expression: up to 256 characters, in upper or lower case.
        tz: an IANA name or a ZoneInfo. Defaults to the ``tz`` of the scheduler that gets the trigger, which is UTC
            unless it says otherwise. ``TZ=Europe/Paris`` before the expression says the same.
        every: a number of days, weeks or months: "2 weeks", "3d", "6 months". Needs ``start``.
        dst: see the table.
        start: no nominal time is before it. Text without an offset, here and in ``end``, is of the trigger's zone; a
            date is its midnight.
        end: no nominal time is after it; one at ``end`` itself counts.
        jitter: a run may be started up to this much later than its nominal time.

    Raises:
        InvalidTrigger: something cannot be read, or nothing ever matches.
    """
    if not isinstance(expression, str):
        raise InvalidTrigger(f"cron expression {quoted(expression)} is not text; write it like '0 21 * * *'")
    if dst not in tuple(_DST_IN_WORDS):  # a tuple, so that what is not hashable is refused too
        raise InvalidTrigger(f"dst={quoted(dst)} is not a policy; write 'cron', 'both' or 'skip'")
    expression, tz = _split_zone_in_front(expression, tz)
    start, end = midnight_of(start), midnight_of(end)
    trigger = Cron(
        expression=read_cron(expression).text,
        typed=expression,
        tz="UTC" if tz is None else zone_name(tz),
        names_zone=tz is not None,
        dst=dst,
        every=_read_every(every, start),
        start=read_optional_instant(start, "start"),
        end=read_optional_instant(end, "end"),
        jitter=read_duration(jitter, "jitter"),
        walls=names_without_zone(start=start, end=end),
    )
    if trigger.names_zone:
        trigger = cast("Cron", trigger.in_zone(trigger.tz))
    if trigger.next_after(FIRST - _SECOND) is None:
        raise InvalidTrigger(
            f"cron expression {quoted(expression)} never fires {_limits_in_words(trigger)}; write other bounds"
        )
    return trigger


def _read_every(every: object, start: object) -> Period | None:
    if every is None:
        return None
    if start is None:
        raise InvalidTrigger(
            f"every={quoted(every)} has nothing to count from, and each node must count alike; write "
            "start='2027-01-04', a day of the first period"
        )
    return read_period(every)


def _split_zone_in_front(expression: str, tz: str | ZoneInfo | None) -> tuple[str, str | ZoneInfo | None]:
    """Return an expression without the ``TZ=…`` that some crons take in front of it, and the zone."""
    first, *others = expression.strip().split(None, 1) or [""]
    rest = "".join(others)
    name, equals, zone = first.partition("=")
    if not equals or name.upper() not in {"TZ", "CRON_TZ"}:
        return expression, tz
    if tz is not None and zone_name(tz) != zone_name(zone):
        raise InvalidTrigger(
            f"cron expression {quoted(expression)} names a zone, and tz={quoted(tz)} another; leave one out"
        )
    return rest, zone


@lru_cache(maxsize=4096)
def _clock_for(expression: str, tz: str, dst: Dst, every: Period | None, anchor: date) -> ZonedClock:
    """Return what the docstring of ``cron`` has as a table; cached, because many jobs share few expressions."""
    fields = read_cron(expression)
    return ZonedClock(
        wall=WallClock.of(fields, every, anchor),
        zone=load_zone(tz),
        gaps=fields.fixed and dst != "skip",
        second_pass=dst == "both" or (dst == "cron" and not fields.fixed),
    )


def _limits_in_words(trigger: Cron) -> str:
    start = "" if trigger.start is None else f"from start={format_instant(trigger.start)} "
    end = "" if trigger.end is None else f"until end={format_instant(trigger.end)} "
    counted = "" if trigger.every is None else f"every {trigger.every.in_words()} "
    return f"{counted}{start}{end}in {trigger.tz} with dst={trigger.dst!r}"
