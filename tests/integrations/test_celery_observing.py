"""``configure(…, observe=True)``: beat sends what it sends without it, and that is counted."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Celery, beat
from celery.schedules import crontab, schedule

from cronsensus import ConfigurationError, Scheduler
from cronsensus.external.observed import Observed, read_observed
from cronsensus.integrations.celery import configure, wrap
from cronsensus.integrations.celery.configuring import _check_beat
from cronsensus.integrations.celery.naming import job_name
from cronsensus.integrations.celery.observing import latest_time
from cronsensus.model.occurrence import OccurrenceFilter
from tests.scratch import scratch_folder

HERE = Path(__file__).parent
PATIENCE = 30.0


@pytest.fixture
def folder():
    with scratch_folder() as empty:
        (empty / "box").mkdir()
        yield empty


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'beat.db'}"


def observed(folder: Path) -> Observed:
    reader = Scheduler(url_in(folder))
    try:
        return read_observed(reader._opened.ready())
    finally:
        reader.stop()


def start_beat(folder: Path, observe: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "BROKER": "filesystem://", "BOX": str(folder / "box"), "OUT": str(folder / "out"),
        "CRONSENSUS_URL": url_in(folder), "PYTHONPATH": str(HERE), "CRONSENSUS_OBSERVE": observe,
    }  # fmt: skip
    file = folder / f"schedule{time.monotonic_ns()}"
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "beat", "-l", "INFO", "--pidfile=", "-s", str(file)]
    with file.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def messages(folder: Path) -> list[dict[str, str]]:
    """Return the headers of what was sent."""
    found = []
    for message in (folder / "box").glob("*.msg"):
        with contextlib.suppress(ValueError):  # it is being written
            found.append(json.loads(message.read_text(encoding="utf-8"))["headers"])
    return found


def test_what_each_beat_sends_unchanged_is_counted_beside_a_beat_that_is_guarded(folder):
    started = [start_beat(folder, observe) for observe in ("1", "1", "0")]
    try:
        until = time.monotonic() + PATIENCE
        while len(found := Counter(one["origin"] for one in messages(folder))) < 3 or min(found.values()) < 3:
            assert time.monotonic() < until, f"three beats did not send: {found}"
            time.sleep(0.05)
        for one in started:
            one.send_signal(signal.SIGTERM)
        for one in started:
            assert one.wait(PATIENCE) == 0
    finally:
        for one in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(PATIENCE)
    bare = [one for one in messages(folder) if "cronsensus-job" not in one]
    assert len({one["origin"] for one in bare}) == 2
    [job] = observed(folder).jobs
    assert job.job == job_name("tick")
    assert job.replicas >= 2
    assert 0 <= len(bare) - job.runs <= 2, "all but those in the middle of which a beat was told to end"
    assert job.guarded >= 2, "the guarded beat sent the same times"
    assert job.prevented == job.runs - job.times + job.guarded


class Sent:
    """What an app sends."""

    def __init__(self) -> None:
        self.options: list[dict[str, object]] = []

    def send_task(self, name, args, kwargs, **options):
        del name, args, kwargs
        self.options.append({key: value for key, value in options.items() if key != "producer"})
        return SimpleNamespace(id="one")


def app_with(folder, entries, **options) -> Celery:
    app = Celery("one", broker="memory://", set_as_current=False)
    app.conf.beat_schedule = entries
    configure(app, url_in(folder), **options)
    return app


def tick_all(app, kind, sent: Sent, count: int):
    """Send the entries of an app, and return the scheduler of beat that did it."""
    scheduler = kind(app=app)
    _check_beat(SimpleNamespace(app=app, scheduler=scheduler))  # the signal of a beat that starts
    scheduler.send_task = sent.send_task
    until = time.monotonic() + PATIENCE
    while len(sent.options) < count:
        assert time.monotonic() < until
        scheduler.tick()
    scheduler.close()
    return scheduler


class NamesNoTime(schedule):  # type: ignore[misc]
    def is_due(self, last_run_at):
        del last_run_at
        return True, 60


@pytest.mark.parametrize("kind", [beat.Scheduler, wrap(beat.Scheduler)], ids=["own", "guarded by name"])
def test_entries_are_sent_as_they_are_and_those_that_no_guard_would_hold_are_not_counted(folder, kind, caplog):
    entries = {
        "tick": {"task": "shop.tick", "schedule": 0.01, "options": {"queue": "slow"}},
        "each": {"task": "shop.each", "schedule": 0.01, "options": {"once": False}},
        "odd": {"task": "shop.odd", "schedule": NamesNoTime(60)},
    }
    sent = Sent()
    app = app_with(folder, entries, observe=True)
    scheduler = tick_all(app, kind, sent, 30)
    assert type(scheduler) is beat.Scheduler
    assert type(scheduler.schedule["tick"].schedule) is schedule
    assert {tuple(options) for options in sent.options} == {("queue", "headers"), ("headers",)}
    assert {str(options["headers"]) for options in sent.options} == {"{'celery_beat_task': True}"}, (
        "but for Celery's own"
    )
    [job] = observed(folder).jobs
    assert (job.job, job.runs) == (job_name("tick"), sum("queue" in options for options in sent.options))
    assert caplog.text.count("not observed, and refused without observe: the entry 'odd'") == 1
    reader = Scheduler(url_in(folder))
    assert reader.store.occurrences(OccurrenceFilter(job=job_name("tick"))) == []
    reader.stop()


def test_an_app_that_is_observed_keeps_its_settings_and_its_tasks(folder, monkeypatch):
    monkeypatch.setenv("CRONSENSUS_OBSERVE", "1")
    app = app_with(folder, {})

    @app.task(shared=False)
    def work(): ...

    bare = Celery("bare", broker="memory://", set_as_current=False)
    app.finalize()
    for setting in ("beat_scheduler", "task_acks_late", "task_reject_on_worker_lost"):
        assert app.conf[setting] == bare.conf[setting]
    assert not hasattr(work, "_cronsensus")
    assert app.steps["worker"] == bare.steps["worker"]


def test_a_scheduler_over_the_guarded_one_is_told_what_to_write(folder):
    class Own(wrap(beat.Scheduler)): ...  # type: ignore[misc]

    with pytest.raises(ConfigurationError, match=r"and wrap that: wrap\(OwnScheduler\)"):
        Own(app=app_with(folder, {}, observe=True))
    assert isinstance(Own(app=app_with(folder, {}), lazy=True), Own)


@pytest.mark.parametrize(
    ("given", "last", "now", "time"),
    [
        (30, "11:59:40", "12:00:17", "12:00:00"),
        (30, "12:00:17", "12:00:47", "12:00:30"),
        (3600, "12:00:17", "12:00:18", "12:00:00"),  # by hand, between two of its times
        (crontab(minute="*/5"), "11:55:00", "12:00:00.1", "12:00:00"),
        (schedule(3600, relative=True), "11:20:00", "12:00:01", "12:00:00"),
    ],
)
def test_the_latest_nominal_time_is_counted_whenever_a_beat_sends_it(given, last, now, time):
    def at(text):
        return datetime.fromisoformat(f"2026-11-28T{text}").replace(tzinfo=UTC)

    app = Celery("one", broker="memory://", set_as_current=False)
    entry = beat.ScheduleEntry(name="one", schedule=given, app=app, last_run_at=at(last))
    assert latest_time(entry, app, at(now)) == at(time)
    assert latest_time(entry, app, at(now) + timedelta(milliseconds=1)) == at(time), "of another beat"
