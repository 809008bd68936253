"""Instants: aware datetimes in UTC, in whole microseconds; integers of microseconds at the store's edge. Floor 1."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsensus.errors import InvalidOption

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(instant: datetime) -> int:
    """Return ``instant`` as microseconds since 1970 in UTC."""
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the aware UTC instant that lies ``micros`` microseconds after 1970."""
    return EPOCH + timedelta(microseconds=micros)


def as_utc(instant: datetime, *, what: str = "instant") -> datetime:
    """Return ``instant`` in UTC.

    Raises:
        InvalidOption: ``instant`` is naive, so nobody can say which moment it means; or it leaves the calendar in UTC.
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
    return as_utc(instant, what=what)


def format_instant(instant: datetime) -> str:
    """Return ``instant`` as ISO 8601 in UTC with ``Z``, and with microseconds only where there are any."""
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
