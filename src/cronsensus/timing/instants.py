"""Instants: aware datetimes in UTC, in whole microseconds; integers of microseconds at the store's edge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsensus.errors import InvalidOption

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LATEST_MICROS = 2**53 - 1
LATEST = EPOCH + timedelta(microseconds=LATEST_MICROS)
"""The latest instant that every store keeps exactly, in the year 2255: later due times count as this one, which is
never. (Redis orders by doubles, and they hold whole microseconds up to here.)"""

EARLIEST_READ = datetime(1899, 12, 31, tzinfo=UTC)
"""The earliest instant that somebody may type: a sum of times before it may lead out of the calendar."""

# Two days within the calendar, so that no zone and no small sum leads out of it.
_FIRST_SHOWN = datetime(1, 1, 3, tzinfo=UTC)
_LAST_SHOWN = datetime(9999, 12, 29, tzinfo=UTC)
_LEAST = (_FIRST_SHOWN - EPOCH) // _MICROSECOND
_MOST = (_LAST_SHOWN - EPOCH) // _MICROSECOND


def to_micros(instant: datetime) -> int:
    """Return ``instant`` as microseconds since 1970 in UTC."""
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the aware UTC instant that lies ``micros`` microseconds after 1970.

    A number that lies outside the calendar, which somebody wrote into a store by hand, gives the end of the calendar on
    that side: one such number must not keep everything else from being read.
    """
    if _LEAST <= micros <= _MOST:
        return EPOCH + timedelta(microseconds=micros)
    return _FIRST_SHOWN if micros < _LEAST else _LAST_SHOWN


def within_stores(micros: int) -> int:
    """Return ``micros``, or the nearest number of microseconds that every store keeps exactly."""
    return min(max(micros, -LATEST_MICROS), LATEST_MICROS)


def after(now: datetime, delay: timedelta) -> datetime:
    """Return ``now`` + ``delay``, or the nearest instant that every store keeps exactly."""
    return from_micros(within_stores(to_micros(now) + delay // _MICROSECOND))


def as_utc(instant: datetime, *, what: str = "instant") -> datetime:
    """Return ``instant`` in UTC.

    Raises:
        InvalidOption: ``instant`` is naive, so its moment is unknown; or it leaves the calendar in UTC.
    """
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise InvalidOption(f"{what}={instant!r} has no time zone; write datetime(…, tzinfo=UTC) or a ZoneInfo")
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise InvalidOption(f"{what}={instant!r} lies outside the calendar in UTC") from error


def parse_instant(text: str, *, what: str = "instant") -> datetime:
    """Read ISO 8601 text with an offset, such as ``2026-11-20T21:00:00Z``.

    Raises:
        InvalidOption: the text is not ISO 8601, or names no offset.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidOption(f"{what}={text!r} is not a time; write it like 2026-11-20T21:00:00Z") from error
    if instant.tzinfo is None:
        lacks = "time of day" if len(text) <= len("2026-11-20") else "time zone"
        raise InvalidOption(f"{what}={text!r} has no {lacks}; write it like 2026-11-20T21:00:00Z")
    return as_utc(instant, what=what)


def read_instant(value: datetime | str, *, what: str = "instant") -> datetime:
    """Return an aware instant, or the text of one, in UTC; see ``parse_instant`` and ``as_utc``."""
    return parse_instant(value, what=what) if isinstance(value, str) else as_utc(value, what=what)


def format_instant(instant: datetime) -> str:
    """Return ``instant`` as ISO 8601 in UTC with ``Z``, and with microseconds only where there are any."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
