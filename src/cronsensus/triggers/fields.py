"""Parse a cron text into the values that each of its fields allows, and explain what is wrong with a bad one.

The library cronsim parses the text and decides which days match. Searching for times and time zones are elsewhere
(``wall.py``, ``dst.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from unicodedata import normalize

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers.bounds import quoted
from cronsensus.triggers.dialects import describe_foreign_text
from cronsensus.triggers.field_orders import DAYS, MONTHS, reorder_own_fields

LAST_DAY, LAST_WEEKDAY = -1000, -1001
"""cronsim's values for ``L`` and ``LW`` in the day-of-month field; ``(5, LAST_DAY)`` is ``5L`` in day-of-week."""

_MAX_CHARACTERS = 256
_STEPPED_RANGE = re.compile(r"(\w+)-(\w+)/0*[1-9]\d*")
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - cronsim needs a start; only its parser is used, not its search
_ALIASES = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
_NAMES = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_VALUES = (
    "0-59",
    "0-59",
    "0-23",
    "1-31, L (the last day) or LW (the last weekday)",
    "1-12 or JAN-DEC",
    "0-7 or SUN-SAT (0 and 7 are Sunday), MON#2 (the second Monday) or 5L (the last Friday)",
)
_MONTHS = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER",
    "DECEMBER",
)  # fmt: skip
_DAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")
_FORMAT_IN_WORDS = "minute hour day-of-month month day-of-week, with seconds before them if wanted"


@dataclass(frozen=True, slots=True)
class CronFields:
    """The values that a cron text allows."""

    text: str
    """Normalized: upper case, single spaces, ``@daily`` written out, a seconds field of plain ``0`` left out."""
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: tuple[int, ...]
    weekdays: frozenset[int | tuple[int, int]]
    day_and: bool
    """Whether a day must match both day fields (one of them starts with ``*``) or either. Source: Debian cron."""
    fixed: bool
    """Whether the text means times of the day, not a frequency: neither seconds, minutes nor hours start with ``*``.
    Source: Debian cron(8), and its MIN_STAR and HR_STAR flags."""
    day_masks: tuple[int, ...]
    """For each shape of month, at ``month_shape()``: bit d is set when day d matches."""


def month_shape(year: int, month: int) -> int:
    """Return which of the 28 shapes a month has: the weekday of its first day, and its length."""
    return date(year, month, 1).weekday() * 4 + _length(year, month) - 28


def _length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


@lru_cache(maxsize=1024)
def read_cron(text: str) -> CronFields:
    """Parse a cron text.

    Raises:
        InvalidTrigger: it cannot be parsed, or no date ever matches.
    """
    from cronsim import CronSim, CronSimError  # imported late: only programs that use cron need it

    parts = _split_fields(text)
    # cronsim forgets the end of a range of a single value with a step: 10-10/5 would be 10-31/5.
    parts = [",".join(map(_without_step_of_one, part.split(","))) for part in parts]
    for field in (parts[3], parts[5]):
        if stepped := next((term for term in field.upper().split(",") if "L" in term and "/" in term), None):
            # cronsim reads the L and forgets the step.
            raise InvalidTrigger(
                f"cron expression {quoted(text)}: {quoted(stepped)} is wrong; L is one day and takes no step"
            )
    try:
        parsed = CronSim(" ".join(parts), _ANY_DAY)
    except CronSimError as error:
        raise InvalidTrigger(_wrong_field_message(text, parts)) from error
    parts = [part.upper() for part in parts]
    masks = _day_masks(parts[3], parts[5])
    if not any(masks[shape] for month in parsed.months for shape in _shapes_of(month)):
        raise InvalidTrigger(_never_fires_message(text, parts))
    return CronFields(
        text=" ".join(parts[1:] if parts[0] == "0" else parts),
        seconds=tuple(sorted(parsed.seconds)),
        minutes=tuple(sorted(parsed.minutes)),
        hours=tuple(sorted(parsed.hours)),
        days=frozenset(parsed.days),
        months=tuple(sorted(parsed.months)),
        weekdays=frozenset(parsed.weekdays),
        day_and=parsed.day_and,
        fixed=not any(part.startswith("*") for part in parts[:3]),
        day_masks=masks,
    )


def _without_step_of_one(term: str) -> str:
    """Return the single value of a range such as ``10-10/5``, ``05-5/5`` or ``SUN-0/2``; any other term unchanged."""
    match = _STEPPED_RANGE.fullmatch(term)
    return match[1] if match is not None and _to_number(match[1]) == _to_number(match[2]) else term


def _to_number(value: str) -> int | str:
    if value.isdecimal():
        return int(value)
    word = value.upper()
    return DAYS.index(word) if word in DAYS else MONTHS.index(word) + 1 if word in MONTHS else word


def _split_fields(text: str) -> list[str]:
    """Return the six fields of a text, seconds included.

    Raises:
        InvalidTrigger: it is empty, too long, not ASCII, of another program, or has another number of fields.
    """
    if not text.strip():
        raise InvalidTrigger(f"cron expression {quoted(text)} is empty; write {_FORMAT_IN_WORDS}, such as '0 21 * * *'")
    if len(text) > _MAX_CHARACTERS:
        raise InvalidTrigger(
            f"cron expression {quoted(text, 40)} is longer than {_MAX_CHARACTERS} characters; "
            "write any_of(cron(…), cron(…))"
        )
    if not text.isascii():  # str.upper() would turn some foreign letters into fields, such as U+017F, the long s
        raise InvalidTrigger(_not_ascii_message(text))
    parts = text.split()
    if parts[0].startswith("@"):
        if len(parts) > 1 or parts[0].upper() not in _ALIASES:
            raise InvalidTrigger(_bad_alias_message(text, parts))
        parts = _ALIASES[parts[0].upper()].split()
    elif parts[0].upper() == "EVERY":
        raise InvalidTrigger(_interval_message(text, parts))
    elif (answer := describe_foreign_text(text.strip())) is not None:
        raise InvalidTrigger(f"cron expression {quoted(text)} {answer}")
    parts = reorder_own_fields(parts)
    if len(parts) in {5, 6}:
        parts[-2:] = [_shorten_names(parts[-2], _MONTHS), _shorten_names(parts[-1], _DAYS)]
    if len(parts) not in {5, 6}:
        message = f"cron expression {quoted(text)} has {len(parts)} fields, not 5 or 6; write {_FORMAT_IN_WORDS}"
        raise InvalidTrigger(message + ("; for years use start= and end=" if len(parts) == 7 else ""))
    return parts if len(parts) == 6 else ["0", *parts]


def _not_ascii_message(text: str) -> str:
    """Return the message that names the wrong character: input methods produce full-width ones, which look alike."""
    first = next(character for character in text if not character.isascii())
    plain = normalize("NFKC", text)
    instead = repr(plain) if plain.isascii() else f"{_FORMAT_IN_WORDS}, such as '0 21 * * *'"
    return (
        f"cron expression {quoted(text)} has characters other than plain ASCII: {first!r} (U+{ord(first):04X}); "
        f"write {instead}"
    )


def _shorten_names(field: str, names: tuple[str, ...]) -> str:
    """Return a field with long names shortened to those of cron: MON for Monday, TUE for TUES."""

    def short(match: re.Match[str]) -> str:
        word = match[0].upper()
        return next((name[:3] for name in names if name.startswith(word)), match[0])

    return re.sub(r"[A-Za-z]{4,}", short, field)


def _interval_message(text: str, parts: list[str]) -> str:
    return f"cron expression {quoted(text)} is an interval; write every({' '.join(parts[1:])!r})"


def _bad_alias_message(text: str, parts: list[str]) -> str:
    alias = parts[0].upper()
    if alias == "@EVERY" and len(parts) > 1:
        return _interval_message(text, parts)
    if alias == "@REBOOT":
        return f"cron expression {quoted(text)} is not a time; for a task at start-up write @scheduler.startup(…)"
    return f"cron expression {quoted(text)} is not known; write {', '.join(_ALIASES).lower()}, or five fields"


def _wrong_field_message(text: str, parts: list[str]) -> str:
    """Return the message that names the wrong term and what to write instead; it parses every term by itself."""
    from cronsim import CronSim, CronSimError

    for index, part in enumerate(parts):
        for term in part.split(","):
            alone = ["*"] * 6
            alone[index] = term or ","  # an empty term would be an empty field, which is no field
            try:
                CronSim(" ".join(alone), _ANY_DAY)
            except CronSimError:
                wrong = f"cron expression {quoted(text)}: {quoted(term)} is wrong in the {_NAMES[index]} field"
                return f"{wrong}; {_advice_for_term(index, term)}"
    return _never_fires_message(text, parts)


def _advice_for_term(index: int, term: str) -> str:
    term = term.upper()
    if "?" in term:
        return "write '*' instead of '?'"
    if index == 5 and term.endswith("L"):
        return "write the number of the day and L, such as 5L for the last Friday"
    first, dash, last = term.partition("-")
    if dash and first and last and "-" not in last:
        return f"write {_VALUES[index]}; a range goes upwards, {_split_wrapping_range(index, first, last)}"
    if "H" in term and index < 3:
        return f"write {_VALUES[index]}; to spread the load use jitter="
    return f"write {_VALUES[index]}, a range 1-5, a list 1,3, a step */5, or *"


def _split_wrapping_range(index: int, first: str, last: str) -> str:
    """Return how to write a range that wraps: 22-23,0-2 for 22-2."""
    last, slash, _ = last.partition("/")
    names: tuple[str, ...] = {4: _MONTHS, 5: _DAYS}.get(index, ())
    low, high = (1, 31) if index == 3 else (1, 12) if index == 4 else (0, (59, 59, 23, 0, 0, 6)[index])
    numbers = []
    for word in (first, last):
        named = next((low + offset for offset, name in enumerate(names) if name[:3] == word), None)
        numbers.append(int(word) if named is None and word.isdigit() and len(word) < 3 else named)
    if slash or None in numbers or not all(low <= number <= high for number in numbers if number is not None):
        return "one that wraps is written in two, such as 'x-y,z'"

    def shown_as(number: int) -> str:
        return names[number - low][:3] if names and not first.isdigit() else str(number)

    until_end = first if numbers[0] == high else f"{first}-{shown_as(high)}"
    from_start = last if numbers[1] == low else f"{shown_as(low)}-{last}"
    return f"one that wraps is written in two: {until_end},{from_start}"


def _never_fires_message(text: str, parts: list[str]) -> str:
    message = f"cron expression {quoted(text)} never fires: in month {parts[4]} no day matches day-of-month {parts[3]}"
    if parts[5] == "*":
        return f"{message}; for the last day of a month write L"
    return f"{message} and day-of-week {parts[5]}, and one of them starts with '*', so it must match both"


def _shapes_of(month: int) -> list[int]:
    """Return all shapes that months have over the years."""
    return [first * 4 + length - 28 for first in range(7) for length in {_length(2000, month), _length(2001, month)}]


@lru_cache(maxsize=1024)
def _day_masks(day_of_month: str, day_of_week: str) -> tuple[int, ...]:
    """Return the matching days for each shape of month, as cronsim judges them."""
    from cronsim import CronSim

    rule = CronSim(f"0 0 {day_of_month} * {day_of_week}", _ANY_DAY)
    return masks_of_days(rule.match_day)


def masks_of_days(matches: Callable[[date], bool]) -> tuple[int, ...]:
    """Return for each shape of month, at ``month_shape()``, a number in which bit d is set when day d matches.

    Args:
        matches: a rule on the day of the month, the weekday and the length of the month.
    """
    masks = []
    for year, month in _a_month_of_each_shape():
        days = range(1, _length(year, month) + 1)
        masks.append(sum(1 << day for day in days if matches(date(year, month, day))))
    return tuple(masks)


@lru_cache(maxsize=1)
def _a_month_of_each_shape() -> list[tuple[int, int]]:
    months = {month_shape(year, month): (year, month) for year in range(2000, 2028) for month in range(1, 13)}
    return [months[shape] for shape in range(28)]
