"""Schedules of Celery as triggers of ours."""

from __future__ import annotations

import sys
from typing import Any

from celery.schedules import BaseSchedule, crontab, schedule, solar

from cronsensus.integrations.celery.crontab_text import cron_text
from cronsensus.integrations.layout import Call, quoted
from cronsensus.integrations.migration import NoEquivalent, made_from, name_of_zone
from cronsensus.timing.durations import format_duration

SETTING = "app.conf.timezone = 'Europe/Berlin'"


def native_call(found: Any) -> Call:
    """Return the call that makes a trigger with the times of a schedule; it was tried.

    Raises:
        NoEquivalent: there is none.
    """
    call = _call_of(found)
    made_from(str(call))
    return call


def _call_of(found: Any) -> Call:
    if isinstance(found, BaseSchedule) and found.nowfun is not None:
        raise NoEquivalent(
            f"nowfun= of {found!r}: here the store's clock decides; for another zone write cron(…, tz=…)"
        )
    if type(found) is schedule:
        return Call("every", [quoted(format_duration(found.run_every))])
    if isinstance(found, crontab) and found.remaining_delta.__func__ is crontab.remaining_delta:
        text = cron_text(
            minute=found._orig_minute,
            hour=found._orig_hour,
            day_of_week=found._orig_day_of_week,
            day_of_month=found._orig_day_of_month,
            month_of_year=found._orig_month_of_year,
        )
        return Call("cron", [quoted(text), f"tz={quoted(name_of_zone(found.tz, setting=SETTING))}"])
    if _is_clocked(found):
        return Call("at", [quoted(found.clocked_time.isoformat())])
    if isinstance(found, solar):
        raise NoEquivalent(
            f"solar({found.event!r}, …): write a job of each morning that computes the time, and in it "
            "job.options(at=…).enqueue() of the one that does the work"
        )
    raise NoEquivalent(
        f"{type(found).__name__}: triggers are cron, every, at and any_of; write one of these, or keep beat for it: "
        "configure(app)"
    )


def _is_clocked(found: Any) -> bool:
    module = sys.modules.get("django_celery_beat.clockedschedule")
    return module is not None and isinstance(found, module.clocked)
