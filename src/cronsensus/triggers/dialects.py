"""Recognise cron texts of other programs, and say how to write the same times here.

Each reader knows the texts of a program. Texts that differ only in the order of their fields are in ``field_orders``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from cronsensus.timing.durations import format_duration
from cronsensus.triggers.field_orders import describe_other_order, fits_field, require_both_days, rewrite_fields


def describe_foreign_text(text: str) -> str | None:
    """Return of which program a text is, and what to write instead; ``None``: it may be one of ours."""
    return next((meaning for read in _SHAPES if (meaning := read(text)) is not None), None)


_INTERVAL = re.compile(r"(?:@every\s+|every\s+)?(\d+)\s*(seconds?|secs?|minutes?|mins?|hours?|days?)", re.IGNORECASE)
_SYSTEMD_WORDS = {
    "minutely": "* * * * *", "hourly": "@hourly", "daily": "@daily", "midnight": "@daily", "weekly": "0 0 * * MON",
    "monthly": "@monthly", "quarterly": "0 0 1 1,4,7,10 *", "semiannually": "0 0 1 1,7 *", "yearly": "@yearly",
    "annually": "@yearly",
}  # fmt: skip
_CALENDAR = re.compile(
    r"(?:(?P<weekdays>[A-Za-z][A-Za-z,.-]*)\s+)?"
    r"(?:(?P<year>[\d*]+)-(?P<month>[\d*,/.]+)-(?P<day>[\d*,/.]+)\s*)?"
    r"(?:T?(?P<hour>[\d*,/.]+):(?P<minute>[\d*,/.]+)(?::(?P<second>[\d*,/.]+))?)?"
)


def _describe_aws(text: str) -> str | None:
    if match := re.fullmatch(r"rate\(\s*(\d+)\s*(minute|hour|day)s?\s*\)", text, re.IGNORECASE):
        return f"is an interval of AWS EventBridge; write every('{match[1]}{match[2][0].lower()}')"
    if match := re.fullmatch(r"at\(\s*(\S+)\s*\)", text, re.IGNORECASE):
        return f"is one time, of AWS EventBridge; write at({match[1]!r})"
    if match := re.fullmatch(r"cron\((.*)\)", text, re.IGNORECASE):
        inner = match[1].strip(" '\"")
        return describe_other_order(inner) or f"has another cron(…) in it; write {inner!r}"
    return None


def _describe_interval(text: str) -> str | None:
    if match := _INTERVAL.fullmatch(text):
        return f"is an interval; write every('{match[1]}{match[2][0].lower()}')"
    return None


def _describe_celery(text: str) -> str | None:
    """Read texts that Celery prints, in both of its orders, and texts that its users write."""
    if match := re.search(r"(\S+) (\S+) (\S+) (\S+) (\S+) \(m/h/(\S+)\)", text.removeprefix("<crontab: ")):
        minute, hour, *days = match.groups()[:5]
        days = [*days[1:], days[0]] if match[6] == "d/dM/MY" else days
        return f"is what Celery prints of a crontab; write {_where_both_match([minute, hour, *days])}"
    if match := re.fullmatch(r"(?:schedules\.)?crontab\((.*)\)", text):
        keyword = r"(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([\w*]+))"
        if re.sub(keyword, "", match[1]).strip(" ,"):
            return None  # positions have changed their meaning between versions
        fields = {
            name: (single_quoted or double_quoted or plain).replace(" ", "")
            for name, single_quoted, double_quoted, plain in re.findall(keyword, match[1])
        }
        names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        return f"is a text of Celery; write {_where_both_match([fields.get(name, '*') for name in names])}"
    return None


def _where_both_match(parts: list[str]) -> str:
    """Return fields as text to type, of a program in which both day fields must match."""
    days = fits_field(parts[-3].upper(), "day-of-month") and fits_field(parts[-1].upper(), "day-of-week")
    if parts[-3].startswith("*") or parts[-1].startswith("*") or not days:
        return rewrite_fields(["0", *parts] if len(parts) == 5 else parts)
    return require_both_days([part.upper() for part in (parts[1:] if len(parts) == 6 and parts[0] == "0" else parts)])


def _describe_systemd(text: str) -> str | None:
    if text.lower() in _SYSTEMD_WORDS:
        return f"is a text of systemd; write {_SYSTEMD_WORDS[text.lower()]!r}"
    match = _CALENDAR.fullmatch(text)
    if match is None or not (match["day"] or match["hour"]):
        return None
    if not fits_field((match["weekdays"] or "*").replace("..", "-").upper(), "day-of-week"):
        return None
    parts = {name: (value or "").replace("..", "-") for name, value in match.groupdict().items()}
    time = [_plain(parts[name] or "0") for name in ("second", "minute", "hour")]
    days = [_plain(parts[name] or "*") for name in ("day", "month")]
    fields = [*time, *days, parts["weekdays"] or "*"]
    year = parts["year"] or "*"
    return f"is a text of systemd; write {_where_both_match(fields) if year == '*' else rewrite_fields(fields, year)}"


def _plain(field: str) -> str:
    """Return a number without its leading zeros, which systemd writes: 9 for 09."""
    return re.sub(r"\b0+(\d)", r"\1", field)


def _describe_random(text: str) -> str | None:
    """Read fields whose value another program draws at random: Jenkins' ``H``, and ``~`` of OpenBSD and cronie."""
    parts = text.upper().split()
    drawn = re.compile(r"H(?:\((\d+)-(\d+)\))?(?:/(\d+))?|(\d*)~(\d*)(?:/(\d+))?")
    if len(parts) != 5 or not any(drawn.fullmatch(term) for part in parts for term in part.split(",")):
        return None
    spread, is_sound = 0, True

    def fixed(term: str, size: int, low: int, unit: int) -> str:
        nonlocal spread, is_sound
        match = drawn.fullmatch(term)
        if match is None:
            return term
        first, last, step = match[1] or match[4], match[2] or match[5], match[3] or match[6]
        start, end = int(first or low), int(last or low + size - 1)
        most = 31 if size == 28 else low + size - 1
        is_sound &= low <= start <= end <= most and (step is None or 0 < int(step) <= most)
        spread += unit * (min(int(step) - 1, end - start) if step else end - start)
        every = f"/{step}" if step else ""
        return f"{start}-{end}{every}" if step and (first or last) else f"*{every}" if step else str(start)

    # For days and months a single value is chosen: a jitter of weeks is no jitter.
    fields = ((60, 0, 1), (24, 0, 60), (28, 1, 0), (12, 1, 0), (7, 0, 0))
    texts = [
        ",".join(fixed(term, *field) for term in part.split(",")) for part, field in zip(parts, fields, strict=True)
    ]
    if not is_sound:
        return None  # no program would take it
    jitter = f", jitter={format_duration(timedelta(minutes=spread))!r}" if spread else ""
    drawn_by = "H in Jenkins, ~ in OpenBSD and cronie"
    return f"lets the program draw a value ({drawn_by}); write cron({' '.join(texts)!r}{jitter})"


def _describe_pg_cron(text: str) -> str | None:
    parts = text.split()
    if len(parts) == 5 and parts[2] == "$":
        return f"is a text of pg_cron; write {' '.join([*parts[:2], 'L', *parts[3:]])!r}"
    return None


_SHAPES: tuple[Callable[[str], str | None], ...] = (
    _describe_aws, _describe_interval, _describe_celery, _describe_systemd, _describe_random, _describe_pg_cron,
    describe_other_order,
)  # fmt: skip
