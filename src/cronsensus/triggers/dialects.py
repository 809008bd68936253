"""Cron texts of other programs: which only they can have written, and which mean another time there.

A *reading* is an order of fields and the number that Sunday has. A text that fits no reading of ours but another one is
refused with the same times as they are written here. One that fits both is ours, and gets a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from cronsensus.durations import format_duration

_RANGES = {
    "second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day-of-month": (1, 31), "month": (1, 12),
    "day-of-week": (0, 7), "year": (1970, 2199),
}  # fmt: skip
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_NAMES = {"day-of-week": _DAYS, "month": _MONTHS}
_SPECIAL = {
    "day-of-month": re.compile(r"L|LW|WL|L-\d{1,2}|\d{1,2}W"),
    "day-of-week": re.compile(r"L|([0-7]|[A-Z]{3})(L|#[1-5])"),
}
_ODD_DAY = re.compile(r"L-\d+|\d+W")
_OURS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_MINUTE_FIRST = _OURS[1:]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a program reads a text; ``mark``: whether ``?`` is in it (``None``: it may be)."""

    program: str
    fields: tuple[str, ...]
    sunday: Literal[0, 1] = 0
    mark: bool | None = None

    def fits(self, parts: Sequence[str]) -> bool:
        """Whether each field has values that it takes."""
        if len(parts) != len(self.fields) or self.mark not in {None, "?" in parts}:
            return False
        if self.sunday == 1 and re.search(r"\b0\b", parts[self.fields.index("day-of-week")]):
            return False
        return all(_fits(part, name) for part, name in zip(parts, self.fields, strict=True))

    def written(self, parts: Sequence[str]) -> str:
        """Return what has the same times here, to be typed."""
        found = dict(zip(self.fields, parts, strict=True))
        weekdays = _by_name(found["day-of-week"], self.sunday)
        return _written([*(found.get(name, "0") for name in _OURS[:-1]), weekdays], found.get("year", "*"))


_WEEKS = ("1-7", "8-14", "15-21", "22-28")
_YEAR_LAST = (*_MINUTE_FIRST, "year")
_READINGS = (
    _Reading("AWS EventBridge", _YEAR_LAST, sunday=1, mark=True),
    _Reading("a cron with the year last", _YEAR_LAST, mark=False),
    _Reading("AWS EventBridge with * for ?", _YEAR_LAST, sunday=1, mark=False),
    _Reading("croniter, with seconds last", (*_MINUTE_FIRST, "second"), mark=False),
    _Reading("Quartz", _OURS, sunday=1),
    _Reading("Spring", _OURS),
    _Reading("Quartz", (*_OURS, "year"), sunday=1, mark=True),
    _Reading("a cron with seconds first and the year last", (*_OURS, "year"), mark=False),
    _Reading("croniter, with seconds and the year last", (*_MINUTE_FIRST, "second", "year"), mark=False),
    _Reading("Kubernetes", _MINUTE_FIRST, mark=True),
    _Reading("AWS EventBridge without the year", _MINUTE_FIRST, sunday=1, mark=True),
    _Reading("Quartz without seconds", _MINUTE_FIRST, mark=False),
)


def foreign(text: str) -> str | None:
    """Return what a text is that only another program can have written, and what to write; ``None``: it may be ours."""
    return next((found for read in _SHAPES if (found := read(text)) is not None), None)


def own_fields(parts: Sequence[str]) -> list[str]:
    """Return fields without what Quartz adds and this cron does not need: ``?`` for any day, and ``*`` for any year."""
    if "?" not in parts:
        return list(parts)
    parts = parts[:6] if len(parts) == 7 and parts[6] in {"*", "?"} else parts
    days = {len(parts) - 3, len(parts) - 1}
    return ["*" if part == "?" and at in days else part for at, part in enumerate(parts)]


def other_meanings(text: str) -> list[tuple[str, str]]:
    """Return other programs that take a text of ours for other times, and what to write for those.

    Only where their reading is as likely: it has an hour, and ours goes through all hours; or what would be the day of
    the week looks like seconds.
    """
    parts = text.upper().split()
    if len(parts) != 6 or parts[2] != "*":
        return []
    has_hour = not parts[1].startswith("*") and "/" not in parts[1]
    if not has_hour and parts[5] != "0" and "/" not in parts[5]:
        return []
    return [(reading.program, written) for reading, written in _meanings(parts) if reading.fields != _OURS]


def _of_order(text: str) -> str | None:
    parts = text.upper().split()
    if _is_ours(own_fields(parts), numbered="?" in parts):
        return None
    found = list(_meanings(parts))
    if not found:
        return None
    if len(found) == 1:
        reading, written = found[0]
        return f"is one of {reading.program} ({' '.join(reading.fields)}); write {written}"
    numbers = {reading.sunday for reading, _ in found}
    where = {reading: f", where {reading.sunday} is Sunday" if len(numbers) > 1 else "" for reading, _ in found}
    names = " and ".join(f"to {reading.program}{where[reading]}" for reading, _ in found)
    ours = ", or ".join(f"{written} ({reading.program})" for reading, written in found)
    return f"means different times {names}; write {ours}"


def _meanings(parts: Sequence[str]) -> Iterator[tuple[_Reading, str]]:
    """Yield each other reading that fits, those that come to the same as one."""
    found: dict[str, _Reading] = {}
    for reading in _READINGS:
        # Seconds last that are all seconds: of what the other five fields say, nobody means each second.
        last = dict(zip(reading.fields[5:], parts[5:], strict=False))
        if last.get("second") != "*" and "/" not in last.get("year", "") and reading.fits(parts):
            found.setdefault(reading.written(parts), reading)
    for written, reading in found.items():
        yield reading, written


def in_both(parts: Sequence[str]) -> str:
    """Return how to write that a day matches both day fields, of five or six: MON#1, or the function looks at the date.

    The parts are upper case, and neither day field begins with a star.
    """
    *before, days, month, weekdays = parts
    named = weekdays_by_name(weekdays)
    if days in _WEEKS and named.isalpha():
        return repr(" ".join([*before, "*", month, f"{named}#{_WEEKS.index(days) + 1}"]))
    if days.isdecimal():
        other = f"!= {days}"
    elif re.fullmatch(r"\d+-\d+", days):
        first, _, last = days.partition("-")
        other = f"not in range({first}, {int(last) + 1})"
    elif re.fullmatch(r"[\d,]+", days):
        other = f"not in {{{days.replace(',', ', ')}}}"
    else:
        other = ""
    text = repr(" ".join([*before, "*", month, named]))
    if not other:
        return f"{text}, and let the function raise Skip on other days than {days}"
    return f"{text}, and in the function if run.local_time.day {other}: raise Skip('another day')"


def _is_ours(parts: Sequence[str], *, numbered: bool) -> bool:
    """Whether the fields are in our order; ``numbered``: a number as day of the week is not ours, as beside a ``?``."""
    names = {5: _MINUTE_FIRST, 6: _OURS}.get(len(parts))
    if names is None or any(_ODD_DAY.fullmatch(term) for term in parts[-3].split(",")):
        return False
    if numbered and (parts[-1] == "L" or re.search(r"\d", re.sub(r"[#/]\d", "", parts[-1]))):
        return False
    return all(_fits(part, name) and part != "?" for part, name in zip(parts, names, strict=True))


def _fits(field: str, name: str) -> bool:
    if field == "?":
        return name in {"day-of-month", "day-of-week"}
    return all(_is_term(term, name) for term in field.split(","))


def _is_term(term: str, name: str) -> bool:
    if name in _SPECIAL and _SPECIAL[name].fullmatch(term):
        return True
    values, slash, step = term.partition("/")
    if slash and not step.isdecimal():
        return False
    return values == "*" or all(_is_value(value, name) for value in values.split("-", 1))


def _is_value(value: str, name: str) -> bool:
    low, high = _RANGES[name]
    if value.isdecimal():
        return len(value) < 5 and low <= int(value) <= high
    return any(len(value) >= 3 and value.startswith(known) for known in _NAMES.get(name, ()))


def _by_name(field: str, sunday: int) -> str:
    """Return days of the week by name, of numbers that count from ``sunday``; ``?`` is any."""
    return ",".join(_day_by_name(term, sunday) for term in field.split(","))


def weekdays_by_name(field: str) -> str:
    """Return days of the week of ours with their names for their numbers: MON for 1."""
    return _by_name(field, 0)


def _day_by_name(term: str, sunday: int) -> str:
    if term == "L":
        return "SAT"
    if term.endswith("L"):
        return f"{_day(term[:-1], sunday)}L"
    values, slash, step = term.partition("/")
    if values in {"*", "?"}:
        return term
    first, dash, rest = values.partition("-")
    base, hashed, which = first.partition("#")
    low = _day(base, sunday)
    if not dash and not slash:
        return f"{_DAYS[low]}{hashed}{which}"
    high = _day(rest, sunday) if dash else 6
    if high > low and not slash:
        return f"{_DAYS[low]}-{_DAYS[high]}"
    return ",".join(_DAYS[(low + ahead) % 7] for ahead in range(0, (high - low) % 7 + 1, int(step or 1) or 1))


def _day(value: str, sunday: int) -> int:
    return (int(value) - sunday) % 7 if value.isdecimal() else _DAYS.index(value[:3])


def _written(parts: list[str], year: str = "*") -> str:
    """Return six fields of our order as one types them, with what one expression cannot say."""
    parts = ["*" if part == "?" else re.sub(r"^0/", "*/", part) for part in parts]
    parts[3], skip = _written_days(parts[3].replace("WL", "LW"))
    text = repr(" ".join(parts[1:] if parts[0] == "0" else parts))
    first, _, last = year.partition("-")
    if first.isdecimal() and (last or first).isdecimal():
        text = f"cron({text}, start='{first}-01-01 00:00', end='{last or first}-12-31 23:59:59')"
    elif year not in {"*", "?"}:
        skip += f", and let the function raise Skip in other years than {year}"
    return text + skip


_UNLESS = ", and let the function raise Skip unless"


def _written_days(field: str) -> tuple[str, str]:
    """Return days around one that a cron expression cannot name, and how the function finds it among them."""
    if (found := re.fullmatch(r"L-(\d+)", field)) and int(found[1]) < 28:
        before = int(found[1])
        days = f"{28 - before}-{31 - before}"
        return days, f"{_UNLESS} (run.local_time + timedelta(days={before + 1})).day == 1"
    if (found := re.fullmatch(r"(\d+)W", field)) and 1 <= int(found[1]) <= 31:
        day = int(found[1])
        days = "1-3" if day == 1 else "29-31" if day == 31 else f"{day - 1}-{day + 1}"
        return days, f"{_UNLESS} it is the day from Monday to Friday nearest to day {day}"
    return field, ""


# --- texts of another shape -------------------------------------------------------------------------------------------

_EVERY = re.compile(r"(?:@every\s+|every\s+)?(\d+)\s*(seconds?|secs?|minutes?|mins?|hours?|days?)", re.IGNORECASE)
_WORDS = {
    "minutely": "* * * * *", "hourly": "@hourly", "daily": "@daily", "midnight": "@daily", "weekly": "0 0 * * MON",
    "monthly": "@monthly", "quarterly": "0 0 1 1,4,7,10 *", "semiannually": "0 0 1 1,7 *", "yearly": "@yearly",
    "annually": "@yearly",
}  # fmt: skip
_CALENDAR = re.compile(
    r"(?:(?P<weekdays>[A-Za-z][A-Za-z,.-]*)\s+)?"
    r"(?:(?P<year>[\d*]+)-(?P<month>[\d*,/.]+)-(?P<day>[\d*,/.]+)\s*)?"
    r"(?:T?(?P<hour>[\d*,/.]+):(?P<minute>[\d*,/.]+)(?::(?P<second>[\d*,/.]+))?)?"
)


def _of_aws(text: str) -> str | None:
    if found := re.fullmatch(r"rate\(\s*(\d+)\s*(minute|hour|day)s?\s*\)", text, re.IGNORECASE):
        return f"is an interval of AWS EventBridge; write every('{found[1]}{found[2][0].lower()}')"
    if found := re.fullmatch(r"at\(\s*(\S+)\s*\)", text, re.IGNORECASE):
        return f"is one time, of AWS EventBridge; write at({found[1]!r})"
    if found := re.fullmatch(r"cron\((.*)\)", text, re.IGNORECASE):
        inner = found[1].strip(" '\"")
        return _of_order(inner) or f"has another cron(…) in it; write {inner!r}"
    return None


def _of_an_interval(text: str) -> str | None:
    if found := _EVERY.fullmatch(text):
        return f"is an interval; write every('{found[1]}{found[2][0].lower()}')"
    return None


def _of_celery(text: str) -> str | None:
    """Read what Celery prints, in both of its orders, and what its users write."""
    if found := re.search(r"(\S+) (\S+) (\S+) (\S+) (\S+) \(m/h/(\S+)\)", text.removeprefix("<crontab: ")):
        minute, hour, *days = found.groups()[:5]
        days = [*days[1:], days[0]] if found[6] == "d/dM/MY" else days
        return f"is what Celery prints of a crontab; write {_where_both_match([minute, hour, *days])}"
    if found := re.fullmatch(r"(?:schedules\.)?crontab\((.*)\)", text):
        keyword = r"(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([\w*]+))"
        if re.sub(keyword, "", found[1]).strip(" ,"):
            return None  # positions have changed their meaning between versions
        given = {
            name: (one or two or plain).replace(" ", "") for name, one, two, plain in re.findall(keyword, found[1])
        }
        names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        return f"is one of Celery; write {_where_both_match([given.get(name, '*') for name in names])}"
    return None


def _where_both_match(parts: list[str]) -> str:
    """Return fields as one types them, of a program that wants both day fields to match."""
    if parts[-3].startswith("*") or parts[-1].startswith("*"):
        return _written(["0", *parts] if len(parts) == 5 else parts)
    return in_both([part.upper() for part in (parts[1:] if len(parts) == 6 and parts[0] == "0" else parts)])


def _of_systemd(text: str) -> str | None:
    if text.lower() in _WORDS:
        return f"is one of systemd; write {_WORDS[text.lower()]!r}"
    found = _CALENDAR.fullmatch(text)
    if found is None or not (found["day"] or found["hour"]):
        return None
    if not _fits((found["weekdays"] or "*").replace("..", "-").upper(), "day-of-week"):
        return None
    given = {name: (value or "").replace("..", "-") for name, value in found.groupdict().items()}
    time = [_plain(given[name] or "0") for name in ("second", "minute", "hour")]
    days = [_plain(given[name] or "*") for name in ("day", "month")]
    fields = [*time, *days, given["weekdays"] or "*"]
    year = given["year"] or "*"
    return f"is one of systemd; write {_where_both_match(fields) if year == '*' else _written(fields, year)}"


def _plain(field: str) -> str:
    """Return a number without its leading zeros, which systemd writes: 9 for 09."""
    return re.sub(r"\b0+(\d)", r"\1", field)


def _of_chance(text: str) -> str | None:
    """Read fields of which another program draws the value: Jenkins' ``H``, and ``~`` of OpenBSD and cronie."""
    parts = text.upper().split()
    drawn = re.compile(r"H(?:\((\d+)-(\d+)\))?(?:/(\d+))?|(\d*)~(\d*)(?:/(\d+))?")
    if len(parts) != 5 or not any(drawn.fullmatch(term) for part in parts for term in part.split(",")):
        return None
    spread = 0

    def fixed(term: str, size: int, low: int, unit: int) -> str:
        nonlocal spread
        found = drawn.fullmatch(term)
        if found is None:
            return term
        first, last, step = found[1] or found[4], found[2] or found[5], found[3] or found[6]
        start, end = int(first or low), int(last or low + size - 1)
        spread += unit * (min(int(step) - 1, end - start) if step else end - start)
        every = f"/{step}" if step else ""
        return f"{start}-{end}{every}" if step and (first or last) else f"*{every}" if step else str(start)

    # Of days and months one value is taken: a jitter of weeks is no jitter.
    fields = ((60, 0, 1), (24, 0, 60), (28, 1, 0), (12, 1, 0), (7, 0, 0))
    texts = [
        ",".join(fixed(term, *field) for term in part.split(",")) for part, field in zip(parts, fields, strict=True)
    ]
    jitter = f", jitter={format_duration(timedelta(minutes=spread))!r}" if spread else ""
    drawn_by = "H in Jenkins, ~ in OpenBSD and cronie"
    return f"lets the program draw a value ({drawn_by}); write cron({' '.join(texts)!r}{jitter})"


def _of_pg_cron(text: str) -> str | None:
    parts = text.split()
    if len(parts) == 5 and parts[2] == "$":
        return f"is one of pg_cron; write {' '.join([*parts[:2], 'L', *parts[3:]])!r}"
    return None


_SHAPES: tuple[Callable[[str], str | None], ...] = (
    _of_aws, _of_an_interval, _of_celery, _of_systemd, _of_chance, _of_pg_cron, _of_order,
)  # fmt: skip
