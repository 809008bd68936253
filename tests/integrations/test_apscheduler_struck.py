"""What is done to replicas of a guarded APScheduler: kills, a freeze, a store that is away. No time is run twice."""

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from apscheduler.schedulers.background import BackgroundScheduler

from cronsensus import Scheduler
from cronsensus.audit import audit
from cronsensus.integrations.apscheduler import guard
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from tests.integrations import struck_app
from tests.scratch import copy_migrated_sqlite, scratch_folder
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


def wait_for(condition, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


class Replicas:
    """Processes of ``struck_app`` on one store, and what they wrote."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "struck.out"
        self.file = folder / "guard.db"
        copy_migrated_sqlite(self.file)
        self.url = f"sqlite:///{self.file}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, count: int, shared: str | None = None) -> None:
        for number in range(count):
            with self.out.with_suffix(f".{number}.log").open("wb") as log:
                command = [sys.executable, "-m", "tests.integrations.struck_app", self.url, str(self.out)]
                self.processes.append(subprocess.Popen([*command, *([shared] if shared else [])], cwd=ROOT, stderr=log))
        wait_for(lambda: len(self.wrote("up")) == count, f"the start of {count} replicas")

    def say(self, suffix: str) -> None:
        self.out.with_suffix(suffix).touch()

    def wrote(self, what: str) -> list[int]:
        """Return the pids of those that wrote this, in order."""
        lines = self.out.read_text(encoding="utf-8").splitlines() if self.out.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == what]

    def log(self, pid: int) -> str:
        number = [one.pid for one in self.processes].index(pid)
        return self.out.with_suffix(f".{number}.log").read_text(encoding="utf-8")

    def freeze(self, pid: int) -> None:
        """Stop a process, but not in a write: of a SQLite file it would keep all others out."""
        while True:
            os.kill(pid, signal.SIGSTOP)
            with closing(sqlite3.connect(self.file, timeout=1, isolation_level=None)) as connection:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    os.kill(pid, signal.SIGCONT)
                    continue
                connection.execute("ROLLBACK")
            return

    def recorded(self, job: str):
        scheduler = Scheduler(self.url)
        try:
            return scheduler.store.occurrences(OccurrenceFilter(job=f"apscheduler:{job}"), limit=200)
        finally:
            scheduler.stop()

    def taken_over(self):
        return [one for one in self.recorded("held") if one.crashes and one.state is State.SUCCEEDED]

    def end(self) -> None:
        """Let those that live shut down, and hold that each time was run once, or again after a crash."""
        self.say(".over")
        for one in self.processes:
            one.wait(PATIENCE)
        ticks, recorded = len(self.wrote("tick")), self.recorded("tick")
        assert {one.state for one in recorded} == {State.SUCCEEDED}
        assert len(recorded) <= ticks <= len(recorded) + sum(one.crashes for one in recorded)
        scheduler = Scheduler(self.url)
        report = audit(scheduler.store)
        scheduler.stop()
        assert report.ok, report


@pytest.fixture
def replicas():
    with scratch_folder() as folder:
        replicas = Replicas(folder)
        try:
            yield replicas
        finally:
            for one in replicas.processes:
                with contextlib.suppress(ProcessLookupError):
                    one.kill()
                one.wait(PATIENCE)


@pytest.fixture
def shared(replicas, monkeypatch):
    """Give the URL of a job store of SQLAlchemy that has the jobs."""
    monkeypatch.setenv(struck_app.OUT, str(replicas.out))
    url = f"sqlite:///{replicas.file.with_name('jobs.db')}"
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, replicas.url)
    scheduler.add_jobstore("sqlalchemy", url=url)
    struck_app.add_jobs(scheduler)
    scheduler.start(paused=True)
    scheduler.shutdown()
    return url


def test_shutdown_leaves_what_is_due_in_a_shared_store(replicas, shared):
    # APScheduler itself looks once more as it ends, finds its executors closed, and removes the one-off unrun.
    scheduler = BackgroundScheduler(timezone="UTC")
    guard(scheduler, replicas.url)
    scheduler.add_jobstore("sqlalchemy", url=shared)
    scheduler.start(paused=True)
    try:
        assert scheduler.get_job("held").next_run_time == struck_app.DUE
    finally:
        scheduler.shutdown()
    assert not replicas.recorded("held")


def test_result_of_a_replica_frozen_past_its_lease_is_refused_and_another_one_has_run_it(replicas):
    replicas.start(2)
    replicas.say(".resume")
    [frozen] = wait_for(lambda: replicas.wrote("held-begin"), "a run")
    [other] = [one.pid for one in replicas.processes if one.pid != frozen]
    replicas.freeze(frozen)
    replicas.say(".release")
    [one] = wait_for(replicas.taken_over, "a takeover")
    assert (one.attempt, one.result) == (2, str(other))
    os.kill(frozen, signal.SIGCONT)
    wait_for(lambda: "apscheduler:held at 2026-01-01 03:00:00+0000 was refused" in replicas.log(frozen), "a refusal")
    assert replicas.wrote("held-end") == [other, frozen]
    [again] = replicas.recorded("held")
    assert (again.state, again.result) == (State.SUCCEEDED, str(other))
    # The frozen one goes on keeping time.
    before = len(replicas.wrote("tick"))
    next(one for one in replicas.processes if one.pid == other).kill()
    wait_for(lambda: frozen in replicas.wrote("tick")[before:], "a run of the one that woke")
    replicas.end()
    assert replicas.wrote("keeps-time") == [frozen]


@pytest.mark.parametrize("store", ["memory", "shared"])
def test_time_whose_winner_dies_before_it_submits_is_run_once_by_another_replica(store, replicas, request):
    replicas.say(".release")
    replicas.say(".die")
    replicas.start(2, request.getfixturevalue("shared") if store == "shared" else None)
    replicas.say(".resume")
    wait_for(lambda: any(one.crashes for job in ("held", "tick") for one in replicas.recorded(job)), "a crash")
    wait_for(lambda: [one for one in replicas.recorded("held") if one.state is State.SUCCEEDED], "the run")
    wait_for(lambda: replicas.wrote("tick"), "a time of the other job")
    replicas.end()
    assert [one.returncode for one in replicas.processes].count(-signal.SIGKILL) == 1
    assert len(replicas.wrote("held-begin")) == 1
    # Nothing had begun in the one that died: each function ran just once, whatever was taken over.
    assert len(replicas.wrote("tick")) == len(replicas.recorded("tick"))


def test_one_off_in_a_shared_store_is_run_once_and_all_four_schedulers_live_on(replicas, shared):
    replicas.start(4, shared)
    replicas.say(".release")
    replicas.say(".resume")
    wait_for(lambda: replicas.wrote("held-end"), "the one-off")
    before = len(replicas.wrote("tick"))
    wait_for(lambda: len(replicas.wrote("tick")) >= before + 3, "three seconds more")
    replicas.end()
    assert len(replicas.wrote("keeps-time")) == 4
    assert len(replicas.wrote("held-begin")) == 1
    assert [(one.scheduled_for, one.state) for one in replicas.recorded("held")] == [(struck_app.DUE, State.SUCCEEDED)]


def test_repeating_job_in_a_shared_store_goes_on_each_second_although_a_replica_is_killed(replicas, shared):
    replicas.start(4, shared)
    replicas.say(".resume")
    [victim] = wait_for(lambda: replicas.wrote("held-begin"), "a run")
    wait_for(lambda: len(replicas.wrote("tick")) >= 2, "two times")
    os.kill(victim, signal.SIGKILL)
    replicas.say(".release")
    wait_for(replicas.taken_over, "a takeover")
    before = len(replicas.wrote("tick"))
    wait_for(lambda: len(replicas.wrote("tick")) >= before + 3, "three seconds more")
    replicas.end()
    times = sorted(one.scheduled_for.timestamp() for one in replicas.recorded("tick"))
    assert times == [times[0] + number for number in range(len(times))], "a time is missing"
    assert len(replicas.wrote("keeps-time")) == 3


# --- the store is away ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked_file():
    """A SQLite file, and how to keep everybody out of it, and how to let them in again."""
    with scratch_folder() as folder:
        file = folder / "guard.db"
        copy_migrated_sqlite(file)
        with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as connection:
            away = lambda: connection.execute("BEGIN EXCLUSIVE")  # noqa: E731
            yield f"sqlite:///{file}?busy_timeout=50ms", away, lambda: connection.execute("ROLLBACK")


@contextlib.contextmanager
def refused_server():
    """A Redis, and how to cut everybody off, and how to let them in again."""
    with RedisServer(durable=False) as server, Proxy(server.url) as way:

        def away() -> None:
            way.refuse()
            way.cut()

        yield way.url, away, way.pass_on


@pytest.mark.parametrize("place", [locked_file, refused_server])
def test_nothing_is_run_while_the_store_is_away_and_it_is_said_once(place, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "cronsensus.apscheduler")
    ran: list[float] = []
    begun, over = threading.Event(), threading.Event()

    def long() -> str:
        begun.set()
        over.wait(PATIENCE)
        return "at last"

    with place() as (url, away, back):
        scheduler = BackgroundScheduler(timezone="UTC")
        guard(scheduler, url, lease="30s")
        scheduler.add_job(lambda: ran.append(time.monotonic()), "cron", second="*", id="tick")
        scheduler.add_job(long, "date", run_date=struck_app.DUE, id="long", misfire_grace_time=None)
        scheduler.start()
        try:
            participant, failed = scheduler._cronsensus._participant, []
            acquire = participant.acquire

            def counted(wanted):
                try:
                    return acquire(wanted)
                except Exception as error:
                    failed.append(error)
                    raise

            monkeypatch.setattr(participant, "acquire", counted)
            wait_for(lambda: ran and begun.is_set(), "a run of each")
            away()
            wait_for(lambda: failed, "an ask that failed")
            before, since = len(ran), len(failed)
            over.set()  # a run that ends meanwhile is not lost
            wait_for(lambda: len(failed) >= since + 4, "four more times")
            assert scheduler._jobstores_lock.acquire(timeout=1), "APScheduler itself waits for the store"
            scheduler._jobstores_lock.release()
            assert len(ran) == before
            back()
            wait_for(lambda: len(ran) >= before + 2, "runs afterwards")
            store = scheduler._cronsensus._ours.store
            wait_for(
                lambda: [
                    one
                    for one in store.occurrences(OccurrenceFilter(job="apscheduler:long"), limit=5)
                    if one.state is State.SUCCEEDED
                ],
                "the verdict of what ran meanwhile",
            )
            [one] = store.occurrences(OccurrenceFilter(job="apscheduler:long"), limit=5)
            assert (one.attempt, one.result) == (1, '"at last"')
            executor = scheduler._executors["default"]
            wait_for(lambda: not any(executor._instances.values()), "a free slot")
            wait_for(lambda: not scheduler._cronsensus._submitting, "an end of all hand-overs")
        finally:
            over.set()
            scheduler.shutdown()
    said = Counter(record.getMessage().partition(",")[0] for record in caplog.records)
    assert said["the store cannot be asked"] == 1
    assert sum("the store answers again" in text for text in said) == 1
