"""Texts of times, durations and counts for people, and times that people type."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, time, timedelta, tzinfo

from cronsensus.errors import InvalidDuration, InvalidOption
from cronsensus.timing.durations import format_duration, parse_duration
from cronsensus.timing.instants import EARLIEST_READ, parse_instant

_TIME_OF_DAY = re.compile(
    r"(?:(?P<day>today|yesterday)\s+(?:at\s+)?)?"
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?|(?P<whole>\d{1,2})(?=\s*[ap]m))"
    r"\s*(?P<half>[ap]m)?",
    re.IGNORECASE,
)
"""``03:00``, ``3am``, ``yesterday 21:30``. Not ``3`` alone, which may be anything, nor a day alone."""


def shorten(text: str, longest: int) -> str:
    """Return ``text`` cut to ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def format_count(number: int, noun: str) -> str:
    """Return ``1 run``, ``2 runs``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def brief_duration(duration: timedelta) -> str:
    """Return a duration in its two largest units, nothing below a millisecond."""
    if duration < timedelta(seconds=1):
        return f"{max(duration, timedelta(0)) // timedelta(milliseconds=1)}ms"
    if duration < timedelta(minutes=1):
        return f"{duration.total_seconds():.1f}".rstrip("0").rstrip(".") + "s"
    rounded = timedelta(seconds=round(duration.total_seconds()))
    return " ".join(re.findall(r"\d+[a-z]+", format_duration(rounded))[:2])


def relative_time(instant: datetime, now: datetime) -> str:
    """Return how far ``instant`` lies from ``now``: ``in 5m`` or ``2h 3m ago``."""
    distance = instant - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    return f"in {brief_duration(distance)}" if distance > timedelta(0) else f"{brief_duration(-distance)} ago"


def time_since(instant: datetime, now: datetime) -> str:
    """Return how long ago something happened. After the clock was set back, it may lie ahead."""
    if instant - now < timedelta(seconds=1):
        return relative_time(instant, now)
    return f"{brief_duration(instant - now)} ahead of the store's clock"


def exact_time(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return an instant as local time with its weekday and offset; in UTC with ``Z``."""
    local = instant.astimezone(tz)
    sub = f".{local.microsecond:06}".rstrip("0") if local.microsecond else ""
    if tz is UTC:
        return f"{local:%Y-%m-%d %H:%M:%S}{sub}Z"
    return f"{local:%a %Y-%m-%d %H:%M:%S}{sub} {offset_text(local)}"


def typed_time(instant: datetime, tz: tzinfo = UTC) -> str:
    """Return an instant as part of a command to type: ``read_time`` gives it back."""
    return exact_time(instant) if tz is UTC else instant.astimezone(tz).isoformat(" ")


def offset_text(local: datetime) -> str:
    """Return the offset of an aware datetime as ``+02:00``."""
    text = f"{local:%z}"
    return f"{text[:3]}:{text[3:5]}"


def read_time(text: str, now: datetime, *, tz: tzinfo = UTC, what: str = "time") -> datetime:
    """Return the instant that a text means.

    ISO 8601; ``now``; a duration such as ``2h`` (that long ago); a time of day: ``03:00`` or ``3am`` is the latest one
    that has come, ``yesterday 03:00`` and ``today 03:00`` are of that day. A time without an offset is in ``tz``; one
    that a clock change gives twice is the first. A number alone is refused: ``2026`` may be meant as a year.

    Raises:
        InvalidOption: it is none of these, or a date before 1900.
    """
    typed = text.strip()
    if typed.lower() == "now":
        return now
    early = False
    with contextlib.suppress(InvalidOption, OverflowError):
        instant = _iso(typed, tz, what)
        if instant >= EARLIEST_READ:
            return instant
        early = True
    if (of_day := _time_of_day(typed, now, tz)) is not None:
        return of_day
    with contextlib.suppress(InvalidDuration, OverflowError):
        if not early and not typed.removesuffix("ago").strip().isdecimal():
            return max(now - parse_duration(typed.removesuffix("ago"), what=what), EARLIEST_READ)
    raise InvalidOption(
        f"{what}={shorten(text, 60)!r} is not a time{' of 1900 or later' if early else ''}; "
        "write 2026-11-20T21:00:00Z, '2026-11-20 21:00', 21:00 or 9pm (the last one), 'yesterday 21:00', 2h (ago), now"
    )


def _time_of_day(typed: str, now: datetime, tz: tzinfo) -> datetime | None:
    """Return the instant of a time of day, with or without a day in words; ``None``: it is none."""
    match = _TIME_OF_DAY.fullmatch(typed)
    if match is None:
        return None
    hour = int(match["whole"] or match["hour"])
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"].lower() == "pm" else 0)
    try:
        wall = time(hour, int(match["minute"] or 0), int(match["second"] or 0))
    except ValueError:
        return None
    today = now.astimezone(tz).date()
    day = today - timedelta(days=1) if (match["day"] or "").lower() == "yesterday" else today
    instant = datetime.combine(day, wall, tz).astimezone(UTC)
    if match["day"] is None and instant > now:
        return datetime.combine(day - timedelta(days=1), wall, tz).astimezone(UTC)
    return instant


def _iso(typed: str, tz: tzinfo, what: str) -> datetime:
    try:
        instant = datetime.fromisoformat(typed)
    except ValueError:
        return parse_instant(typed, what=what)
    return (instant if instant.tzinfo else instant.replace(tzinfo=tz)).astimezone(UTC)
