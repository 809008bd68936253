"""django-celery-beat's rows and RedBeat's entries, by beats in one process."""

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import schedule

from cronsensus import ConfigurationError, Scheduler
from cronsensus.integrations.celery import configure, wrap
from cronsensus.integrations.celery.configuring import _check_beat
from cronsensus.integrations.celery.naming import job_name, task_id
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.scratch import scratch_folder

PATIENCE = 30.0


@pytest.fixture(scope="module")
def models():
    with scratch_folder() as folder:
        os.environ["DJANGO_DB"] = str(folder / "shop.db")
        import_module("tests.integrations.celery_django")  # it configures Django, once in a process

        from django.core.management import call_command
        from django.db import connections
        from django_celery_beat import models as found

        call_command("migrate", verbosity=0)
        yield found
        connections.close_all()


@pytest.fixture
def rows(models):
    for model in (models.PeriodicTask, models.IntervalSchedule, models.CrontabSchedule, models.ClockedSchedule):
        model.objects.all().delete()
    return models


@pytest.fixture
def folder():
    with scratch_folder() as empty:
        yield empty


class Sent(list):  # type: ignore[type-arg]
    error: Exception | None = None

    def send_task(self, name, args, kwargs, **options):
        if self.error is not None:
            raise self.error
        self.append(SimpleNamespace(name=name, args=args, kwargs=kwargs, **options))
        return SimpleNamespace(id=options["task_id"])


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def make_beat(folder, sent):
    made = []

    def make():
        from django_celery_beat.schedulers import DatabaseScheduler

        app = Celery("one", broker="memory://", set_as_current=False)
        app.conf.update(timezone="UTC", result_expires=None, beat_max_loop_interval=1)
        configure(app, f"sqlite:///{folder / 'beat.db'}", lease="3s")
        one = wrap(DatabaseScheduler)(app=app)
        one.send_task = sent.send_task
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def tick_until(beats, condition, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for one in beats:
            one.tick()
        if found := condition():
            return found
        threading.Event().wait(0.005)
    raise AssertionError(f"{what} did not come")


def runs(folder, entry: str):
    scheduler = Scheduler(f"sqlite:///{folder / 'beat.db'}")
    try:
        return scheduler._opened.ready().occurrences(OccurrenceFilter(job=job_name(entry)), limit=500)
    finally:
        scheduler._opened.close()


def each_second(rows, name="tick", **more):
    every, _ = rows.IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    return rows.PeriodicTask.objects.create(name=name, task="shop.tick", interval=every, **more)


def test_the_winner_counts_each_send_once_and_an_edit_meanwhile_stays(rows, make_beat, sent):
    row = each_second(rows)
    beats = [make_beat(), make_beat(), make_beat()]
    tick_until(beats, lambda: len(sent) >= 1, "a send")
    rows.PeriodicTask.objects.filter(pk=row.pk).update(description="edited", args="[7]")
    before = len(sent)
    tick_until(beats, lambda: len(sent) >= before + 2, "further sends")
    for one in beats:
        one.sync()
    found = rows.PeriodicTask.objects.get(pk=row.pk)
    assert (found.total_run_count, found.description, found.args) == (len(sent), "edited", "[7]")
    times = [one.headers["cronsensus-time"] for one in sent]
    assert found.last_run_at == datetime.fromisoformat(times[-1]), "the time itself, not a machine's clock"
    assert len(set(times)) == len(times)
    assert [one.args for one in sent[before - 1 : before + 1]] == [[], [7]], "a send goes out as its row is then"


def test_a_row_that_runs_once_is_sent_once_and_disabled_before_it_is_sent(rows, make_beat, sent, folder):
    row = each_second(rows, one_off=True)
    beats = [make_beat(), make_beat()]
    seen = []

    def send_task(*args, **options):
        if options["headers"]["periodic_task_name"] == "tick":
            seen.append(rows.PeriodicTask.objects.get(pk=row.pk).enabled)
        return sent.send_task(*args, **options)

    for one in beats:
        one.send_task = send_task
    each_second(rows, "other")
    rows.PeriodicTasks.update_changed()
    tick_until(beats, lambda: len([one for one in sent if one.headers["periodic_task_name"] == "other"]) >= 3, "time")
    assert len([one for one in sent if one.headers["periodic_task_name"] == "tick"]) == 1
    assert seen == [False]
    found = rows.PeriodicTask.objects.get(pk=row.pk)
    assert (found.enabled, found.total_run_count) == (False, 0), "as django-celery-beat leaves it"


def test_of_two_times_of_a_row_that_runs_once_the_second_is_not_sent(rows, make_beat, sent, folder):
    row = each_second(rows, one_off=True)
    one = make_beat()
    # As the beat leaves it that has just won the time before, when this one has not seen that yet.
    before = datetime.now(UTC) - timedelta(seconds=1)
    rows.PeriodicTask.objects.filter(pk=row.pk).update(enabled=False, last_run_at=before)
    [skipped] = tick_until(
        [one], lambda: [run for run in runs(folder, "tick") if run.state is State.SKIPPED], "a time that is not sent"
    )
    assert (skipped.reason, list(sent)) == ("disabled", [])


def test_what_was_disabled_for_a_time_that_the_broker_did_not_take_is_sent_later(rows, make_beat, sent, folder):
    row = each_second(rows, one_off=True)
    one = make_beat()
    sent.error = OSError("no broker")
    tick_until([one], lambda: not rows.PeriodicTask.objects.get(pk=row.pk).enabled, "a try")
    sent.error = None
    tick_until([one], lambda: sent, "the send")
    [run] = [run for run in runs(folder, "tick") if run.state is not State.SKIPPED]
    assert [one.task_id for one in sent] == [task_id("tick", run.scheduled_for)]


def test_a_clocked_row_of_just_now_and_a_crontab_with_a_zone_are_sent_and_a_disabled_row_is_not(
    rows, make_beat, sent, folder
):
    now = datetime.now(UTC)
    clocked = rows.ClockedSchedule.objects.create(clocked_time=now - timedelta(seconds=1))
    rows.PeriodicTask.objects.create(name="clocked", task="shop.tick", clocked=clocked, one_off=True)
    there = datetime.now(ZoneInfo("Asia/Kolkata")) - timedelta(minutes=2)
    cron = rows.CrontabSchedule.objects.create(
        minute=str(there.minute), hour=str(there.hour), timezone=ZoneInfo("Asia/Kolkata")
    )
    daily = rows.PeriodicTask.objects.create(name="cron", task="shop.tick", crontab=cron)
    rows.PeriodicTask.objects.filter(pk=daily.pk).update(last_run_at=now - timedelta(hours=3))
    off = each_second(rows, "off", enabled=False)
    beats = [make_beat(), make_beat()]
    tick_until(beats, lambda: len(sent) >= 2, "both")
    one, other = sorted(sent, key=lambda one: one.headers["periodic_task_name"])
    assert datetime.fromisoformat(one.headers["cronsensus-time"]) == now - timedelta(seconds=1)
    assert datetime.fromisoformat(other.headers["cronsensus-time"]) == there.replace(second=0, microsecond=0)
    off.enabled = True
    off.save()
    tick_until(beats, lambda: any(one.headers["periodic_task_name"] == "off" for one in sent), "the edit")
    off.refresh_from_db()
    rows.PeriodicTask.objects.filter(pk=off.pk).update(enabled=False)
    before = len(sent)
    tick_until(beats, lambda: any(run.state is State.SKIPPED for run in runs(folder, "off")), "a time that is not sent")
    assert len(sent) == before, "a row that was disabled a moment ago was sent"


def test_a_row_whose_schedule_cannot_be_read_does_not_keep_the_others_from_being_sent(rows, make_beat, sent, caplog):
    each_second(rows)
    typo = rows.CrontabSchedule.objects.create(minute="nonsense")
    rows.PeriodicTask.objects.create(name="typo", task="shop.tick", crontab=typo)
    tick_until([make_beat()], lambda: sent, "a send")
    assert "typo has no schedule that names times, so it is not sent: edit it in the admin" in caplog.text


def test_a_beat_with_django_celery_beats_own_scheduler_says_what_to_write(rows, folder, caplog):
    from django_celery_beat.schedulers import DatabaseScheduler

    app = Celery("other", broker="memory://", set_as_current=False)
    configure(app, f"sqlite:///{folder / 'beat.db'}")
    _check_beat(SimpleNamespace(app=app, scheduler=DatabaseScheduler(app=app, lazy=True)))
    assert "Instead, write --scheduler cronsensus.integrations.celery:DatabaseScheduler" in caplog.text


def test_redbeats_entries_are_sent_once_by_beats_without_its_lock(redis_url, redis_server_url, folder, sent):
    from redbeat import RedBeatScheduler, RedBeatSchedulerEntry

    prefix = redis_url.rpartition("prefix=")[2]
    beats = []
    for _ in range(2):
        app = Celery("red", broker="memory://", set_as_current=False)
        app.conf.update(
            timezone="UTC", redbeat_redis_url=redis_server_url, redbeat_key_prefix=f"{prefix}.", redbeat_lock_key=None
        )
        configure(app, f"sqlite:///{folder / 'beat.db'}", lease="3s")
        beats.append(wrap(RedBeatScheduler)(app=app))
        beats[-1].send_task = sent.send_task
    try:
        entry = RedBeatSchedulerEntry("tick", "shop.tick", schedule(0.5), app=app).save()
        tick_until(beats, lambda: len(sent) >= 4, "sends")
        times = [datetime.fromisoformat(one.headers["cronsensus-time"]) for one in sent]
        assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=0.5)}
        entry.delete()
        tick_until(beats, lambda: not any(one.schedule for one in beats), "the edit")
    finally:
        for one in beats:
            one.close()


def test_redbeats_lock_is_refused_with_what_to_set(folder):
    from redbeat import RedBeatScheduler

    app = Celery("red", broker="redis://127.0.0.1/0", set_as_current=False)
    app.conf.redbeat_redis_url = "redis://127.0.0.1/0"
    configure(app, f"sqlite:///{folder / 'beat.db'}")
    with pytest.raises(ConfigurationError, match="set redbeat_lock_key = None: its lock keeps the other beats idle"):
        wrap(RedBeatScheduler)(app=app)
