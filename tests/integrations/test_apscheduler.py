"""APScheduler 3 in several processes, each guarded: every time is run by one of them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.base import MaxInstancesReachedError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from cronsensus import ConfigurationError, Scheduler
from cronsensus.audit import audit
from cronsensus.errors import InvalidOption
from cronsensus.integrations.apscheduler import guard
from cronsensus.integrations.apscheduler.aligned import Aligned
from cronsensus.model.acquiring import Ask
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.outside.outside import DRAIN
from cronsensus.timing.clock import ManualClock
from tests.scratch import scratch_folder

APP = Path(__file__).parent / "guarded_app.py"
PATIENCE = 30.0


@pytest.fixture
def folder():
    with scratch_folder() as empty:
        yield empty


def lines(out: Path) -> list[list[str]]:
    return [line.split() for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def wait_for(condition, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


def replicas(url: str, out: Path, count: int, kind: str) -> list[subprocess.Popen[bytes]]:
    return [
        # The pool of a killed process stays behind, as ever: so each has a group of its own, and no pipe.
        subprocess.Popen(
            [sys.executable, str(APP), url, str(out), kind],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(count)
    ]


def runs(url: str, job: str):
    scheduler = Scheduler(url)
    try:
        return scheduler._opened.ready().occurrences(OccurrenceFilter(job=f"apscheduler:{job}"), limit=200)
    finally:
        scheduler._opened.close()


def ticks_of(out: Path) -> list[float]:
    return [float(line[3]) for line in lines(out) if line[0] == "tick"]


def span_of(times: list[float]) -> float:
    return max(times) - min(times) if times else 0.0


@pytest.mark.parametrize("kind", ["thread", "asyncio", "process"])
def test_each_time_is_run_by_one_of_four_replicas_although_one_is_killed_in_a_run(kind, folder):
    url, out = f"sqlite:///{folder / 'guard.db'}", folder / "out"
    started = replicas(url, out, 4, kind)
    try:
        wait_for(lambda: sum(line[0] == "up" for line in lines(out)) == 4, "the start of four replicas")
        begun = wait_for(lambda: [line for line in lines(out) if line[0] == "slow-begin"], "a run")[-1]
        # The functions run in a child of the replica where the executor is a process pool.
        victim = int(begun[2] if kind == "process" else begun[1])
        os.kill(victim, signal.SIGKILL)
        wait_for(
            lambda: [one for one in runs(url, "slow") if one.crashes and one.state is State.SUCCEEDED], "a takeover"
        )
        wait_for(lambda: len(runs(url, "broken")) >= 2, "times of all jobs")
        wait_for(lambda: span_of(ticks_of(out)) > 2.5, "ticks of some seconds")
        stopped_at = datetime.now(UTC)
        out.with_suffix(".over").touch()
        for one in started:
            one.wait(PATIENCE)
    finally:
        for one in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(PATIENCE)
    ticks = ticks_of(out)
    # What the last process won as it stopped goes back, and nobody is left to run it.
    left = [one for one in runs(url, "tick") if one.state is State.PENDING]
    assert all(one.scheduled_for >= stopped_at - timedelta(seconds=1) for one in left if one.scheduled_for)
    recorded = [one for one in runs(url, "tick") if one not in left]
    assert {one.state for one in recorded} == {State.SUCCEEDED}
    assert {one.result for one in recorded} == {'"done"'}
    # Counted outside, beside the ledger, which has each time once. What the killed process had begun is begun again.
    again = sum(one.crashes for one in recorded)
    assert len(recorded) <= len(ticks) <= len(recorded) + again
    cut = [one for one in runs(url, "slow") if one.crashes]
    assert [one.state for one in cut] == [State.SUCCEEDED]
    assert {one.error.type for one in runs(url, "broken") if one.error is not None} == {"ValueError"}
    scheduler = Scheduler(url)
    report = audit(scheduler._opened.ready())
    scheduler._opened.close()
    assert report.ok, report


def test_max_instances_holds_over_all_replicas_and_what_it_refuses_is_in_the_ledger(folder):
    url, out = f"sqlite:///{folder / 'guard.db'}", folder / "out"
    started = replicas(url, out, 4, "long")
    try:
        wait_for(lambda: sum(line[0] == "long-end" for line in lines(out)) >= 3, "three runs")
        out.with_suffix(".over").touch()
        for one in started:
            one.wait(PATIENCE)
    finally:
        for one in started:
            one.kill()
            one.wait(PATIENCE)
    # Counted outside: a run ends before the next one begins, whichever replica has it.
    written = [line[0] for line in sorted(lines(out), key=lambda line: float(line[3])) if line[0].startswith("long")]
    assert written == ["long-begin", "long-end"] * (len(written) // 2)
    recorded = sorted(runs(url, "long"), key=lambda one: one.scheduled_for)
    ran = [one for one in recorded if one.state is State.SUCCEEDED]
    refused = [one for one in recorded if (one.state, one.reason) == (State.SKIPPED, "overlap")]
    assert len(ran) == len(written) // 2
    assert len(recorded) == len(ran) + len(refused)
    assert len(refused) >= 2 * (len(ran) - 1)
    assert sum(line[0] == "refused" for line in lines(out)) >= len(refused)
    between = recorded[-1].scheduled_for - recorded[0].scheduled_for
    assert between == timedelta(seconds=len(recorded) - 1), "a time has no verdict"


@pytest.fixture
def guarded(folder):
    url = f"sqlite:///{folder / 'one.db'}"
    seen: list[JobEvent] = []
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, url)
    scheduler.add_listener(seen.append, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
    scheduler.start()
    yield scheduler, url, seen
    scheduler.shutdown()


def test_time_past_its_grace_is_missed_in_the_ledger_and_told_to_listeners(guarded):
    scheduler, url, seen = guarded
    job = scheduler.add_job(list, "cron", year=2099, id="late", misfire_grace_time=60)
    late = datetime.now(UTC) - timedelta(minutes=2)
    scheduler._executors["default"].submit_job(job, [late])
    [one] = wait_for(lambda: runs(url, "late"), "a verdict")
    assert (one.scheduled_for, one.state, one.reason) == (late, State.MISSED, "late")
    [event] = wait_for(lambda: list(seen), "an event")
    assert (event.code, event.job_id, event.scheduled_run_time) == (EVENT_JOB_MISSED, "late", late)


def test_time_that_the_only_replica_has_no_room_for_is_skipped_in_the_ledger(guarded):
    scheduler, url, _ = guarded
    begun, over = threading.Event(), threading.Event()

    def work():
        begun.set()
        over.wait(PATIENCE)

    job = scheduler.add_job(work, "cron", year=2099, id="full", misfire_grace_time=60)
    now = datetime.now(UTC)
    executor = scheduler._executors["default"]
    executor.submit_job(job, [now])
    try:
        assert begun.wait(PATIENCE)
        with pytest.raises(MaxInstancesReachedError):
            executor.submit_job(job, [now + timedelta(seconds=1)])
        wait_for(lambda: len(runs(url, "full")) == 2, "a verdict")
    finally:
        over.set()
    refused = next(one for one in runs(url, "full") if one.scheduled_for > now)
    assert (refused.state, refused.reason) == (State.SKIPPED, "overlap")


def test_jobs_that_are_due_together_are_asked_for_together(guarded, monkeypatch):
    scheduler, url, _ = guarded
    participant, named = scheduler._cronsensus._participant, threading.Event()
    steps: list[int] = []
    acquire = participant.acquire

    def counted(wanted):
        steps.append(len(wanted))
        assert named.wait(PATIENCE)
        return acquire(wanted)

    monkeypatch.setattr(participant, "acquire", counted)
    now = datetime.now(UTC)
    for number in range(50):
        one = scheduler.add_job(list, "cron", year=2099, id=f"due {number}", misfire_grace_time=60)
        scheduler._executors["default"].submit_job(one, [now])
    named.set()
    ended = [wait_for(lambda name=f"due {number}": runs(url, name), "a run") for number in range(50)]
    assert all(len(found) == 1 for found in ended)
    assert sum(steps) == 50
    assert len(steps) <= 3


def test_store_that_is_away_is_an_error_of_the_start_where_it_is_not_to_wait():
    scheduler = BackgroundScheduler()
    guard(scheduler, "postgresql://nobody@127.0.0.1:1/nothing", wait=0)
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as told:
        scheduler.start()
    assert told.type.__module__ == "cronsensus.errors"
    assert not scheduler.running


def test_a_scheduler_starts_while_the_store_is_away_and_runs_nothing_until_it_comes(folder, caplog):
    url, ran, due = f"sqlite:///{folder}/later/jobs.db", [], threading.Event()
    scheduler = BackgroundScheduler()
    guard(scheduler, url)
    scheduler.add_job(lambda: ran.append(1), CronTrigger(second="*"), id="tick")
    submit = scheduler._process_jobs

    def process():
        answer = submit()
        if "so nothing is run until it can: it has not been reached" in caplog.text:
            due.set()
        return answer

    scheduler._process_jobs = process
    scheduler.start()
    try:
        assert due.wait(PATIENCE), caplog.text
        assert not ran
        (folder / "later").mkdir()
        wait_for(lambda: ran, "the first run")
    finally:
        scheduler.shutdown()
    assert {one.state for one in runs(url, "tick")} <= {State.SUCCEEDED}


def job():
    pass


def test_scheduler_is_guarded_once_and_before_its_start():
    scheduler = BackgroundScheduler()
    guard(scheduler, "memory://guarded-once")
    with pytest.raises(ConfigurationError, match="guarded already"):
        guard(scheduler, "memory://guarded-once")
    other = BackgroundScheduler()
    other.start()
    try:
        with pytest.raises(ConfigurationError, match=r"call guard\(scheduler, url\) before scheduler.start\(\)"):
            guard(other, "memory://guarded-late")
    finally:
        other.shutdown()
    with pytest.raises(ConfigurationError, match=r"a scheduler of APScheduler 3, and got builtins\.str"):
        guard("scheduler", "memory://no-scheduler")


def test_other_apscheduler_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apscheduler.schedulers.base", None)  # as APScheduler 4 has none
    monkeypatch.setattr("importlib.metadata.version", lambda _: "4.0.0a6")
    with pytest.raises(ConfigurationError, match=r'4\.0\.0a6 is installed.*pip install "apscheduler>=3\.10,<4"'):
        guard(BackgroundScheduler(), "memory://other")


def test_scheduler_of_another_kind_is_told_which_ones_there_are():
    with pytest.raises(ConfigurationError, match="BlockingScheduler and AsyncIOScheduler, not Kept"):
        guard(type("Kept", (BaseScheduler,), {"shutdown": job, "wakeup": job})(), "memory://kept")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trigger": "cron", "second": "*"}, "has no id"),
        ({"trigger": "interval", "seconds": 5, "id": "own start"}, "counts its interval from the moment"),
        ({"trigger": "calendarinterval", "weeks": 2, "id": "from today"}, "counts its days from today"),
        ({"trigger": OrTrigger([IntervalTrigger(seconds=4)]), "id": "either"}, "counts its interval from the moment"),
        ({"trigger": "cron", "second": "*", "jitter": 5, "id": "jitter"}, "has jitter=5"),
        ({"trigger": "date", "id": "now"}, "no run_date"),
        (
            {"trigger": "cron", "second": "*", "id": "at once", "next_run_time": datetime.now(UTC)},
            "next_run_time of its",
        ),
    ],
)
def test_job_whose_times_differ_between_processes_is_refused(options, words):
    scheduler = BackgroundScheduler()
    guard(scheduler, "memory://refused")
    scheduler.add_job(job, **options)
    with pytest.raises(InvalidOption, match=words):
        scheduler.start(paused=True)


def test_all_jobs_that_a_start_refuses_are_named_at_once_and_a_moment_that_all_share_is_none_of_them():
    scheduler = BackgroundScheduler()
    guard(scheduler, "memory://all-refused")
    shared = datetime.now(UTC).replace(microsecond=123_456) + timedelta(hours=1)
    scheduler.add_job(job, "date", run_date=shared, id="shared")
    scheduler.add_job(job, "interval", seconds=5, id="own start")
    scheduler.add_job(job, "date", id="own now")
    scheduler.add_job(job, "cron", second="*")
    with pytest.raises(InvalidOption) as told:
        scheduler.start(paused=True)
    first, *each = str(told.value).splitlines()
    assert first == "3 jobs cannot be guarded as they are; correct each:"
    assert [line.split(" ha")[0].split(" counts")[0] for line in each] == [
        "- job 'own start'", "- job 'own now'", "- job 'job'",
    ]  # fmt: skip
    for name in ("own start", "own now"):
        scheduler.remove_job(name)
    del scheduler._pending_jobs[1:]
    scheduler.start(paused=True)
    scheduler.shutdown()


def test_align_puts_an_interval_on_times_that_all_processes_share():
    scheduler = BackgroundScheduler()
    guard(scheduler, "memory://aligned", align=True)
    scheduler.add_job(job, "interval", seconds=7, jitter=3, id="aligned", next_run_time=datetime.now(UTC))
    scheduler.start(paused=True)
    try:
        first = scheduler.get_job("aligned").next_run_time
        assert first.timestamp() % 7 == 0
        trigger = scheduler.get_job("aligned").trigger
        assert trigger.get_next_fire_time(first, first) == first + timedelta(seconds=7)
        late = first + timedelta(seconds=7 * 3 + 2)
        assert trigger.get_next_fire_time(None, late) == first + timedelta(seconds=28)
        # As with any interval, what passed meanwhile is named, for coalesce to choose from.
        assert trigger.get_next_fire_time(first, late) == first + timedelta(seconds=7)
    finally:
        scheduler.shutdown()


@pytest.mark.parametrize("seconds", [0.1, 1 / 3, 2.5, 7, 86_400])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_interval_that_is_never_moved_has_the_times_that_apscheduler_gives_it(seconds, zone):
    theirs = IntervalTrigger(seconds=seconds, start_date="2026-03-28 12:00:00", timezone=zone)
    ours = Aligned.like(theirs, since=theirs.start_date)
    for now in (theirs.start_date - timedelta(hours=1), theirs.start_date, theirs.start_date + timedelta(hours=30.3)):
        mine = yours = None
        for _ in range(50):
            mine, yours = ours.get_next_fire_time(mine, now), theirs.get_next_fire_time(yours, now)
            assert mine is not None
            # Theirs adds up floats.
            assert abs(mine - yours) <= timedelta(microseconds=20)


def test_run_that_is_moved_to_now_is_run_once_and_leaves_the_times_after_it_in_place(guarded):
    scheduler, url, _ = guarded
    ran = threading.Event()
    scheduler.add_job(ran.set, "interval", hours=1, start_date="2026-01-01", id="moved")
    before = scheduler.get_job("moved").next_run_time
    now = datetime.now(UTC)
    scheduler.modify_job("moved", next_run_time=now)
    assert ran.wait(PATIENCE)
    [one] = wait_for(
        lambda: [one for one in runs(url, "moved") if one.state is State.SUCCEEDED], "the verdict of the run"
    )
    assert one.scheduled_for == now
    assert wait_for(lambda: scheduler.get_job("moved").next_run_time == before, "the time that was next")


def test_interval_that_a_job_gets_later_is_checked_as_one_that_it_begins_with(guarded):
    scheduler, _, _ = guarded
    scheduler.add_job(job, "cron", year=2099, id="later")
    with pytest.raises(InvalidOption, match="counts its interval from the moment"):
        scheduler.reschedule_job("later", trigger="interval", hours=1)
    with pytest.raises(InvalidOption, match="has jitter=5"):
        scheduler.get_job("later").modify(trigger=CronTrigger(second="*", jitter=5))
    assert scheduler.get_job("later").next_run_time.year == 2099
    scheduler.reschedule_job("later", trigger="interval", hours=1, start_date="2026-01-01T00:30:00")
    assert scheduler.get_job("later").next_run_time.minute == 30


def test_interval_that_a_job_gets_later_is_aligned_where_that_is_asked_for():
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, "memory://aligned-later", align=True)
    scheduler.add_job(job, "cron", year=2099, id="later")
    scheduler.start(paused=True)
    try:
        scheduler.reschedule_job("later", trigger="interval", hours=1)
        assert scheduler.get_job("later").next_run_time.timestamp() % 3600 == 0
        scheduler.pause_job("later")
        assert scheduler.get_job("later").next_run_time is None
        scheduler.resume_job("later")
        assert scheduler.get_job("later").next_run_time.timestamp() % 3600 == 0
    finally:
        scheduler.shutdown()


@pytest.mark.parametrize("intent", ["run", "full"])
def test_time_that_a_fast_clock_names_is_run_or_skipped_when_the_clock_of_the_store_says_it(folder, intent, caplog):
    url, clock = f"sqlite:///{folder / 'fast.db'}", ManualClock(datetime.now(UTC) - timedelta(seconds=80))
    ran, goes_on = threading.Semaphore(0), threading.Event()
    ours = Scheduler(url, clock=clock, lease="1h")
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, url)
    scheduler._cronsensus._ours = ours
    grace = None if intent == "full" else 1

    def work():
        ran.release()
        goes_on.wait(PATIENCE)

    scheduler.add_job(work, "cron", year=2099, id="tick", misfire_grace_time=grace)
    scheduler.start()
    try:
        job, executor = scheduler.get_job("tick"), scheduler._executors["default"]
        if intent == "full":
            executor.submit_job(job, [clock.now()])
            assert ran.acquire(timeout=PATIENCE)
        due = datetime.now(UTC)
        with contextlib.suppress(MaxInstancesReachedError):
            executor.submit_job(job, [due])
        timer = scheduler._cronsensus._participant._timer
        wait_for(lambda: len(timer), "the wait for the clock of the store")
        assert due not in {one.scheduled_for for one in runs(url, "tick")}
        assert "the clock of this process is ahead of the store's: tick came due here too early" in caplog.text
        clock.advance(due - clock.now())
        timer.recheck_clock()
        [one] = wait_for(lambda: [one for one in runs(url, "tick") if one.scheduled_for == due], "its verdict")
        if intent == "full":
            assert (one.state, one.reason) == (State.SKIPPED, "overlap")
        else:
            assert ran.acquire(timeout=PATIENCE)
            goes_on.set()
            wait_for(lambda: [one for one in runs(url, "tick") if one.state is State.SUCCEEDED], "its end")
    finally:
        goes_on.set()
        scheduler.shutdown()


@pytest.mark.parametrize("stops", ["by shutdown", "as its loop ends"])
def test_what_is_won_as_an_event_loop_ends_is_free_for_others_at_once(folder, stops):
    url = f"sqlite:///{folder / 'loop.db'}"
    won, goes_on = threading.Event(), threading.Event()
    scheduler = AsyncIOScheduler(timezone="UTC")
    guard(scheduler, url)

    async def program():
        scheduler.add_job(list, "cron", year=2099, id="tick")
        scheduler.start()
        participant = scheduler._cronsensus._participant
        acquire = participant.acquire

        def acquire_and_wait(wanted):
            answer = acquire(wanted)
            won.set()
            assert goes_on.wait(PATIENCE)
            return answer

        participant.acquire = acquire_and_wait
        scheduler._executors["default"].submit_job(scheduler.get_job("tick"), [datetime.now(UTC)])
        assert await asyncio.to_thread(won.wait, PATIENCE)
        if stops == "by shutdown":
            scheduler.shutdown()
        return participant

    participant = asyncio.run(program())
    ended = time.monotonic()
    goes_on.set()
    wait_for(lambda: [one for one in runs(url, "tick") if one.state is State.PENDING], "what was given back")
    assert time.monotonic() - ended < DRAIN.total_seconds() / 2
    if stops != "by shutdown":
        participant.close()
        scheduler._cronsensus._ours._opened.close()


def test_a_process_that_ends_while_a_job_runs_wins_no_more_times(folder):
    url, program = f"sqlite:///{folder / 'ends.db'}", folder / "program.py"
    program.write_text(
        f"""
import logging, sys, threading, time
from apscheduler.schedulers.background import BackgroundScheduler
from cronsensus.integrations.apscheduler import guard
logging.basicConfig()
scheduler, begun = BackgroundScheduler(timezone="UTC"), threading.Event()
guard(scheduler, {url!r})
@scheduler.scheduled_job("cron", second="*", id="slow")
def slow():
    begun.set()
    time.sleep(4)
@scheduler.scheduled_job("cron", second="*", id="tick")
def tick(): pass
scheduler.start()
assert begun.wait({PATIENCE})
sys.exit()
""",
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=2 * PATIENCE
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert ended.stderr.count("this process runs no more times, and leaves them to others") == 1, ended.stderr
    # Those of the second in which it was noticed.
    assert sum(one.state is State.PENDING for name in ("tick", "slow") for one in runs(url, name)) <= 2


def test_what_an_operator_cannot_make_of_a_job_is_refused_and_what_stands_all_the_same_hinders_no_time(
    guarded, monkeypatch
):
    scheduler, url, _ = guarded
    ran = threading.Event()
    scheduler.add_job(ran.set, "cron", year=2099, id="tick")
    scheduler.modify_job("tick", next_run_time=datetime.now(UTC))
    wait_for(lambda: [one for one in runs(url, "tick") if one.state is State.SUCCEEDED], "a run")
    operator = Scheduler(url)
    [run] = runs(url, "tick")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    for act in (
        lambda: operator.trigger("apscheduler:tick"),
        lambda: operator.options("apscheduler:tick").enqueue(),
        lambda: operator.retry(run.id, again=True),
        lambda: operator.backfill("apscheduler:tick", day, day),
    ):
        with pytest.raises(InvalidOption, match=r"scheduler\.modify_job\('tick', next_run_time=datetime\.now\(UTC\)\)"):
            act()
    for command in (["jobs", "trigger", "apscheduler:tick"], ["runs", "retry", str(run.id), "--again"]):
        said = subprocess.run(
            [sys.executable, "-m", "cronsensus", "--url", url, *command], capture_output=True, text=True, check=False
        )
        assert said.returncode == 2, said
        assert "next: in one of these: scheduler.modify_job('tick'" in said.stderr
    # As an earlier release has left it.
    with monkeypatch.context() as earlier:
        earlier.setattr(JobSpec, "runs_elsewhere", False)
        stray = operator.trigger("apscheduler:tick")
    scheduler._cronsensus._participant.look_for_leftovers()
    closed = wait_for(lambda: [one for one in runs(url, "tick") if one.state is State.CANCELLED], "its end")
    assert [(one.id, one.reason) for one in closed] == [
        (stray.id, "it has no nominal time, and only times that the program names are run")
    ]
    ran.clear()
    scheduler.modify_job("tick", next_run_time=datetime.now(UTC))
    assert ran.wait(PATIENCE)
    operator.stop()


def test_run_that_the_last_replica_left_is_run_by_the_next_one_that_starts(folder):
    url, done = f"sqlite:///{folder / 'left.db'}", threading.Event()
    left = datetime(2026, 1, 1, 3, tzinfo=UTC)

    def replica() -> BackgroundScheduler:
        scheduler = BackgroundScheduler(timezone="UTC")
        guard(scheduler, url, lease="3s")
        scheduler.add_job(done.set, "cron", month=1, day=1, hour=3, id="yearly")
        scheduler.start()
        return scheduler

    first = replica()
    participant = first._cronsensus._participant
    spec = JobSpec(name="apscheduler:yearly", function="apscheduler:yearly", source="runtime")
    [[won]] = participant.acquire([(spec, Ask(spec.name, (left,)))])
    participant.cut_off(won)
    first.shutdown()
    done.clear()
    second = replica()
    try:
        assert done.wait(PATIENCE)
    finally:
        second.shutdown()
    assert [(one.scheduled_for, one.state) for one in runs(url, "yearly")] == [(left, State.SUCCEEDED)]
