"""Beat in several processes: each time of an entry is sent by one of them, also if one dies between two lines.

The broker is a folder: each message is a file in it, counted there.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import Celery, beat
from celery.schedules import crontab, schedule

from cronsensus import ConfigurationError, Scheduler
from cronsensus.audit import audit
from cronsensus.errors import StoreUnavailable
from cronsensus.integrations.celery import configure, part, wrap
from cronsensus.integrations.celery.configuring import _check_beat, _check_worker
from cronsensus.integrations.celery.naming import job_name, name_run, task_id
from cronsensus.integrations.celery.store_clock import StoreClock
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.timing.clock import ManualClock
from tests.scratch import scratch_folder

HERE = Path(__file__).parent
PATIENCE = 30.0


@pytest.fixture
def folder():
    with scratch_folder() as empty:
        (empty / "box").mkdir()
        yield empty


def wait_for(condition, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'beat.db'}"


def start_beat(folder: Path, **more: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "BROKER": "filesystem://", "BOX": str(folder / "box"), "OUT": str(folder / "out"),
        "CRONSENSUS_URL": url_in(folder), "PYTHONPATH": str(HERE), **more,
    }  # fmt: skip
    with (folder / f"log{time.monotonic_ns()}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_app", "beat", "-l", "INFO", "--pidfile="],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@contextlib.contextmanager
def killed_at_end(started: list[subprocess.Popen[bytes]]):
    try:
        yield
    finally:
        for one in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(PATIENCE)


def sent_ids(folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for message in (folder / "box").glob("*.msg"):
        with contextlib.suppress(ValueError):  # it is being written
            found[json.loads(message.read_text(encoding="utf-8"))["headers"]["id"]] += 1
    return found


def runs(url: str, entry: str):
    scheduler = Scheduler(url)
    try:
        return scheduler._opened.ready().occurrences(OccurrenceFilter(job=job_name(entry)), limit=500)
    finally:
        scheduler._opened.close()


def sent_times(folder: Path, entry: str = "tick") -> list[datetime]:
    return sorted(one.scheduled_for for one in runs(url_in(folder), entry) if one.reason == "sent")


def gaps(times: list[datetime]) -> set[timedelta]:
    return {later - earlier for earlier, later in pairwise(times)}


def test_three_beats_send_each_time_once_although_one_is_killed(folder):
    # A beat that is kept from running for longer than an interval skips a time, as ever.
    started = [start_beat(folder, EVERY="2") for _ in range(3)]
    with killed_at_end(started):
        wait_for(lambda: len(sent_ids(folder)) >= 2, "two sends")
        os.killpg(started[0].pid, signal.SIGKILL)
        wait_for(lambda: len(sent_ids(folder)) > 4, "more sends")
        stopped_at = datetime.now(UTC)
        for one in started[1:]:
            one.send_signal(signal.SIGTERM)
        for one in started[1:]:
            assert one.wait(PATIENCE) == 0
    # What a signal cut off at the end is left for a beat that starts later.
    times = [at for at in sent_times(folder) if at < stopped_at - timedelta(seconds=1)]
    assert gaps(times) == {timedelta(seconds=2)}, "a time was missed"
    sent = sent_ids(folder)
    assert set(sent) >= {task_id("tick", at) for at in times}, "a time was not sent"
    cut = {task_id("tick", run.scheduled_for) for run in runs(url_in(folder), "tick") if run.crashes}
    assert {one for one, copies in sent.items() if copies > 1} <= cut, "sent twice, and by no beat that died over it"
    scheduler = Scheduler(url_in(folder))
    assert audit(scheduler._opened.ready()).ok
    scheduler._opened.close()


@pytest.mark.parametrize(("death", "copies"), [("before", 1), ("after", 2)])
def test_what_a_beat_had_won_when_it_died_is_sent_by_another_under_the_same_id(folder, death, copies):
    started = [start_beat(folder, DIE=death), start_beat(folder)]
    with killed_at_end(started):
        started[0].wait(PATIENCE)
        [first] = [line.split()[3] for line in (folder / "out").read_text().splitlines()]
        wait_for(lambda: sent_ids(folder)[first] == copies, "the send by the other beat")
        wait_for(lambda: len(sent_times(folder)) >= 3, "further sends")
    recorded = next(one for one in runs(url_in(folder), "tick") if task_id("tick", one.scheduled_for) == first)
    assert (recorded.state, recorded.reason, recorded.crashes) == (State.PENDING, "sent", 1), "no worker has run it"
    assert gaps(sent_times(folder)) == {timedelta(seconds=1)}


# --- in one process: what is hard to hit from outside ----------------------------------------------------------------


class Sent:
    """What an app sends, and how it fails."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.headers: list[dict[str, object]] = []
        self.error: Exception | None = None

    def send_task(self, name, args, kwargs, **options):
        del name, args, kwargs
        if self.error is not None:
            raise self.error
        self.ids.append(options["task_id"])
        self.headers.append(options["headers"])
        return SimpleNamespace(id=options["task_id"])


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def make_beat(folder, sent):
    made = []

    def make(entries, base=beat.Scheduler, **options):
        app = Celery("one", broker="memory://", set_as_current=False)
        app.conf.beat_schedule = entries
        configure(app, url_in(folder), lease="3s")
        one = wrap(base)(app=app, **options)
        one.send_task = sent.send_task
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def tick_until(one, condition, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        wait = one.tick()
        if found := condition():
            return found
        threading.Event().wait(min(wait, 0.01))
    raise AssertionError(f"{what} did not come")


SOON = {"tick": {"task": "shop.tick", "schedule": 0.2}}


def test_what_the_store_cannot_be_asked_for_stays_due_and_is_sent_when_it_answers(make_beat, sent, monkeypatch, caplog):
    one = make_beat(SOON)
    tick_until(one, lambda: sent.ids, "a first send")
    outside = one._part.outside()
    acquire, asked = outside.acquire, []

    def away(wanted):
        asked.append(wanted)
        raise StoreUnavailable("gone")

    monkeypatch.setattr(outside, "acquire", away)
    before = len(sent.ids)
    tick_until(one, lambda: len(asked) >= 2, "two tries")
    assert len(sent.ids) == before, "something was sent unguarded"
    monkeypatch.setattr(outside, "acquire", acquire)
    tick_until(one, lambda: len(sent.ids) > before, "a send")
    assert caplog.text.count("the store cannot be asked, so beat sends nothing until it can: gone") == 1


def test_what_was_won_is_recorded_although_the_clock_of_the_store_cannot_be_read_then(make_beat, sent, monkeypatch):
    one = make_beat(SOON)
    tick_until(one, lambda: sent.ids, "a first send")
    outside = one._part.outside()
    acquire = outside.acquire

    def away(_now):
        raise StoreUnavailable("gone")

    def won_and_then_away(wanted):
        answers = acquire(wanted)
        monkeypatch.setattr(one._clock, "read_when_due", away)
        return answers

    monkeypatch.setattr(outside, "acquire", won_and_then_away)
    before = len(sent.ids)
    tick_until(one, lambda: len(sent.ids) > before, "a send")
    wait_for(lambda: not outside._held, "the record of what was sent: else it is held for as long as this beat lives")


def test_what_the_broker_does_not_take_is_sent_by_whichever_beat_looks_next(make_beat, sent, folder):
    hourly = {"hourly": {"task": "shop.tick", "schedule": 3600}}
    one = make_beat(hourly)
    one.schedule["hourly"].last_run_at -= timedelta(hours=1)
    sent.error = OSError("no broker")
    tick_until(one, lambda: [run.state for run in runs(url_in(folder), "hourly")] == [State.PENDING], "a failure")
    sent.error = None
    other = make_beat(hourly)
    tick_until(other, lambda: sent.ids, "a send")
    [run] = wait_for(lambda: [run for run in runs(url_in(folder), "hourly") if run.state is State.SUCCEEDED], "an end")
    assert sent.ids == [task_id("hourly", run.scheduled_for)]
    assert run.failures == 0, "a broker that is away is no failure of the task"


def test_a_beat_goes_on_after_the_last_time_that_any_has_sent_and_sends_the_latest_since(
    make_beat, sent, folder, monkeypatch
):
    clock = ManualClock(datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC))
    monkeypatch.setattr(part, "Scheduler", partial(Scheduler, clock=clock))
    monkeypatch.setattr(part, "StoreClock", partial(StoreClock, clock))
    entries = {"cron": {"task": "shop.tick", "schedule": crontab(minute="*/5")}}
    first = make_beat(entries)
    clock.advance(timedelta(minutes=5))
    tick_until(first, lambda: sent.ids, "a send")
    first.close()
    clock.advance(timedelta(hours=1))
    again = make_beat(entries)
    tick_until(again, lambda: len(sent.ids) == 2, "the send of what came due meanwhile")
    again.tick()
    assert [headers["cronsensus-time"] for headers in sent.headers] == ["2026-11-28T12:05:00Z", "2026-11-28T13:05:00Z"]
    assert sent.ids == [task_id("cron", datetime(2026, 11, 28, hour, 5, tzinfo=UTC)) for hour in (12, 13)]


def test_the_shelve_of_a_beat_knows_nothing_of_the_guard(make_beat, sent, folder):
    file = str(folder / "celerybeat-schedule")
    guarded = make_beat(SOON, base=beat.PersistentScheduler, schedule_filename=file)
    tick_until(guarded, lambda: sent.ids, "a send")
    guarded.close()
    app = Celery("bare", broker="memory://", set_as_current=False)
    app.conf.beat_schedule = SOON
    bare = beat.PersistentScheduler(app=app, schedule_filename=file)
    try:
        entry = bare.schedule["tick"]
        assert (type(entry), type(entry.schedule)) == (beat.ScheduleEntry, schedule)
        assert entry.total_run_count >= 1
    finally:
        bare.close()


def test_an_entry_that_is_to_succeed_so_often_is_a_job_that_alerts_know(make_beat, sent, folder):
    one = make_beat({"backup": {"task": "shop.backup", "schedule": 0.2, "options": {"overdue": "26h", "queue": "q"}}})
    tick_until(one, lambda: sent.ids, "a send")
    assert one._part.store.job("beat:backup").spec.overdue == timedelta(hours=26)
    assert sent.headers[0]["cronsensus-overdue"] == 26 * 3600
    # A worker that runs it says the same of the job.
    spec, ask = name_run("shop.backup", SimpleNamespace(id=sent.ids[0]), sent.headers[0], timedelta(days=1))
    assert (spec, ask.job) == (one._part.store.job("beat:backup").spec, "beat:backup")
    other, _ = name_run("shop.other", SimpleNamespace(id="another-id"), sent.headers[0], timedelta(days=1))
    assert other.name == "celery:shop.other", "headers that were passed on"


def test_an_entry_that_is_taken_out_is_sent_by_each_beat(make_beat, sent, folder):
    entries = {"own": {"task": "shop.warm", "schedule": 0.2, "options": {"once": False, "task_id": "own"}}}
    for one in (make_beat(entries), make_beat(entries)):
        before = len(sent.ids)
        tick_until(one, lambda before=before: len(sent.ids) > before, "a send")
    assert set(sent.ids) == {"own"}
    assert runs(url_in(folder), "own") == []


def test_an_entry_whose_times_have_one_id_is_warned_of(make_beat, sent, caplog):
    one = make_beat({"own": {"task": "warm", "schedule": 0.2, "options": {"task_id": "own"}}})

    def warm():
        return None

    task = one.app.task(shared=False, name="warm")(warm)
    task.apply_async = lambda args, kwargs, **options: sent.send_task("warm", args, kwargs, **options)
    tick_until(one, lambda: len(sent.ids) >= 2, "two times")
    assert set(sent.ids) == {"own"}
    assert caplog.text.count("'own' has a task_id, so each time is sent under one id: warm runs once in 1d") == 1


def test_beats_go_by_the_clock_of_the_store_and_read_it_once_a_minute():
    machine, store = ManualClock(), ManualClock()
    machine.step(timedelta(seconds=2))
    clock, reads = StoreClock(machine), []

    def read():
        reads.append(1)
        return store.now()

    for _ in range(130):
        clock.read_when_due(read)
        assert clock.now() == store.now(), "a beat whose clock is ahead sends too early"
        machine.advance(1)
        store.advance(1)
    assert len(reads) == 3


class NamesNoTime(schedule):  # type: ignore[misc]
    def is_due(self, last_run_at):
        return True, 60


def test_a_schedule_that_names_no_times_is_refused_when_beat_starts(make_beat):
    with pytest.raises(ConfigurationError, match=r"the schedules of 'odd' name no times.*'options': \{'once': False\}"):
        make_beat({"odd": {"task": "shop.tick", "schedule": NamesNoTime(60)}})


def test_an_app_without_a_store_is_refused_where_it_is_configured():
    with pytest.raises(ConfigurationError, match=r"needs a store that all machines reach.*CRONSENSUS_URL"):
        configure(Celery("none", set_as_current=False))
    with pytest.raises(ConfigurationError, match="it wants the app"):
        configure("shop")
    with pytest.raises(ConfigurationError, match=r"a class that is a celery\.beat\.Scheduler"):
        wrap(Celery)


def test_a_beat_or_worker_that_was_given_another_scheduler_by_an_option_says_so(folder, caplog):
    app = Celery("other", broker="memory://", set_as_current=False)
    configure(app, url_in(folder))
    _check_beat(SimpleNamespace(app=app, scheduler=beat.Scheduler(app=app)))
    assert (
        "this beat is not guarded, and sends what the others send, too: its scheduler is celery.beat:Sch" in caplog.text
    )
    _check_worker(options={"statedb": "cronsensus.integrations.celery:Scheduler"})
    assert "write --scheduler cronsensus.integrations.celery:Scheduler" in caplog.text
    caplog.clear()
    _check_beat(SimpleNamespace(app=app, scheduler=wrap(beat.Scheduler)(app=app, lazy=True)))
    _check_worker(options={"statedb": "/var/run/celery/worker.state"})
    assert not caplog.text


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("celery.beat:PersistentScheduler", "cronsensus.integrations.celery:Scheduler"),
        ("django_celery_beat.schedulers:DatabaseScheduler", "cronsensus.integrations.celery:DatabaseScheduler"),
        ("redbeat.RedBeatScheduler", "cronsensus.integrations.celery:RedBeatScheduler"),
        ("shop.schedulers:Own", "shop.schedulers:Own"),
    ],
)
def test_configure_names_the_scheduler_that_beat_and_each_worker_with_b_start(folder, named, found):
    app = Celery("named", broker="memory://", set_as_current=False)
    app.conf.beat_scheduler = named
    configure(app, url_in(folder))
    assert app.conf.beat_scheduler == found


def test_periodic_tasks_that_are_added_once_the_app_is_configured_are_still_there(folder):
    app = Celery("late", broker="memory://", set_as_current=False)
    configure(app, url_in(folder))
    app.on_after_configure.connect(
        lambda sender, **_: sender.add_periodic_task(10.0, sender.signature("shop.tick"), name="late"), weak=False
    )
    assert [*app.conf.beat_schedule] == ["late"]
