"""Read and write durations.

A duration is a ``timedelta``, a number of seconds, or text such as ``"90s"``, ``"15m"``, ``"1h30m"``, ``"2d"``,
``"500ms"``.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

from cronsensus.errors import InvalidDuration

Duration = timedelta | float | int | str
"""The types of a duration in arguments and settings."""

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_WORDS = {
    word: unit
    for unit, words in {
        "s": "sec secs second seconds",
        "m": "min mins minute minutes",
        "h": "hr hrs hour hours",
        "d": "day days",
        "w": "week weeks",
    }.items()
    for word in words.split()
}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)")
_LONGEST_TEXT = 64
_LONGEST = timedelta(days=366 * 100)
_LONGEST_SECONDS = 10**12


def parse_duration(value: Duration, *, what: str = "duration") -> timedelta:
    """Return ``value`` as a non-negative ``timedelta`` in whole microseconds.

    Raises:
        InvalidDuration: ``value`` is negative, not finite, longer than a hundred years, or unreadable; the message
            names ``what``.
    """
    duration = _read(value, what)
    if duration < timedelta(0):
        raise InvalidDuration(f"{what}={value!r}: a duration cannot be negative")
    if duration > _LONGEST:
        raise InvalidDuration(f"{what}={value!r}: longer than a hundred years")
    return duration


def _read(value: Duration, what: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool):
        raise InvalidDuration(f"{what}={value!r}: a truth value is not a duration; write seconds or '15m'")
    if isinstance(value, int) and abs(value) > _LONGEST_SECONDS:
        # Not shown: an integer of more than 4300 digits cannot even be written as text, nor as a float.
        raise InvalidDuration(f"{what}=…: an integer beyond any usable number of seconds")
    if isinstance(value, (int, float)):
        if not math.isfinite(value) or abs(value) > _LONGEST.total_seconds() * 2:
            raise InvalidDuration(f"{what}={value!r}: not a usable number of seconds")
        return timedelta(seconds=value)
    if isinstance(value, str):
        return _read_text(value, what)
    raise InvalidDuration(
        f"{what}={value!r}: write seconds, a timedelta, or text like '15m', not {type(value).__name__}"
    )


def _read_text(text: str, what: str) -> timedelta:
    short_text = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
    hint = f"{what}={short_text!r}: cannot be read; write seconds, or text like '90s', '15m', '1h30m', '2d'"
    compact = text.strip().lower()
    if not compact or len(text) > _LONGEST_TEXT:
        raise InvalidDuration(hint)
    if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", compact):
        return timedelta(seconds=float(compact))
    total, position = timedelta(0), 0
    for part in _PART.finditer(compact):
        unit = _UNITS.get(_WORDS.get(part[2], part[2]))
        if unit is None or compact[position : part.start()].strip():
            raise InvalidDuration(hint)
        try:
            total += float(part[1]) * unit
        except OverflowError as error:
            raise InvalidDuration(f"{what}={short_text!r}: longer than a hundred years") from error
        position = part.end()
    if position == 0 or compact[position:].strip():
        raise InvalidDuration(hint)
    return total


def format_duration(duration: timedelta) -> str:
    """Return the shortest text that ``parse_duration`` reads back as ``duration``."""
    micros = duration // timedelta(microseconds=1)
    if micros == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        size = _UNITS[unit] // timedelta(microseconds=1)
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
