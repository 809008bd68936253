"""Starting beside a store that is not there yet: tried again for as long as was said, and for no other error."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.errors import ConfigurationError, StoreCorrupt, StoreRefused, StoreUnavailable
from cronsensus.lifecycle.starting import Tries
from cronsensus.stores.memory import MemoryStore

Failing = Callable[[int, Exception], list[int]]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Let the store's first so many migrations fail."""

    def fail(times: int, error: Exception) -> list[int]:
        tried: list[int] = []
        real = MemoryStore.migrate

        def migrate(store: MemoryStore) -> list[str]:
            tried.append(1)
            if len(tried) <= times:
                raise error
            return real(store)

        monkeypatch.setattr(MemoryStore, "migrate", migrate)
        return tried

    return fail


def test_start_tries_again_while_the_store_is_not_there(failing: Failing, caplog: pytest.LogCaptureFixture):
    tried = failing(3, StoreUnavailable("no server listens there"))
    scheduler = Scheduler("memory://")
    scheduler.job(name="work")(lambda: None)
    scheduler.start(wait="1m")
    scheduler.stop()
    assert len(tried) == 4
    told = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert len(told) == 1
    assert told[0].startswith("the store is not there yet (no server listens there); trying again for ")


def test_astart_tries_again_without_blocking_the_loop(failing: Failing):
    failing(3, StoreUnavailable("no server listens there"))
    scheduler = Scheduler("memory://")

    async def main() -> int:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        turning = asyncio.create_task(turn())
        await scheduler.astart(wait="1m")
        turning.cancel()
        await scheduler.astop()
        return turns

    assert asyncio.run(main()) > 3


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (StoreUnavailable("away"), 0),
        (StoreCorrupt("broken"), "1m"),
        (StoreRefused("wrong password"), "1m"),
        (StoreRefused("wrong password"), None),
        (StoreCorrupt("broken"), None),
    ],
)
def test_start_fails_at_once_without_a_wait_or_where_later_does_not_help(
    failing: Failing, error: Exception, wait: object
):
    tried = failing(1, error)
    scheduler = Scheduler("memory://")
    with pytest.raises(type(error)):
        scheduler.start(wait=wait)  # type: ignore[arg-type]
    assert len(tried) == 1
    assert not scheduler.started


def test_start_gives_up_when_the_time_is_over(failing: Failing):
    tried = failing(1_000_000, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable, match="away"):
        Scheduler("memory://").start(wait="300ms")
    assert len(tried) > 1


def test_pauses_grow_and_none_reaches_beyond_the_end():
    tries = Tries(3600)
    pauses = []
    for pause in tries:
        pauses.append(pause)
        with tries:
            if len(pauses) < 9:
                raise StoreUnavailable
    assert pauses[0] == 0.0
    assert all(0.05 * 2**number <= pause for number, pause in enumerate(pauses[1:5], start=1))
    assert max(pauses) <= 2.0


def test_a_server_that_comes_up_later_is_found(tmp_path: Path):
    folder = tmp_path / "later"
    scheduler = Scheduler(f"sqlite:///{folder}/jobs.db")
    timer = threading.Timer(0.3, folder.mkdir)
    timer.start()
    scheduler.start(wait="1m")
    scheduler.stop()
    timer.join()


@pytest.mark.parametrize("way", ["run", "start", "astart"])
@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "postgresql://it:it@127.0.0.1:1/it"])
def test_a_start_without_a_server_shows_a_sentence_and_logs_the_driver_on_debug(
    url: str, way: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "cronsensus")
    scheduler = Scheduler(url)
    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(scheduler.astart(wait=0)) if way == "astart" else getattr(scheduler, way)(wait=0)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1
    assert "/stores/" not in shown
    assert shown.splitlines()[-1].startswith(f"cronsensus.errors.StoreUnavailable: {url.partition(':')[0]}://")
    (logged,) = [record for record in caplog.records if record.exc_info]
    assert logged.levelno == logging.DEBUG
    assert caplog.text.count("Traceback") > 1
    assert "/stores/" in caplog.text


class Away:
    """A store that cannot be reached until the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.tried = threading.Semaphore(0)
        real = MemoryStore.migrate

        def migrate(store: MemoryStore) -> list[str]:
            self.tried.release()
            if not self.reached.is_set():
                raise StoreUnavailable("no server listens there")
            return real(store)

        monkeypatch.setattr(MemoryStore, "migrate", migrate)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    return Away(monkeypatch)


def until_it_takes_part(scheduler: Scheduler) -> None:
    end = time.monotonic() + 30
    while not scheduler.decides:
        assert time.monotonic() < end
        time.sleep(0.01)


def until_no_thread_waits() -> None:
    for thread in threading.enumerate():
        if thread.name == "cronsensus-store-wait":
            thread.join(30)
            assert not thread.is_alive()


def test_an_application_starts_while_the_store_is_away_and_its_node_comes_when_the_store_does(
    away: Away, caplog: pytest.LogCaptureFixture
):
    ran = threading.Event()
    scheduler = Scheduler("memory://")
    work = scheduler.job(name="work")(ran.set)
    scheduler.start()
    for _ in range(3):
        assert away.tried.acquire(timeout=30)
    assert not scheduler.started
    assert not scheduler.decides
    with pytest.raises(StoreUnavailable):
        work.enqueue()
    with pytest.raises(ConfigurationError, match="waits for its store"):
        scheduler.start()
    (told,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert told.startswith("the store cannot be used (no server listens there). This process goes on without its node")

    away.reached.set()
    until_it_takes_part(scheduler)
    work.enqueue()
    assert ran.wait(30)
    scheduler.stop()
    until_no_thread_waits()


def test_async_with_serves_while_the_store_is_away_and_runs_async_jobs_on_its_loop_afterwards(away: Away):
    async def main() -> object:
        ran = asyncio.get_running_loop().create_future()
        scheduler = Scheduler("memory://")

        @scheduler.job()
        async def work() -> None:
            ran.set_result(asyncio.get_running_loop())

        async with scheduler:
            assert not scheduler.decides
            away.reached.set()
            await asyncio.to_thread(until_it_takes_part, scheduler)
            await work.aenqueue()
            return await asyncio.wait_for(ran, 30) is asyncio.get_running_loop()

    assert asyncio.run(main())


def test_stop_while_the_store_is_away_leaves_nothing_behind(away: Away):
    scheduler = Scheduler("memory://")
    scheduler.start()
    assert away.tried.acquire(timeout=30)
    assert scheduler.stop()
    until_no_thread_waits()
    away.reached.set()
    assert not scheduler.decides
    scheduler.start(wait=0)
    until_it_takes_part(scheduler)
    scheduler.stop()


def test_where_an_application_waits_for_a_start_up_task_a_store_that_is_away_is_an_error_of_the_start(away: Away):
    scheduler = Scheduler("memory://")
    scheduler.startup(wait=True, name="migrate")(lambda: None)
    with pytest.raises(StoreUnavailable):
        scheduler.start()
    assert away.tried.acquire(timeout=30)
    until_no_thread_waits()


def test_a_fork_of_a_process_that_waits_for_its_store_starts_a_node_of_its_own(tmp_path: Path):
    program = """
import os, sys, time
from cronsensus import Scheduler
folder = sys.argv[1]
scheduler = Scheduler(f"sqlite:///{folder}/later/jobs.db")
scheduler.start()
child = os.fork()
if child == 0:
    os.mkdir(f"{folder}/later")
    scheduler.start(wait=0)
    started = scheduler.started
    scheduler.stop()
    os._exit(0 if started else 1)
_, status = os.waitpid(child, 0)
scheduler.stop()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
