"""The orders of cron fields in other programs, and what a text means in each of them.

A *reading* is an order of fields and the number of Sunday. A text that fits only another program's reading is refused,
with what to write here for the same times. A text that fits both is read in our order, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

_RANGES = {
    "second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day-of-month": (1, 31), "month": (1, 12),
    "day-of-week": (0, 7), "year": (1970, 2199),
}  # fmt: skip
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_NAMES = {"day-of-week": DAYS, "month": MONTHS}
_SPECIAL_TERMS = {
    "day-of-month": re.compile(r"L|LW|WL|L-\d{1,2}|\d{1,2}W"),
    "day-of-week": re.compile(r"L|([0-7]|[A-Z]{3})(L|#[1-5])"),
}
_UNSUPPORTED_DAY = re.compile(r"L-\d+|\d+W")
_OWN_ORDER = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_MINUTE_FIRST = _OWN_ORDER[1:]


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reading of a program; ``mark``: whether the text has a ``?`` (``None``: either)."""

    program: str
    fields: tuple[str, ...]
    sunday: Literal[0, 1] = 0
    mark: bool | None = None

    def fits(self, parts: Sequence[str]) -> bool:
        """Whether each field has allowed values."""
        if len(parts) != len(self.fields) or self.mark not in {None, "?" in parts}:
            return False
        if self.sunday == 1 and re.search(r"\b0\b", parts[self.fields.index("day-of-week")]):
            return False
        return all(fits_field(part, name) for part, name in zip(parts, self.fields, strict=True))

    def rewrite(self, parts: Sequence[str]) -> str:
        """Return a text with the same times in our order."""
        by_field = dict(zip(self.fields, parts, strict=True))
        weekdays = _name_weekdays(by_field["day-of-week"], self.sunday)
        return rewrite_fields(
            [*(by_field.get(name, "0") for name in _OWN_ORDER[:-1]), weekdays], by_field.get("year", "*")
        )


_WEEKS = ("1-7", "8-14", "15-21", "22-28")
_YEAR_LAST = (*_MINUTE_FIRST, "year")
_READINGS = (
    _Reading("AWS EventBridge", _YEAR_LAST, sunday=1, mark=True),
    _Reading("a cron with the year last", _YEAR_LAST, mark=False),
    _Reading("AWS EventBridge with * for ?", _YEAR_LAST, sunday=1, mark=False),
    _Reading("croniter, with seconds last", (*_MINUTE_FIRST, "second"), mark=False),
    _Reading("Quartz", _OWN_ORDER, sunday=1),
    _Reading("Spring", _OWN_ORDER),
    _Reading("Quartz", (*_OWN_ORDER, "year"), sunday=1, mark=True),
    _Reading("a cron with seconds first and the year last", (*_OWN_ORDER, "year"), mark=False),
    _Reading("croniter, with seconds and the year last", (*_MINUTE_FIRST, "second", "year"), mark=False),
    _Reading("Kubernetes", _MINUTE_FIRST, mark=True),
    _Reading("AWS EventBridge without the year", _MINUTE_FIRST, sunday=1, mark=True),
    _Reading("Quartz without seconds", _MINUTE_FIRST, mark=False),
)


def reorder_own_fields(parts: Sequence[str]) -> list[str]:
    """Return fields without Quartz's additions: ``?`` for any day becomes ``*``, and ``*`` for any year is dropped."""
    if "?" not in parts:
        return list(parts)
    parts = parts[:6] if len(parts) == 7 and parts[6] in {"*", "?"} else parts
    days = {len(parts) - 3, len(parts) - 1}
    return ["*" if part == "?" and position in days else part for position, part in enumerate(parts)]


def other_meanings(text: str) -> list[tuple[str, str]]:
    """Return other programs for which a valid text means other times, and what to write for those times.

    Only if their reading is as likely: it has an hour, and ours has each hour; or our day of the week looks like
    seconds.
    """
    parts = text.upper().split()
    if len(parts) != 6 or parts[2] != "*":
        return []
    has_hour = not parts[1].startswith("*") and "/" not in parts[1]
    if not has_hour and parts[5] != "0" and "/" not in parts[5]:
        return []
    return [(reading.program, written) for reading, written in _meanings(parts) if reading.fields != _OWN_ORDER]


def describe_other_order(text: str) -> str | None:
    """Return whose order of fields a text has, and what to write; ``None``: ours."""
    parts = text.upper().split()
    if _is_own_order(reorder_own_fields(parts), numbered="?" in parts):
        return None
    meanings = list(_meanings(parts))
    if not meanings and "?" in parts and _is_own_order(reorder_own_fields(parts), numbered=False):
        return "has a number as day of the week beside ?, and programs count them from 0 or 1; write names, as MON-FRI"
    if not meanings:
        return None
    if len(meanings) == 1:
        reading, written = meanings[0]
        return f"is a text of {reading.program} ({' '.join(reading.fields)}); write {written}"
    numbers = {reading.sunday for reading, _ in meanings}
    where = {reading: f", where {reading.sunday} is Sunday" if len(numbers) > 1 else "" for reading, _ in meanings}
    names = ", and ".join(f"to {reading.program}{where[reading]}" for reading, _ in meanings)
    rewritten = ", or ".join(f"{written} ({reading.program})" for reading, written in meanings)
    return f"means different times {names}; write {rewritten}"


def _meanings(parts: Sequence[str]) -> Iterator[tuple[_Reading, str]]:
    """Yield each other reading that fits; readings with the same times only once."""
    by_text: dict[str, _Reading] = {}
    for reading in _READINGS:
        # Not with ``*`` as seconds in the last field: nobody wants each second of what the other fields name.
        last = dict(zip(reading.fields[5:], parts[5:], strict=False))
        if last.get("second") != "*" and "/" not in last.get("year", "") and reading.fits(parts):
            by_text.setdefault(reading.rewrite(parts), reading)
    for written, reading in by_text.items():
        yield reading, written


def require_both_days(parts: Sequence[str]) -> str:
    """Return how to require that a day matches both day fields, of five or six: MON#1, or a check in the function.

    The parts are upper case, and neither day field begins with a star.
    """
    *before, days, month, weekdays = parts
    named = name_weekdays(weekdays)
    if days in _WEEKS and named.isalpha():
        return repr(" ".join([*before, "*", month, f"{named}#{_WEEKS.index(days) + 1}"]))
    if days.isdecimal():
        condition = f"!= {int(days)}"
    elif re.fullmatch(r"\d+-\d+", days):
        first, _, last = days.partition("-")
        condition = f"not in range({int(first)}, {int(last) + 1})"
    elif re.fullmatch(r"\d+(,\d+)*", days):
        condition = f"not in {{{', '.join(str(int(day)) for day in days.split(','))}}}"
    else:
        condition = ""
    text = repr(" ".join([*before, "*", month, named]))
    if not condition:
        return f"{text}, and let the function raise Skip on other days than {days}"
    return f"{text}, and in the function if run.local_time.day {condition}: raise Skip('another day')"


def _is_own_order(parts: Sequence[str], *, numbered: bool) -> bool:
    """Whether the fields are in our order; ``numbered``: refuse a number as day of the week, as beside a ``?``."""
    names = {5: _MINUTE_FIRST, 6: _OWN_ORDER}.get(len(parts))
    if names is None or any(_UNSUPPORTED_DAY.fullmatch(term) for term in parts[-3].split(",")):
        return False
    if numbered and (parts[-1] == "L" or re.search(r"\d", re.sub(r"[#/]\d", "", parts[-1]))):
        return False
    return all(fits_field(part, name) and part != "?" for part, name in zip(parts, names, strict=True))


def fits_field(field: str, name: str) -> bool:
    """Whether any program allows ``field``, in upper case, as the field called ``name``."""
    if field == "?":
        return name in {"day-of-month", "day-of-week", "year"}
    return all(_is_term(term, name) for term in field.split(","))


def _is_term(term: str, name: str) -> bool:
    if name in _SPECIAL_TERMS and _SPECIAL_TERMS[name].fullmatch(term):
        return True
    values, slash, step = term.partition("/")
    if slash and not step.isdecimal():
        return False
    return values == "*" or all(_is_value(value, name) for value in values.split("-", 1))


def _is_value(value: str, name: str) -> bool:
    low, high = _RANGES[name]
    if value.isdecimal():
        return len(value) < 5 and low <= int(value) <= high
    return any(len(value) >= 3 and value.startswith(day_or_month) for day_or_month in _NAMES.get(name, ()))


def _name_weekdays(field: str, sunday: int) -> str:
    """Return days of the week by name, where Sunday has the number ``sunday``; ``?`` is any day."""
    return ",".join(_name_weekdays_of_term(term, sunday) for term in field.split(","))


def name_weekdays(field: str) -> str:
    """Return days of the week with names instead of our numbers: MON for 1."""
    return _name_weekdays(field, 0)


def _name_weekdays_of_term(term: str, sunday: int) -> str:
    if term == "L":
        return "SAT"
    if term.endswith("L"):
        return f"{_weekday_number(term[:-1], sunday)}L"
    values, slash, step = term.partition("/")
    if values in {"*", "?"}:
        return term
    first, dash, last = values.partition("-")
    base, hashed, week = first.partition("#")
    low = _weekday_number(base, sunday)
    if not dash and not slash:
        return f"{DAYS[low]}{hashed}{week}"
    high = _weekday_number(last, sunday) if dash else 6
    if high > low and not slash:
        return f"{DAYS[low]}-{DAYS[high]}"
    if dash and low == high and base != last:  # 0-7, from Sunday to Sunday
        high += 6
        if not slash:
            return "*"
    return ",".join(DAYS[(low + ahead) % 7] for ahead in range(0, (high - low) % 7 + 1, int(step or 1) or 1))


def _weekday_number(value: str, sunday: int) -> int:
    return (int(value) - sunday) % 7 if value.isdecimal() else DAYS.index(value[:3])


def rewrite_fields(parts: list[str], year: str = "*") -> str:
    """Return six fields of our order as text to type, with what an expression cannot express."""
    parts = ["*" if part == "?" else re.sub(r"^0/", "*/", part) for part in parts]
    parts[3], skip = _rewrite_days(parts[3].replace("WL", "LW"))
    text = repr(" ".join(parts[1:] if parts[0] == "0" else parts))
    first, _, last = year.partition("-")
    if first.isdecimal() and (last or first).isdecimal():
        text = f"cron({text}, start='{first}-01-01 00:00', end='{last or first}-12-31 23:59:59')"
    elif year not in {"*", "?"}:
        skip += f", and let the function raise Skip in other years than {year}"
    return text + skip


_SKIP_UNLESS = ", and let the function raise Skip unless"


def _rewrite_days(field: str) -> tuple[str, str]:
    """Return days around a day that a cron expression cannot name, and how the function finds it among them."""
    if (match := re.fullmatch(r"L-(\d+)", field)) and int(match[1]) < 28:
        before = int(match[1])
        days = f"{28 - before}-{31 - before}"
        return days, f"{_SKIP_UNLESS} (run.local_time + timedelta(days={before + 1})).day == 1"
    if (match := re.fullmatch(r"(\d+)W", field)) and 1 <= int(match[1]) <= 31:
        day = int(match[1])
        days = "1-3" if day == 1 else "29-31" if day == 31 else f"{day - 1}-{day + 1}"
        return days, f"{_SKIP_UNLESS} it is the day from Monday to Friday nearest to day {day}"
    return field, ""
