"""Refuse schedulers and jobs that cannot be guarded; the errors say what to write instead."""

from __future__ import annotations

import re
import sys
import threading
from datetime import UTC, datetime
from typing import Any

from cronsensus.errors import ConfigurationError, InvalidOption
from cronsensus.model.job import APSCHEDULER, name_kept_job
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.apscheduler")

_RANDOM_ID = re.compile(r"[0-9a-f]{32}")
"""The form of ids that APScheduler makes up."""


def check_scheduler(obj: Any) -> Any:
    """Return the scheduler to guard; for flask-apscheduler's, the scheduler inside of it.

    Raises:
        ConfigurationError: it cannot be guarded, or not now.
    """
    try:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler
        from apscheduler.schedulers.background import BackgroundScheduler
        from apscheduler.schedulers.base import BaseScheduler
        from apscheduler.schedulers.blocking import BlockingScheduler
    except ImportError as error:
        raise ConfigurationError(missing(error)) from error
    scheduler = obj if isinstance(obj, BaseScheduler) else getattr(obj, "scheduler", None)
    if not isinstance(scheduler, BaseScheduler):
        raise ConfigurationError(
            f"guard() takes a scheduler of APScheduler 3, and got {type(obj).__module__}.{type(obj).__qualname__}; "
            "write guard(BackgroundScheduler(), url)"
        )
    if not isinstance(scheduler, (BackgroundScheduler, BlockingScheduler, AsyncIOScheduler)):
        raise ConfigurationError(
            "guard() knows BackgroundScheduler, BlockingScheduler and AsyncIOScheduler, not "
            f"{type(scheduler).__name__}; use one of these"
        )
    if hasattr(scheduler, "_cronsensus"):
        raise ConfigurationError("this scheduler is guarded already; call guard() once")
    if scheduler.running:
        raise ConfigurationError(
            "this scheduler was started before it was guarded, and may have run something; call guard(scheduler, url) "
            "before scheduler.start()"
        )
    return scheduler


def missing(error: ImportError, who: str = "guard()") -> str:
    """Return the error that says what to install if APScheduler 3 is missing for ``who``."""
    try:
        from importlib.metadata import version

        installed = version("apscheduler")
    except Exception:  # noqa: BLE001 - it is not there
        return f'{who} needs APScheduler 3 ({error}); type: pip install "cronsensus[apscheduler]"'
    return (
        f"{who} is for APScheduler 3, and {installed} is installed, which has no apscheduler.schedulers ({error}); "
        'type: pip install "apscheduler>=3.10,<4"'
    )


def job_name(job_id: str) -> str:
    """Return the name of an APScheduler job in the store."""
    return name_kept_job(APSCHEDULER, job_id)


def is_memory(scheduler: Any, jobstore_alias: str) -> bool:
    """Whether a job store is this process's own."""
    from apscheduler.jobstores.memory import MemoryJobStore

    if not scheduler._jobstores and jobstore_alias == "default":
        return True  # the start makes it
    return isinstance(scheduler._lookup_jobstore(jobstore_alias), MemoryJobStore)


def has_random_id(job: Any) -> bool:
    """Whether APScheduler made up the id."""
    return _RANDOM_ID.fullmatch(job.id) is not None


def needs_no_guard(scheduler: Any, job: Any) -> bool:
    """Whether only this process knows of a job: a one-off without an id, added while the program runs."""
    from apscheduler.triggers.date import DateTrigger

    one_off = has_random_id(job) and isinstance(job.trigger, DateTrigger)
    return one_off and is_memory(scheduler, job._jobstore_alias)


def named(job: Any) -> str:
    """Return how an error names a job: by its id, if somebody gave it one."""
    return f"job {job.name!r}" if has_random_id(job) else f"job {job.id!r}"


def check_threads(scheduler: Any) -> None:
    """Refuse a thread of APScheduler that was made before gevent patched threads: it would never seem to end.

    Raises:
        ConfigurationError: a shutdown would wait for ever.
    """
    background = sys.modules.get("apscheduler.schedulers.background")
    if (
        background is not None
        and isinstance(scheduler, background.BackgroundScheduler)
        and background.Thread is not threading.Thread
    ):
        raise ConfigurationError(
            "gevent has patched this process after APScheduler was imported, so its shutdown() would wait for ever; "
            "patch first: write `from gevent import monkey; monkey.patch_all()` as the first line of gunicorn.conf.py, "
            "or start gunicorn without --preload"
        )


def check_jobs(scheduler: Any, *, align: bool) -> None:
    """Refuse, or align, all jobs that the start will add.

    Raises:
        InvalidOption: the errors of ``check_job`` for all of them.
    """
    refused = []
    for job, alias, _ in scheduler._pending_jobs:
        try:
            check_job(scheduler, job, alias, align=align, warn=False)
        except InvalidOption as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        lines = "".join(f"\n- {error}" for error in refused)
        raise InvalidOption(f"{len(refused)} jobs cannot be guarded as they are; correct each:{lines}")


def check_job(scheduler: Any, job: Any, jobstore_alias: str, *, align: bool, warn: bool = True) -> None:
    """Refuse, or align, a job whose times or name differ between processes; with ``warn``, log what may differ.

    Raises:
        InvalidOption: each process would run it at other times, or under another name.
    """
    from apscheduler.triggers.date import DateTrigger

    if not is_memory(scheduler, jobstore_alias):
        return  # ids and times are in the store that all share
    shown = named(job)
    random, trigger = has_random_id(job), job.trigger
    if isinstance(trigger, DateTrigger):
        if random or not trigger.run_date.microsecond or hasattr(job, "next_run_time"):
            return
        if trigger.run_date <= datetime.now(UTC):
            raise InvalidOption(
                f"{shown} has an id and no run_date, or one that has passed, so each process would run it at a moment "
                "of its own; give it a run_date, or for something that one process does at start use "
                "@scheduler.startup of cronsensus"
            )
        if warn:
            _log.warning(
                "%s has a run_date with microseconds (%s): if each process reckons it from its own now, each runs it; "
                "give all the same one", shown, trigger.run_date,
            )  # fmt: skip
        return
    wrong = []
    if random:
        wrong.append(
            f"{shown} has no id, so each process would call it by another one, and run it; write "
            f"add_job(…, id={getattr(job.func, '__name__', 'name')!r})"
        )
    try:
        shared = shared_trigger(shown, trigger, align=align)
    except InvalidOption as error:
        wrong.append(str(error))
    if (has_next := getattr(job, "next_run_time", None) is not None) and not align:
        wrong.append(
            f"{shown} has a next_run_time of its own, which differs between processes; leave it out, or write "
            "guard(…, align=True), which ignores it"
        )
    if wrong:  # all at once: people start the program again after each correction
        raise InvalidOption("; besides, ".join(wrong))
    if shared is not trigger:
        trigger = shared
        job._modify(trigger=trigger)
    if has_next:
        job._modify(next_run_time=trigger.get_next_fire_time(None, datetime.now(UTC)))


def shared_trigger(shown: str, trigger: Any, *, align: bool) -> Any:
    """Return a repeating trigger in the form with times that all processes share.

    Raises:
        InvalidOption: each process would have other times.
    """
    from apscheduler.triggers.interval import IntervalTrigger

    from cronsensus.integrations.apscheduler.aligned import EPOCH, Aligned
    from cronsensus.integrations.apscheduler.native_triggers import is_calendar_interval

    parts = getattr(trigger, "triggers", None)
    if isinstance(parts, list):  # AndTrigger and OrTrigger
        trigger.triggers = [shared_trigger(shown, part, align=align) for part in parts]
    if getattr(trigger, "jitter", None):
        if not align:
            raise InvalidOption(
                f"{shown} has jitter={trigger.jitter}, which each process draws for itself, so each would run it at "
                "another time; leave jitter out, or write guard(…, align=True), which takes it off"
            )
        trigger.jitter = None
    if is_calendar_interval(trigger) and trigger.start_date == datetime.now(trigger.timezone).date():
        raise InvalidOption(
            f"{shown} counts its days from today, as an interval of the calendar does by default, so processes "
            "that start on different days would run it on days of their own; give it a start_date that has passed "
            "(start_date='2026-01-01')"
        )
    if not isinstance(trigger, IntervalTrigger) or isinstance(trigger, Aligned):
        return trigger
    counts_from_own_start = trigger.start_date.microsecond != 0
    if counts_from_own_start and not align:
        raise InvalidOption(
            f"{shown} counts its interval from the moment at which its process started, so each process would run "
            "it at times of its own; give it a start_date (start_date='2026-01-01'), or write "
            "guard(…, align=True), which counts from 1970 on in all of them"
        )
    return Aligned.like(trigger, since=EPOCH if counts_from_own_start else trigger.start_date)


def check_change(scheduler: Any, job: Any, jobstore_alias: str, changes: dict[str, Any], *, align: bool) -> None:
    """Refuse, or align, the new trigger of a job.

    Raises:
        InvalidOption: each process would run it at other times.
    """
    from apscheduler.triggers.date import DateTrigger

    trigger = changes.get("trigger")
    if trigger is None or isinstance(trigger, DateTrigger) or not is_memory(scheduler, jobstore_alias):
        return
    before = (getattr(trigger, "jitter", None), getattr(trigger, "start_date", None))
    shared = changes["trigger"] = shared_trigger(named(job), trigger, align=align)
    after = (getattr(shared, "jitter", None), getattr(shared, "start_date", None))
    if before != after and changes.get("next_run_time") is not None:
        # It was computed from the old trigger.
        changes["next_run_time"] = shared.get_next_fire_time(None, datetime.now(UTC))
