"""Schedules in Chinese: from the sets of values that a trigger has, as ``triggers/cron_words.py`` does in English."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta

from cronsensus.timing.durations import format_duration
from cronsensus.timing.instants import EPOCH, format_instant
from cronsensus.triggers.at import At
from cronsensus.triggers.base import AnyOf, Trigger
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.cron_words import (
    MOST_TIMES,
    clock_text,
    even_step,
    is_run,
    longest_of,
    parts_of,
    runs_of,
    split_weekdays,
    step_of,
)
from cronsensus.triggers.every import Every
from cronsensus.triggers.fields import LAST_DAY, LAST_WEEKDAY, CronFields, read_cron
from cronsensus.triggers.zones import load_zone

_DST = {"cron": "", "both": "，时钟回拨时运行两次", "skip": "，时钟跳过时不运行"}
_UNITS = {
    "month": "个月", "week": "周", "day": "天", "hour": "小时", "minute": "分钟", "second": "秒", "millisecond": "毫秒",
    "microsecond": "微秒",
}  # fmt: skip
_WEEKDAYS = "日一二三四五六"
_NTH = {1: "第一个", 2: "第二个", 3: "第三个", 4: "第四个", 5: "第五个", LAST_DAY: "最后一个"}


def schedule_in_chinese(trigger: Trigger) -> str:
    """Return a schedule in Chinese; a trigger of a user's own class keeps its own description."""
    match trigger:
        case At():
            return f"仅一次：{format_instant(trigger.instant)}{_bounds(None, None, trigger.jitter)}"
        case Every():
            start = None if trigger.start == EPOCH else trigger.start
            return f"每{_counts(parts_of(trigger.interval))}{_bounds(start, trigger.end, trigger.jitter)}"
        case AnyOf():
            return "；以及".join(map(schedule_in_chinese, trigger.parts)) + _bounds(None, None, trigger.jitter)
        case Cron():
            return _cron(trigger)
        case _:
            return trigger.describe()


def _cron(trigger: Cron) -> str:
    text, start = _fields(read_cron(trigger.expression)), trigger.start
    if trigger.every is not None and start is not None:
        local = start.astimezone(load_zone(trigger.tz))
        every = _counts([(trigger.every.number, trigger.every.unit)])
        for prefix in ("每天 ", "每月 ", "每月"):
            text = text.removeprefix(prefix)
        text = f"自 {local:%Y-%m-%d} 起每{every}：{text[1:] if text.startswith('每周') else text}"
        start = None if local.time() == time.min else start
    return f"{text}，{trigger.tz}{_DST[trigger.dst]}{_bounds(start, trigger.end, trigger.jitter)}"


def _bounds(start: datetime | None, end: datetime | None, jitter: timedelta) -> str:
    return (
        ("" if start is None else f"，自 {format_instant(start)} 起")
        + ("" if end is None else f"，至 {format_instant(end)} 为止")
        + (f"，最多延迟 {format_duration(jitter)}" if jitter else "")
    )


def _counts(parts: Sequence[tuple[int, str]]) -> str:
    """Return what follows 每: "分钟", " 5 分钟", " 1 小时 30 分钟"."""
    if len(parts) == 1 and parts[0][0] == 1:
        return _UNITS[parts[0][1]]
    return "".join(f" {count} {_UNITS[unit]}" for count, unit in parts)


def _fields(fields: CronFields) -> str:
    times, is_list = _times(fields)
    days = _days(fields)
    if not days and len(fields.months) < 12:
        days = f"{_months(fields)}每天"
    return f"{days or ('每天' if is_list else '')} {times}".strip().replace("） ", "）")


def _times(fields: CronFields) -> tuple[str, bool]:
    """Return the times of the day, and whether they are a list of clock times."""
    seconds, minutes, hours = fields.seconds, fields.minutes, fields.hours
    if len(seconds) == 1 and len(minutes) * len(hours) <= MOST_TIMES:
        return "、".join(clock_text(hour, minute, seconds[0]) for hour in hours for minute in minutes), True
    if seconds == (0,):
        return _frequency(minutes, hours), False
    hours_text = "" if len(minutes) == 60 and len(hours) == 24 else _of_hours(minutes, hours)
    step = even_step(seconds, 60)
    if step:
        if hours_text and is_run(hours) and (len(minutes) == 60 or (len(hours) == 1 and is_run(minutes))):
            start = f"{hours[0]:02}:{minutes[0]:02}:{seconds[0]:02}"
            hours_text = f"{start} 至 {clock_text(hours[-1], minutes[-1], seconds[-1])}"
        return f"{hours_text} 每{_counts([(step, 'second')])}".strip(), False
    return f"{hours_text or '每分钟'}的{_values(seconds, '秒', 60)}", False


def _frequency(minutes: tuple[int, ...], hours: tuple[int, ...]) -> str:
    """Return minutes and hours at second 0."""
    span = f"{clock_text(hours[0], minutes[0], 0)} 至 {clock_text(hours[-1], minutes[-1], 0)} "
    step, hour_step = even_step(minutes, 60), step_of(hours)
    if len(minutes) == 1 and hour_step is not None:
        whole_day = minutes[0] == 0 and hour_step == even_step(hours, 24)
        if len(hours) == 24 and not whole_day:
            return _of_hours(minutes, hours)
        return f"{'' if whole_day else span}每{_counts([(hour_step, 'hour')])}"
    if step and len(minutes) > 1:
        of = "" if len(hours) == 24 else span if is_run(hours) else f"{_values(hours, '时', 24)}，"
        return f"{of}每{_counts([(step, 'minute')])}"
    if len(hours) == 1 and len(minutes) > 1 and is_run(minutes):
        return f"{span}每分钟"
    return _of_hours(minutes, hours)


def _of_hours(minutes: Sequence[int], hours: Sequence[int]) -> str:
    of = "每小时" if len(hours) == 24 else _values(hours, "时", 24)
    return f"{of}的{_values(minutes, '分', 60)}"


def _values(values: Sequence[int], unit: str, size: int) -> str:
    """Return values of one field: "每分", "第 7 分", "第 1、2 分", "第 0 至 56 分（间隔 7 分）"."""
    if len(values) == size:
        return f"每{unit}"
    step = step_of(values)
    if step is not None and step > 1 and len(values) > 3:
        return f"第 {values[0]} 至 {values[-1]} {unit}（间隔 {step} {unit}）"
    return f"第 {_runs(values)} {unit}"


def _runs(values: Sequence[int]) -> str:
    return "、".join(str(begin) if begin == end else f"{begin} 至 {end}" for begin, end in runs_of(values))


def _days(fields: CronFields) -> str:
    """Return the days, empty for every day; the cases are those of the English words."""
    if not fields.day_and and not any(day < 0 or day <= longest_of(fields) for day in fields.days):
        return _weekdays(fields)
    every_date = fields.days.issuperset(range(1, 32))
    every_weekday = len(split_weekdays(fields)[0]) == 7
    if (every_date and every_weekday) or (not fields.day_and and (every_date or every_weekday)):
        return ""
    if every_weekday:
        return _dates(fields)
    if every_date:
        return _weekdays(fields)
    if fields.day_and:
        return f"{_dates(fields)}中的{_weekday_names(fields)}"
    return f"{_dates(fields)}，以及{_weekdays(fields)}"


def _months(fields: CronFields) -> str:
    return "每月" if len(fields.months) == 12 else f"每年 {_runs(fields.months)} 月"


def _dates(fields: CronFields) -> str:
    dates = sorted(day for day in fields.days if 0 < day <= longest_of(fields))
    step = step_of(dates)
    if step is not None and step > 1 and len(dates) > 3:
        parts = [f" {dates[0]} 至 {dates[-1]} 日（间隔 {step} 天）"]
    else:
        parts = [f" {_runs(dates)} 日"] if dates else []
    if LAST_DAY in fields.days:
        parts.append("最后一天")
    if LAST_WEEKDAY in fields.days:
        parts.append("最后一个工作日（周一至周五）")
    return f"{_months(fields)}{'和'.join(parts)}"


def _weekdays(fields: CronFields) -> str:
    plain_days, nth = split_weekdays(fields)
    months = "" if len(fields.months) == 12 else f"{_months(fields)}的"
    parts = [f"{months}每{_week(plain_days)}"] if plain_days else []
    return "，以及".join(parts + ([_months(fields) + _weeks(nth)] if nth else []))


def _weekday_names(fields: CronFields) -> str:
    plain_days, nth = split_weekdays(fields)
    return "或".join(filter(None, [_week(plain_days) if plain_days else "", _weeks(nth)]))


def _week(days: Sequence[int]) -> str:
    runs = runs_of([(day - 1) % 7 for day in days])
    names = [[f"周{_WEEKDAYS[(day + 1) % 7]}" for day in dict.fromkeys(run)] for run in runs]
    return "、".join("至".join(run) for run in names)


def _weeks(nth: Sequence[tuple[int, int]]) -> str:
    return "、".join(f"{_NTH[week]}周{_WEEKDAYS[day]}" for week, day in nth)
