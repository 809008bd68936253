"""Start-up tasks in one process: when they run, what an exception does, which generation it is."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cronsensus import RunFailed, Scheduler, StillRunning
from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.once.waiters import Waiters
from cronsensus.startup import tasks
from cronsensus.startup.generations import generation_of, name_master

ROOT = Path(__file__).parents[2]


def key(scope, deploy_id=None, generation=None):
    return generation_of(scope, deploy_id=deploy_id, generation=generation, release=lambda: "r1", function=key)


def keys(scheduler, **options):
    """Return the key under which a start-up task of this scheduler has run."""
    scheduler.startup(name="warm", **options)(lambda: None)
    scheduler.run_startup()
    return [one.key for one in scheduler.store.occurrences(OccurrenceFilter())]


def test_startup_task_runs_once_before_the_jobs(scheduler):
    ran = []

    @scheduler.startup()
    def warm() -> None:
        ran.append("warm")

    with scheduler:
        assert ran == ["warm"]
    with scheduler:
        assert ran == ["warm"]
    scheduler.run_startup()
    assert warm() is None
    assert ran == ["warm"]


def test_a_failure_ends_the_start_and_frees_the_task(local):
    ran = []

    @local.startup()
    def migrate() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        local.start()
    assert not local.started
    with local:
        assert ran == [1, 1]


def test_a_failure_may_be_kept(local):
    @local.startup(on_error="keep", wait=True)
    def migrate() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        local.run_startup()
    with pytest.raises(RunFailed, match="ValueError: broken"):
        local.run_startup()


def test_async_tasks_run_on_the_loop_of_the_application(local):
    loops = []

    @local.startup()
    async def warm() -> None:
        loops.append(asyncio.get_running_loop())

    @local.startup()
    async def other() -> None:
        loops.append(asyncio.get_running_loop())

    async def main() -> None:
        async with local:
            assert loops == [asyncio.get_running_loop()] * 2
        await local.arun_startup()
        assert len(loops) == 2

    asyncio.run(main())


def test_async_tasks_without_a_loop(local):
    ran = []

    @local.startup()
    async def warm() -> None:
        ran.append(1)

    local.run_startup()
    assert ran == [1]


@pytest.mark.parametrize(
    ("given", "option", "found"),
    [("sha-1", None, "deploy:sha-1"), ("sha-1", "sha-2", "deploy:sha-2"), ("", None, "code:")],
)
def test_deploy_id_is_taken_from_the_first_source_that_has_one(monkeypatch, given, option, found):
    monkeypatch.setenv("CRONSENSUS_DEPLOY_ID", given)
    scheduler = Scheduler("memory://")
    assert scheduler.settings.deploy_id == (given or None)
    assert keys(scheduler, scope="deploy", deploy_id=option)[0].startswith(found)


def test_deploy_without_an_id_is_named_by_the_code():
    assert key("deploy").startswith("code:r1+")


def test_a_host_is_its_boot():
    assert key("host") == key("host")
    assert "/" not in key("host")


def test_a_generation_may_be_named(monkeypatch):
    monkeypatch.setenv("CRONSENSUS_GENERATION", "7")
    assert keys(Scheduler("memory://")) == ["start:7"]
    monkeypatch.setenv("CRONSENSUS_GENERATION", "x" * 201)
    with pytest.raises(InvalidOption, match=r"CRONSENSUS_GENERATION 'xxx.*…': use 1 to 200 printable characters"):
        Scheduler("memory://")


SHOW = "from cronsensus.startup.generations import name_master; print(name_master())"
FORK = f"""
import os
if os.fork() == 0:
    {SHOW}
else:
    os.wait()
    {SHOW}
"""


def masters(program, **options):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, **options)
    return done.stdout.split()


def test_workers_of_one_master_are_one_generation_and_another_master_is_another():
    worker, own = masters(FORK.replace("; ", "\n    "), start_new_session=True)
    assert worker == own
    again = masters(SHOW, start_new_session=True)
    assert again != [own]
    assert name_master() not in {own, *again}
    assert str(os.getppid()) not in own.split(":")[1:2]


# --- a worker that waits can be stopped -------------------------------------------------------------------------------


class Elsewhere:
    """Another worker, which runs the task until it is let go."""

    def __init__(self, url):
        self.url = url
        self.began, self.go = threading.Event(), threading.Event()

        def migrate():
            self.began.set()
            assert self.go.wait(60)

        self.scheduler = Scheduler(url)
        self.scheduler.startup(wait=True)(migrate)
        self.thread = threading.Thread(target=self.scheduler.run_startup, daemon=True)

    def __enter__(self):
        self.thread.start()
        assert self.began.wait(60)
        return self

    def __exit__(self, *_):
        self.go.set()
        self.thread.join(30)
        self.scheduler._opened.close()


@pytest.fixture(params=["sqlite", "redis"])
def elsewhere(request, folder, monkeypatch):
    url = f"sqlite:///{folder}/x.db" if request.param == "sqlite" else request.getfixturevalue("redis_url")
    monkeypatch.setenv("CRONSENSUS_GENERATION", "g")
    with Elsewhere(url) as made:
        yield made


@pytest.fixture
def waits(monkeypatch):
    """Is set when a call begins to wait."""
    seen, add = threading.Event(), Waiters.add_waiter

    def said(self, occurrence):
        seen.set()
        return add(self, occurrence)

    monkeypatch.setattr(Waiters, "add_waiter", said)
    return seen


@pytest.mark.parametrize("is_async", [False, True])
def test_stop_ends_a_start_that_waits_for_another_worker(elsewhere, waits, is_async):
    scheduler = waiting(elsewhere.url, is_async=is_async)
    ended = []

    def start():
        try:
            scheduler.start()
        except StillRunning as error:
            ended.append(str(error))

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    assert waits.wait(60)
    assert scheduler.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert "was asked to stop while it waited for 'startup:migrate'" in ended[0]
    assert not scheduler.started


@pytest.mark.parametrize("verb", ["astart", "arun_startup"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_start_does_not_wait_for_another_worker(elsewhere, waits, verb, is_async):
    scheduler = waiting(elsewhere.url, is_async=is_async)

    async def main():
        starting = asyncio.ensure_future(getattr(scheduler, verb)())
        assert await asyncio.to_thread(waits.wait, 30)
        starting.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await starting

    asyncio.run(main())
    assert elsewhere.thread.is_alive()
    assert not scheduler.started
    scheduler._opened.close()


@pytest.mark.parametrize("elsewhere", ["sqlite"], indirect=True)
@pytest.mark.parametrize("verb", ["astart", "arun_startup"])
def test_a_start_that_is_cancelled_twice_before_it_waits_does_not_wait_for_another_worker(elsewhere, monkeypatch, verb):
    scheduler = waiting(elsewhere.url, is_async=False)
    reached, go_on = threading.Event(), threading.Event()
    run = tasks._Startup.run_task

    def slowly(*given):
        reached.set()
        assert go_on.wait(60)
        return run(*given)

    monkeypatch.setattr(tasks._Startup, "run_task", slowly)

    async def main():
        starting = asyncio.ensure_future(getattr(scheduler, verb)())
        assert await asyncio.to_thread(reached.wait, 60)
        for _ in range(2):
            starting.cancel()
            for _ in range(5):  # it is to be in the middle of what it does about the first one
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await starting
        go_on.set()

    asyncio.run(main())  # waits for the loop's threads
    assert elsewhere.thread.is_alive()
    assert not scheduler.started
    scheduler._opened.close()


def waiting(url, *, is_async):
    scheduler = Scheduler(url)

    async def soon(): ...

    scheduler.startup(wait=True, name="migrate")(soon if is_async else lambda: None)
    return scheduler


@pytest.mark.parametrize("elsewhere", ["sqlite"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_that_waits_for_another_one(elsewhere, number):
    given = [sys.executable, "-m", "tests.once.waiting_worker", elsewhere.url]
    worker = subprocess.Popen(given, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waiting\n"
        worker.send_signal(number)
        out, err = worker.communicate(timeout=100)
    finally:
        worker.kill()
    assert (worker.returncode, out) == (0, "True\n"), err
    assert "was asked to stop while it waited" in err
    assert elsewhere.thread.is_alive()
