"""APScheduler's triggers as code of cronsensus, and where their times differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cronsensus.integrations.migration import NoEquivalent, name_of_zone
from cronsensus.timing.durations import format_duration
from cronsensus.triggers import Trigger

MOST_COMPARED = 400
"""Times that are compared: more than a year of a daily job, so with each clock change of its zone."""
_DAY_NAMES = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_CRON_DAY_NUMBERS = (1, 2, 3, 4, 5, 6, 0)


def native_text(trigger: Any) -> str:
    """Return the call that makes a trigger with the same times.

    Raises:
        NoEquivalent: there is none.
    """
    from apscheduler.triggers.combining import AndTrigger, OrTrigger
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.date import DateTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    if isinstance(trigger, CronTrigger):
        return _call("cron", repr(_expression(trigger)), tz=repr(_zone(trigger.timezone)), **_bounds(trigger))
    if isinstance(trigger, IntervalTrigger):
        bounds = _bounds(trigger)
        if counts_from_own_start(trigger):
            bounds.pop("start", None)
        return _call("every", repr(format_duration(trigger.interval)), **bounds)
    if isinstance(trigger, DateTrigger):
        return _call("at", repr(trigger.run_date.isoformat()))
    if isinstance(trigger, OrTrigger):
        jitter = {"jitter": repr(trigger.jitter)} if trigger.jitter else {}
        return _call("any_of", *(native_text(part) for part in trigger.triggers), **jitter)
    if is_calendar_interval(trigger):
        return _of_calendar(trigger)
    if isinstance(trigger, AndTrigger):
        raise NoEquivalent(
            "AndTrigger: there is no trigger for times that several agree on; write one cron text that says it, or ask "
            "at the begin of the function and raise Skip"
        )
    raise NoEquivalent(f"{type(trigger).__name__}: triggers are cron, every, at and any_of; write one of these")


def is_calendar_interval(trigger: Any) -> bool:
    """Whether it is a ``CalendarIntervalTrigger``, which came with APScheduler 3.11."""
    module = sys.modules.get("apscheduler.triggers.calendarinterval")
    return module is not None and isinstance(trigger, module.CalendarIntervalTrigger)


def _of_calendar(trigger: Any) -> str:
    start, time_of_day = trigger.start_date, trigger._time
    units = {"days": trigger.days, "weeks": trigger.weeks, "months": trigger.months + 12 * trigger.years}
    several = {unit: number for unit, number in units.items() if number}
    if len(several) > 1:
        raise NoEquivalent(
            f"{trigger!r}: an interval of months and days together; here every= counts days, weeks or months"
        )
    ((unit, number),) = several.items()
    day = {"days": "* * *", "weeks": f"* * {_DAY_NAMES[start.weekday()]}", "months": f"{start.day} * *"}[unit]
    text = " ".join(filter(None, [str(time_of_day.second or ""), f"{time_of_day.minute} {time_of_day.hour} {day}"]))
    bounds = {"start": repr(start.isoformat())}
    if trigger.end_date is not None:
        bounds["end"] = repr(f"{trigger.end_date.isoformat()} 23:59:59")
    if trigger.jitter:
        bounds["jitter"] = repr(trigger.jitter)
    # APScheduler does not run a time that a clock change skips.
    zone, every = repr(_zone(trigger.timezone)), repr(f"{number} {unit}")
    return _call("cron", repr(text), tz=zone, every=every, dst="'skip'", **bounds)


def numbered_weekdays(trigger: Any) -> Iterator[tuple[str, str, str]]:
    """Yield each day_of_week with numbers: as written, with its days in APScheduler, and its days in a crontab."""
    from apscheduler.triggers.combining import OrTrigger
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.cron.expressions import RangeExpression

    if isinstance(trigger, OrTrigger):
        for part in trigger.triggers:
            yield from numbered_weekdays(part)
    elif isinstance(trigger, CronTrigger):
        field = next(field for field in trigger.fields if field.name == "day_of_week")
        # The exact type: a range of names is a subclass.
        numbers = [expression for expression in field.expressions if type(expression) is RangeExpression]
        if numbers:
            days = _weekday_numbers(numbers)
            in_apscheduler, in_crontab = (
                ",".join(names[day] for day in days) for names in (_DAY_NAMES, (_DAY_NAMES[6], *_DAY_NAMES[:6]))
            )
            yield ",".join(map(str, numbers)), in_apscheduler, in_crontab


def counts_from_own_start(trigger: Any) -> bool:
    """Whether an interval begins at the moment at which its process started."""
    from apscheduler.triggers.interval import IntervalTrigger

    is_own = isinstance(trigger, IntervalTrigger) and (trigger.start_date is None or trigger.start_date.microsecond)
    return bool(is_own)


def first_difference(trigger: Any, native: Trigger, now: datetime) -> tuple[datetime | None, datetime | None] | None:
    """Return the first pair of fire times that differ, theirs and ours; ``None``: the next ones are the same."""
    previous = now - timedelta(microseconds=1)
    for expected in _times(trigger, now):
        native_time = native.next_after(previous)
        if native_time != expected:
            return expected, native_time
        if native_time is None:
            return None
        previous = native_time
    return None


def _times(trigger: Any, now: datetime) -> Iterator[datetime | None]:
    previous, jitter = None, getattr(trigger, "jitter", None)
    try:
        if jitter:
            trigger.jitter = None  # random each time
        begin = now
        for _ in range(MOST_COMPARED):
            previous = trigger.get_next_fire_time(previous, now)
            while is_calendar_interval(trigger) and previous is not None and previous <= begin:
                previous = trigger.get_next_fire_time(
                    previous, now
                )  # its first time is its start, even if that is past
            yield None if previous is None else previous.astimezone(UTC)
            if previous is None:
                return
            now = previous
    finally:
        if jitter:
            trigger.jitter = jitter


def _expression(trigger: Any) -> str:
    """Return the cron text, with seconds in front where they matter."""
    fields = {field.name: field for field in trigger.fields}
    for name in ("year", "week"):
        if str(fields[name]) != "*":
            raise NoEquivalent(
                f"{name}={str(fields[name])!r}: a cron text has no {name}; write start= and end=, or other fields"
            )
    days, weekdays = _days(fields["day"], fields["day_of_week"])
    texts = {name: ",".join(_ranges(fields[name])) for name in ("second", "minute", "hour", "month")}
    text = f"{texts['minute']} {texts['hour']} {days} {texts['month']} {weekdays}"
    return text if texts["second"] == "0" else f"{texts['second']} {text}"


def _days(day: Any, day_of_week: Any) -> tuple[str, str]:
    from apscheduler.triggers.cron.expressions import LastDayOfMonthExpression, WeekdayPositionExpression

    positions = [expression for expression in day.expressions if isinstance(expression, WeekdayPositionExpression)]
    weekdays = _weekdays(day_of_week)
    if positions:
        if len(positions) < len(day.expressions) or weekdays != "*":
            raise NoEquivalent(
                f"day={str(day)!r} with day_of_week={str(day_of_week)!r}: a cron text has either days of the month or "
                "weekdays such as MON#1; write two triggers and any_of"
            )
        return "*", ",".join(_position(position) for position in positions)
    days = [
        "L" if isinstance(expression, LastDayOfMonthExpression) else _range(expression, day)
        for expression in day.expressions
    ]
    if weekdays != "*" and not any(text.startswith("*") for text in days):
        raise NoEquivalent(
            f"day={str(day)!r} and day_of_week={str(day_of_week)!r}: APScheduler wants both to match, a cron text "
            "either; write one of them, and ask for the other in the function and raise Skip"
        )
    return ",".join(days), weekdays


def _position(expression: Any) -> str:
    day = _CRON_DAY_NUMBERS[expression.weekday]
    return f"{day}L" if expression.option_num == 5 else f"{day}#{expression.option_num + 1}"


def _weekdays(field: Any) -> str:
    """Return the weekdays by name: APScheduler's numbers begin with Monday, those of a cron text with Sunday."""
    numbers = _weekday_numbers(field.expressions)
    return "*" if len(numbers) == 7 else ",".join(_DAY_NAMES[day] for day in numbers)


def _weekday_numbers(expressions: Sequence[Any]) -> list[int]:
    """Return the days that expressions allow, from 0 for Monday."""
    days: set[int] = set()
    for expression in expressions:
        first = getattr(expression, "first", 0)
        last = getattr(expression, "last", 6)
        days.update(range(first, (6 if last is None else last) + 1, expression.step or 1))
    return sorted(days)


def _ranges(field: Any) -> list[str]:
    return [_range(expression, field) for expression in field.expressions]


def _range(expression: Any, field: Any) -> str:
    from apscheduler.triggers.cron.fields import MAX_VALUES

    step = f"/{expression.step}" if expression.step else ""
    if not hasattr(expression, "first"):
        return f"*{step}"
    last = MAX_VALUES[field.name] if expression.last is None else expression.last
    return f"{expression.first}{step}" if last == expression.first and not step else f"{expression.first}-{last}{step}"


def _zone(zone: Any) -> str:
    return name_of_zone(zone, setting="timezone='Europe/Berlin'")


def _bounds(trigger: Any) -> dict[str, str]:
    bounds = {}
    if trigger.start_date is not None:
        bounds["start"] = repr(trigger.start_date.isoformat())
    if trigger.end_date is not None:
        bounds["end"] = repr(trigger.end_date.isoformat())
    if trigger.jitter:
        bounds["jitter"] = repr(trigger.jitter)
    return bounds


def _call(name: str, *arguments: str, **named: str) -> str:
    return f"{name}({', '.join([*arguments, *(f'{key}={value}' for key, value in named.items())])})"
