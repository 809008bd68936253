"""Read and write the options that every trigger has: start, end and jitter."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from cronsensus.errors import InvalidDuration, InvalidOption, InvalidTrigger
from cronsensus.timing.durations import Duration, format_duration, parse_duration
from cronsensus.timing.instants import as_utc, format_instant, from_micros, parse_instant, to_micros

FIRST = datetime(2, 1, 1, tzinfo=UTC)
LAST = datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
"""Nominal times lie between these: a year from either end of the calendar, so that no time zone leaves it."""

T = TypeVar("T")

_LONGEST_INSTANT = 64
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def quoted(value: object, longest: int = 80) -> str:
    """Return ``value`` as an error message shows it: its repr, cut short."""
    if isinstance(value, str) and len(value) > longest:
        return repr(value[:longest]) + f"… ({len(value)} characters)"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an int of more than 4300 digits, or a foreign object: the message must still come out
        return f"<{type(value).__name__}>"
    return text if len(text) <= longest else text[:longest] + "…"


def read_instant(value: object, what: str) -> datetime:
    """Return a plain aware UTC datetime from a datetime or ISO 8601 text.

    Raises:
        InvalidTrigger: it is naive, unreadable, or outside the calendar.
    """
    try:
        if isinstance(value, datetime):
            instant = as_utc(value, what=what)
        elif isinstance(value, str) and len(value) <= _LONGEST_INSTANT:
            instant = parse_instant(value, what=what)
        else:
            raise InvalidTrigger(
                f"{what}={quoted(value)} is not a time; write an aware datetime or text like '2026-11-20T21:00:00Z'"
            )
    except InvalidOption as error:
        raise InvalidTrigger(str(error)) from error
    if not FIRST <= instant <= LAST:
        raise InvalidTrigger(
            f"{what}={quoted(value)} is too far away; write a time from the year {FIRST.year} to {LAST.year}"
        )
    return from_micros(to_micros(instant))  # also turns a subclass of datetime into a plain one


def names_no_zone(value: object) -> bool:
    """Whether ``value`` is text of a date and a time of day without an offset, such as ``2026-12-01 09:00``."""
    if not isinstance(value, str) or len(value) > _LONGEST_INSTANT or ":" not in value or value[-1] == "Z":
        return False
    try:
        return datetime.fromisoformat(value).tzinfo is None
    except ValueError:
        return False


def midnight_of(value: T) -> T | str:
    """Return a date, or the text of one, as the text of its midnight without a zone; anything else as it is."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return f"{value.isoformat()} 00:00"
    return f"{value} 00:00" if isinstance(value, str) and _DATE.fullmatch(value) else value


def read_instant_default_utc(value: object, what: str) -> datetime:
    """Return ``read_instant(value)``; text that names no zone is read as if it were of UTC."""
    return read_instant(f"{value}+00:00" if names_no_zone(value) else value, what)


def names_without_zone(**values: object) -> tuple[str, ...]:
    """Return the names of the values that are texts without a zone."""
    return tuple(name for name, value in values.items() if names_no_zone(value))


def read_optional_instant(value: object, what: str) -> datetime | None:
    """Return ``read_instant_default_utc(value)``, or None for None."""
    return None if value is None else read_instant_default_utc(value, what)


def read_duration(value: Duration, what: str) -> timedelta:
    """Return ``parse_duration(value)``; raise InvalidTrigger if it is invalid."""
    try:
        return parse_duration(value, what=what)
    except InvalidDuration as error:
        raise InvalidTrigger(str(error)) from error


def bounds_to_json(start: datetime | None, end: datetime | None, jitter: timedelta) -> dict[str, Any]:
    """Return the JSON keys of what is given; what is not given has no key."""
    data: dict[str, Any] = {}
    if start is not None:
        data["start"] = format_instant(start)
    if end is not None:
        data["end"] = format_instant(end)
    if jitter:
        data["jitter"] = format_duration(jitter)
    return data


def bounds_in_words(start: datetime | None, end: datetime | None, jitter: timedelta) -> str:
    """Return what is given as words to append to a description."""
    words = ""
    if start is not None:
        words += f", from {format_instant(start)}"
    if end is not None:
        words += f", until {format_instant(end)}"
    if jitter:
        words += f", delayed by up to {format_duration(jitter)}"
    return words
