"""Cron texts that only other programs have, and the same times as they are written here.

Each reader knows the texts of one shape. Those that differ in the order of their fields alone are in ``field_orders``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from cronsensus.timing.durations import format_duration
from cronsensus.triggers.field_orders import fits_field, in_both, of_another_order, written_fields


def foreign(text: str) -> str | None:
    """Return what a text is that only another program can have written, and what to write; ``None``: it may be ours."""
    return next((found for read in _SHAPES if (found := read(text)) is not None), None)


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
        return of_another_order(inner) or f"has another cron(…) in it; write {inner!r}"
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
        return f"is a text of Celery; write {_where_both_match([given.get(name, '*') for name in names])}"
    return None


def _where_both_match(parts: list[str]) -> str:
    """Return fields as one types them, of a program that wants both day fields to match."""
    days = fits_field(parts[-3].upper(), "day-of-month") and fits_field(parts[-1].upper(), "day-of-week")
    if parts[-3].startswith("*") or parts[-1].startswith("*") or not days:
        return written_fields(["0", *parts] if len(parts) == 5 else parts)
    return in_both([part.upper() for part in (parts[1:] if len(parts) == 6 and parts[0] == "0" else parts)])


def _of_systemd(text: str) -> str | None:
    if text.lower() in _WORDS:
        return f"is a text of systemd; write {_WORDS[text.lower()]!r}"
    found = _CALENDAR.fullmatch(text)
    if found is None or not (found["day"] or found["hour"]):
        return None
    if not fits_field((found["weekdays"] or "*").replace("..", "-").upper(), "day-of-week"):
        return None
    given = {name: (value or "").replace("..", "-") for name, value in found.groupdict().items()}
    time = [_plain(given[name] or "0") for name in ("second", "minute", "hour")]
    days = [_plain(given[name] or "*") for name in ("day", "month")]
    fields = [*time, *days, given["weekdays"] or "*"]
    year = given["year"] or "*"
    return f"is a text of systemd; write {_where_both_match(fields) if year == '*' else written_fields(fields, year)}"


def _plain(field: str) -> str:
    """Return a number without its leading zeros, which systemd writes: 9 for 09."""
    return re.sub(r"\b0+(\d)", r"\1", field)


def _of_chance(text: str) -> str | None:
    """Read fields of which another program draws the value: Jenkins' ``H``, and ``~`` of OpenBSD and cronie."""
    parts = text.upper().split()
    drawn = re.compile(r"H(?:\((\d+)-(\d+)\))?(?:/(\d+))?|(\d*)~(\d*)(?:/(\d+))?")
    if len(parts) != 5 or not any(drawn.fullmatch(term) for part in parts for term in part.split(",")):
        return None
    spread, is_sound = 0, True

    def fixed(term: str, size: int, low: int, unit: int) -> str:
        nonlocal spread, is_sound
        found = drawn.fullmatch(term)
        if found is None:
            return term
        first, last, step = found[1] or found[4], found[2] or found[5], found[3] or found[6]
        start, end = int(first or low), int(last or low + size - 1)
        most = 31 if size == 28 else low + size - 1
        is_sound &= low <= start <= end <= most and (step is None or 0 < int(step) <= most)
        spread += unit * (min(int(step) - 1, end - start) if step else end - start)
        every = f"/{step}" if step else ""
        return f"{start}-{end}{every}" if step and (first or last) else f"*{every}" if step else str(start)

    # Of days and months one value is taken: a jitter of weeks is no jitter.
    fields = ((60, 0, 1), (24, 0, 60), (28, 1, 0), (12, 1, 0), (7, 0, 0))
    texts = [
        ",".join(fixed(term, *field) for term in part.split(",")) for part, field in zip(parts, fields, strict=True)
    ]
    if not is_sound:
        return None  # it is nobody's text
    jitter = f", jitter={format_duration(timedelta(minutes=spread))!r}" if spread else ""
    drawn_by = "H in Jenkins, ~ in OpenBSD and cronie"
    return f"lets the program draw a value ({drawn_by}); write cron({' '.join(texts)!r}{jitter})"


def _of_pg_cron(text: str) -> str | None:
    parts = text.split()
    if len(parts) == 5 and parts[2] == "$":
        return f"is a text of pg_cron; write {' '.join([*parts[:2], 'L', *parts[3:]])!r}"
    return None


_SHAPES: tuple[Callable[[str], str | None], ...] = (
    _of_aws, _of_an_interval, _of_celery, _of_systemd, _of_chance, _of_pg_cron, of_another_order,
)  # fmt: skip
