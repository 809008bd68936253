"""Describe intervals and cron fields in English.

The words come from the sets of values that a cron text allows, not from the text, so every way of writing the same
thing reads the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise

from cronsensus.triggers.fields import LAST_DAY, LAST_WEEKDAY, CronFields

_MICROSECOND = timedelta(microseconds=1)
_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)
MOST_TIMES = 6
"""At most so many times of a day are each named."""
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", LAST_DAY: "last"}
_EVERY_MONTH = "every month"


def interval_in_words(interval: timedelta) -> str:
    """Return what follows "every": "minute", "5 minutes", "1 hour 30 minutes"."""
    parts = parts_of(interval)
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return " ".join(f"{count} {unit}" if count == 1 else f"{count} {unit}s" for count, unit in parts)


def parts_of(interval: timedelta) -> list[tuple[int, str]]:
    """Return how many of each unit an interval has, the largest unit first."""
    micros, parts = interval // _MICROSECOND, []
    for unit, size in _UNITS:
        count, micros = divmod(micros, size)
        if count:
            parts.append((count, unit))
    return parts


def cron_in_words(fields: CronFields) -> str:
    """Return the times and days of a cron text in words."""
    times, is_list = _times_in_words(fields)
    days = _days_in_words(fields)
    if not days:
        months = f"in {_months_in_words(fields)}" if len(fields.months) < 12 else ""
        days = " ".join(filter(None, ["every day" if is_list else "", months]))
    elif not days.startswith(("on ", "every ")):
        times += ","
    return f"{times} {days}".strip()


def _times_in_words(fields: CronFields) -> tuple[str, bool]:
    """Return the times of the day in words, and whether they are a list of clock times."""
    seconds, minutes, hours = fields.seconds, fields.minutes, fields.hours
    if len(seconds) == 1 and len(minutes) * len(hours) <= MOST_TIMES:
        return "at " + _join([clock_text(hour, minute, seconds[0]) for hour in hours for minute in minutes]), True
    if seconds == (0,):
        return _frequency_in_words(minutes, hours), False
    minutes_and_hours = ""
    if len(minutes) < 60 or len(hours) < 24:
        minutes_and_hours = f" of {_values_in_words(minutes, 'minute', 60)} of {_values_in_words(hours, 'hour', 24)}"
    even = even_step(seconds, 60)
    if even:
        if minutes_and_hours and is_run(hours) and (len(minutes) == 60 or (len(hours) == 1 and is_run(minutes))):
            first = f"{hours[0]:02}:{minutes[0]:02}:{seconds[0]:02}"
            minutes_and_hours = f" from {first} to {clock_text(hours[-1], minutes[-1], seconds[-1])}"
        return _every_in_words(even, "second") + minutes_and_hours, False
    return f"at {_values_in_words(seconds, 'second', 60)}{minutes_and_hours or ' of every minute'}", False


def _frequency_in_words(minutes: tuple[int, ...], hours: tuple[int, ...]) -> str:
    """Return minutes and hours in words, at second 0."""
    first, last = clock_text(hours[0], minutes[0], 0), clock_text(hours[-1], minutes[-1], 0)
    step = even_step(minutes, 60)
    if len(minutes) == 1:
        hour_step = step_of(hours)
        if hour_step is not None:
            whole_day = minutes[0] == 0 and hour_step == even_step(hours, 24)
            if len(hours) == 24 and not whole_day:
                return f"at minute {minutes[0]} of every hour"
            return _every_in_words(hour_step, "hour") + ("" if whole_day else f" from {first} to {last}")
    elif step:
        if len(hours) == 24:
            return _every_in_words(step, "minute")
        if is_run(hours):
            return f"{_every_in_words(step, 'minute')} from {first} to {last}"
        return f"{_every_in_words(step, 'minute')} of {_values_in_words(hours, 'hour', 24)}"
    elif len(hours) == 1 and is_run(minutes):
        return f"every minute from {first} to {last}"
    return f"at {_values_in_words(minutes, 'minute', 60)} of {_values_in_words(hours, 'hour', 24)}"


def _days_in_words(fields: CronFields) -> str:
    """Return the days in words, empty for every day."""
    if not fields.day_and and not any(day < 0 or day <= longest_of(fields) for day in fields.days):
        return _weekdays_in_words(fields)  # there is no such date, as 31 February
    every_date = fields.days.issuperset(range(1, 32))
    every_weekday = {day % 7 for day in fields.weekdays if isinstance(day, int)}.issuperset(range(7))
    if (every_date and every_weekday) or (not fields.day_and and (every_date or every_weekday)):
        return ""
    if every_weekday:
        return _dates_in_words(fields)
    if every_date:
        return _weekdays_in_words(fields)
    if fields.day_and:
        return f"{_dates_in_words(fields)}, if it is {_weekdays_as_condition(fields)}"
    return f"{_dates_in_words(fields)}, and {_weekdays_in_words(fields)}"


def _months_in_words(fields: CronFields) -> str:
    if len(fields.months) == 12:
        return _EVERY_MONTH
    return _runs_in_words(fields.months, lambda month: _MONTHS[month - 1])


def _dates_in_words(fields: CronFields) -> str:
    dates = sorted(day for day in fields.days if 0 < day <= longest_of(fields))
    if len(dates) == len(fields.months) == 1 and not any(day < 0 for day in fields.days):
        return f"on {dates[0]} {_months_in_words(fields)}"
    step = step_of(dates)
    if step is not None and step > 1 and len(dates) > 3:
        parts = [f"every {ordinal(step)} day from the {ordinal(dates[0])} to the {ordinal(dates[-1])}"]
    else:
        parts = [f"the {_runs_in_words(dates, ordinal)}"] if dates else []
    if LAST_DAY in fields.days:
        parts.append("the last day")
    if LAST_WEEKDAY in fields.days:
        parts.append("the last day from Monday to Friday")
    return f"on {_join(parts)} of {_months_in_words(fields)}"


def longest_of(fields: CronFields) -> int:
    """Return how many days the longest of the months has."""
    return max(29 if month == 2 else 30 if month in {4, 6, 9, 11} else 31 for month in fields.months)


def _weekdays_in_words(fields: CronFields) -> str:
    whole, nth = _split_weekdays(fields)
    parts = []
    if whole:
        names = _weekday_runs_in_words(whole)
        months = "" if len(fields.months) == 12 else f" in {_months_in_words(fields)}"
        parts.append(f"{'' if ' to ' in names else 'every '}{names}{months}")
    if nth:
        parts.append(f"on {_join(nth)} of {_months_in_words(fields)}")
    return ", and ".join(parts)


def _weekdays_as_condition(fields: CronFields) -> str:
    whole, nth = _split_weekdays(fields)
    names = _weekday_runs_in_words(whole).replace(" and ", " or ") if whole else ""
    parts = [names if " to " in names else f"a {names}"] if names else []
    return " or ".join(parts + [f"{name} of the month" for name in nth])


def _split_weekdays(fields: CronFields) -> tuple[list[int], list[str]]:
    whole, nth = split_weekdays(fields)
    return whole, [f"the {_NTH[week]} {_WEEKDAYS[day]}" for week, day in nth]


def split_weekdays(fields: CronFields) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the weekdays of every week from Monday on, and the weekdays of a certain week of the month."""
    whole = sorted({day % 7 for day in fields.weekdays if isinstance(day, int)}, key=lambda day: (day - 1) % 7)
    nth = {(day[1], day[0] % 7) for day in fields.weekdays if isinstance(day, tuple)}
    return whole, sorted(nth, key=lambda pair: (pair[0] if pair[0] > 0 else 6, pair[1]))


def _weekday_runs_in_words(days: Sequence[int]) -> str:
    return _runs_in_words([(day - 1) % 7 for day in days], lambda day: _WEEKDAYS[(day + 1) % 7])


def _values_in_words(values: Sequence[int], unit: str, size: int) -> str:
    """Return the values of a field in words: "every hour", "minutes 1, 2 and 7", "every 7th minute from 0 to 56"."""
    if len(values) == size:
        return f"every {unit}"
    if len(values) == 1:
        return f"{unit} {values[0]}"
    step = step_of(values)
    if step is not None and step > 1 and len(values) > 3:
        return f"every {ordinal(step)} {unit} from {values[0]} to {values[-1]}"
    return f"{unit}s {_runs_in_words(values, str)}"


def _runs_in_words(values: Sequence[int], name: Callable[[int], str]) -> str:
    """Return sorted values as names, three or more neighbours as a run: "1 to 3, 7 and 8"."""
    parts: list[str] = []
    for first, last in runs_of(values):
        parts.append(name(first) if first == last else f"{name(first)} to {name(last)}")
    return _join(parts)


def runs_of(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of three or more neighbours in sorted values; others stand alone."""
    runs: list[tuple[int, int]] = []
    position = 0
    while position < len(values):
        end = position
        while end + 1 < len(values) and values[end + 1] == values[end] + 1:
            end += 1
        if end - position >= 2:
            runs.append((values[position], values[end]))
        else:
            runs.extend((value, value) for value in values[position : end + 1])
        position = end + 1
    return runs


def step_of(values: Sequence[int]) -> int | None:
    """Return the distance between two or more values, if it is always the same."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else None


def even_step(values: Sequence[int], size: int) -> int | None:
    """Return the step of values that go round the clock evenly: 0, 15, 30, 45 of 60."""
    step = step_of(values)
    return step if step is not None and values[0] == 0 and step * len(values) == size else None


def is_run(values: Sequence[int]) -> bool:
    """Whether sorted values have no gap."""
    return values[-1] - values[0] == len(values) - 1


def _every_in_words(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def clock_text(hour: int, minute: int, second: int) -> str:
    """Return a time of day, without seconds that are zero."""
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


def ordinal(number: int) -> str:
    """Return a number that counts in order: 1st, 2nd, 11th."""
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
