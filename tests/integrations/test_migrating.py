"""APScheduler's jobs as code of ours: what is printed runs, and fires at the same times."""

import importlib
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from apscheduler.events import EVENT_JOB_ERROR
from apscheduler.executors.base import BaseExecutor
from apscheduler.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from cronsensus.integrations.apscheduler.migrating import migrate

NOW = datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)


def work(*args, **kwargs): ...


async def awork(): ...


def scheduler_with(*, executors=None, **options) -> BackgroundScheduler:
    scheduler = BackgroundScheduler(timezone="UTC", executors=executors or {})
    options.setdefault("trigger", "cron")
    scheduler.add_job(options.pop("func", work), id=options.pop("id", "one"), **options)
    return scheduler


def made(scheduler):
    """Run the printed program; return it, and its jobs by name."""
    found = migrate(scheduler, NOW)
    space: dict[str, Any] = {}
    exec(compile(found.code, "printed", "exec"), space)
    return found, {name: job.spec for name, job in space["scheduler"].jobs.items()}


def times_there(trigger, count):
    previous, now = None, NOW
    for _ in range(count):
        previous = trigger.get_next_fire_time(previous, now)
        while previous is not None and previous <= NOW:  # a calendar interval names its start first, also a past one
            previous = trigger.get_next_fire_time(previous, now)
        if previous is None:
            return
        now = previous
        yield previous.astimezone(UTC)


def times_here(trigger, count):
    found = NOW
    for _ in range(count):
        found = trigger.next_after(found)
        if found is None:
            return
        yield found


@pytest.mark.parametrize(
    "trigger",
    [
        CronTrigger(hour=3, timezone="UTC"),
        CronTrigger(hour="3,15", minute="*/20", timezone="Asia/Shanghai"),
        CronTrigger(second="*/7", timezone="UTC"),
        CronTrigger(second="5-40/7", minute="3/10", timezone="UTC"),
        CronTrigger(day_of_week="mon-fri", hour=9, timezone="UTC"),
        CronTrigger(day_of_week="0,6", hour=9, timezone="UTC"),
        CronTrigger(day_of_week="*/2", timezone="UTC"),
        CronTrigger(day="*/5", day_of_week="tue", timezone="UTC"),
        CronTrigger(day="last", hour=23, timezone="UTC"),
        CronTrigger(day="1,15,last", timezone="UTC"),
        CronTrigger(day="2nd fri, last mon", hour=1, timezone="UTC"),
        CronTrigger(day="5th sun", timezone="UTC"),
        CronTrigger(month="jan-mar,12", day="29-31/2", timezone="UTC"),
        CronTrigger(month="*/5", timezone="UTC"),
        CronTrigger(hour=4, start_date="2026-02-01 04:00:00", end_date="2026-02-09 04:00:00", timezone="UTC"),
        CronTrigger.from_crontab("*/15 8-18 * * mon-fri", timezone="UTC"),
        IntervalTrigger(minutes=7, start_date="2026-01-01 00:01:00", timezone="UTC"),
        IntervalTrigger(days=1, hours=1, start_date="2025-06-01 12:00:00", end_date="2026-01-09", timezone="UTC"),
        CalendarIntervalTrigger(weeks=2, hour=9, start_date="2025-12-01", timezone="Europe/Berlin"),
        CalendarIntervalTrigger(days=3, hour=2, minute=30, start_date="2025-06-01", timezone="Europe/Berlin"),
        CalendarIntervalTrigger(years=1, months=6, start_date="2025-06-30", end_date="2040-06-30", timezone="UTC"),
        DateTrigger("2026-03-04 05:06:07", timezone="Asia/Shanghai"),
        OrTrigger([CronTrigger(hour=3, timezone="UTC"), CronTrigger(day="last", hour=12, timezone="Asia/Tokyo")]),
    ],
    ids=str,
)
def test_migrated_trigger_fires_at_the_same_times(trigger):
    _, jobs = made(scheduler_with(trigger=trigger))
    here = list(times_here(jobs["one"].trigger, 50))
    assert here == list(islice(times_there(trigger, 50), 50))
    assert here


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (CronTrigger(week=7), "a cron text has no week"),
        (CronTrigger(year=2027), "a cron text has no year"),
        (CronTrigger(day="1-7", day_of_week="mon"), "wants both to match"),
        (CronTrigger(day="1st mon, 9"), "either days of the month or weekdays"),
        (CalendarIntervalTrigger(months=1, days=1, timezone="UTC"), "every= counts days, weeks or months"),
        (AndTrigger([CronTrigger(hour=3), CronTrigger(day="last")]), "AndTrigger"),
        (CronTrigger(hour=3, timezone=datetime.now().astimezone().tzinfo), "a zone has to have a name"),
    ],
)
def test_trigger_without_an_equivalent_is_left_out_and_says_why(trigger, words):
    found, jobs = made(scheduler_with(trigger=trigger))
    assert not jobs
    assert found.left_out == 1
    assert "one: not written: " in found.code
    assert words in found.code


def test_clock_change_that_the_two_treat_differently_is_remarked():
    trigger = CronTrigger(hour=2, minute=30, timezone="Europe/Berlin")
    found, jobs = made(scheduler_with(trigger=trigger))
    assert jobs["one"].trigger.describe() == "at 02:30 every day, Europe/Berlin"
    there, here = list(times_there(trigger, 300)), list(times_here(jobs["one"].trigger, 300))
    assert there != here
    assert "one: the first time that differs" in found.code


def test_policies_and_arguments_are_carried_over():
    scheduler = scheduler_with(
        args=[1, "two"], kwargs={"three": 3}, misfire_grace_time=90, coalesce=False, max_instances=3, jitter=5, hour=3
    )
    found, jobs = made(scheduler)
    spec = jobs["one"]
    assert (spec.args, spec.kwargs) == ((1, "two"), {"three": 3})
    assert spec.policies.grace == timedelta(seconds=90)
    assert (spec.policies.catch_up, spec.policies.overlap, spec.policies.concurrency) == ("all", "allow", 3)
    assert spec.trigger.jitter == timedelta(seconds=5)
    assert "one: max_instances=3 counts in the whole cluster here" in found.code


def test_defaults_of_the_scheduler_are_those_of_its_jobs():
    scheduler = BackgroundScheduler(
        timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 2}
    )
    scheduler.add_job(work, "cron", id="one")
    _, jobs = made(scheduler)
    policies = jobs["one"].policies
    assert (policies.grace, policies.catch_up, policies.concurrency) == (None, "all", 2)


def test_executors_become_those_of_the_same_kind():
    executors = {"default": ThreadPoolExecutor(), "processes": ProcessPoolExecutor(1)}
    scheduler = scheduler_with(executors=executors, hour=3)
    scheduler.add_job(work, "cron", id="child", executor="processes")
    scheduler.add_job(awork, "cron", id="loop")
    scheduler.add_job(work, "cron", id="nowhere", executor="nowhere")
    found, jobs = made(scheduler)
    assert {name: spec.executor for name, spec in jobs.items()} == {
        "one": "thread",
        "child": "process",
        "loop": "async",
    }
    assert "nowhere: not written: its executor 'nowhere' is not there" in found.code


def test_executor_of_another_kind_is_left_out():
    class Own(BaseExecutor):  # type: ignore[misc]
        def _do_submit_job(self, job, run_times): ...

    found, jobs = made(scheduler_with(executors={"default": Own()}))
    assert not jobs
    assert "its executor 'default' is a Own" in found.code


def test_what_is_in_shared_stores_and_listeners_is_said():
    scheduler = BackgroundScheduler(jobstores={"shared": SQLAlchemyJobStore("sqlite://")}, timezone="UTC")
    scheduler.add_listener(work, EVENT_JOB_ERROR)
    found, jobs = made(scheduler)
    assert not jobs
    assert "the job store 'shared' (SQLAlchemyJobStore) is not read" in found.code
    assert "listeners are not carried over" in found.code


def test_job_that_no_other_process_could_run_is_left_out():
    scheduler = scheduler_with(args=[object()])
    scheduler.add_job(lambda: None, "cron", id="nameless")
    found, jobs = made(scheduler)
    assert not jobs
    assert "one: not written: args are not JSON" in found.code
    assert "nameless: not written: its function is no function at the top level" in found.code


def test_jobs_without_an_id_get_names_that_differ():
    scheduler = scheduler_with(trigger="interval", minutes=5, id=None)
    scheduler.add_job(work, "cron")
    scheduler.add_job(work, "cron", next_run_time=None)
    found, jobs = made(scheduler)
    assert [*jobs] == ["work", "work-2", "work-3"]
    assert found.code.count("it had a random id") == 3
    assert "its interval counted from the start of each process" in found.code
    assert "it was added paused" in found.code


def test_function_that_is_called_like_something_of_ours_is_imported_under_another_name(tmp_path, monkeypatch):
    (tmp_path / "of_a_shop.py").write_text("def scheduler(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    of_a_shop = importlib.import_module("of_a_shop")

    found, jobs = made(scheduler_with(func=of_a_shop.scheduler, hour=3))
    assert "from of_a_shop import scheduler as scheduler_2" in found.code
    assert [*jobs] == ["one"]
    sys.modules.pop("of_a_shop")


def test_asyncio_scheduler_is_read_without_a_loop():
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    scheduler = AsyncIOScheduler(timezone="UTC")
    scheduler.add_job(awork, "cron", id="loop")
    _, jobs = made(scheduler)
    assert jobs["loop"].executor == "async"


def test_weekdays_by_number_are_written_as_they_are_there_and_told():
    scheduler = scheduler_with(trigger=CronTrigger.from_crontab("0 9 * * 1", timezone="UTC"))
    found, jobs = made(scheduler)
    assert jobs["one"].trigger.describe() == "at 09:00 every Tuesday, UTC"
    assert "# one: day_of_week='1' is TUE" in found.code
    assert "if it came from a crontab, where 0 is Sunday, write MON" in found.code
    found, _ = made(scheduler_with(trigger=CronTrigger.from_crontab("0 9 * * 6,wed", timezone="UTC")))
    assert "day_of_week='6' is SUN" in found.code
    found, _ = made(scheduler_with(trigger=CronTrigger.from_crontab("0 9 * * mon", timezone="UTC")))
    assert "day_of_week" not in found.code
