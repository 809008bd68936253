"""Start-up tasks in one process: when they run, what an exception does, which generation it is."""

import asyncio
import os
import subprocess
import sys

import pytest

from cronsensus import InvalidOption, RunFailed, Scheduler
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.startup.generations import generation_of, master


def key(scope, deploy_id=None, generation=None):
    return generation_of(scope, deploy_id=deploy_id, generation=generation, release=lambda: "r1", function=key)


def keys(scheduler, **options):
    """Return the key under which a start-up task of this scheduler has run."""
    scheduler.startup(name="warm", **options)(lambda: None)
    scheduler.run_startup()
    return [one.key for one in scheduler.store.occurrences(OccurrenceFilter())]


def test_it_runs_before_the_jobs_and_once(scheduler):
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
def test_a_deploy_is_named_by_whoever_knows_it(monkeypatch, given, option, found):
    monkeypatch.setenv("CRONSENSUS_DEPLOY_ID", given)
    scheduler = Scheduler("memory://")
    assert scheduler.settings.deploy_id == (given or None)
    assert keys(scheduler, scope="deploy", deploy_id=option)[0].startswith(found)


def test_a_deploy_that_nobody_names_is_the_code():
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


SHOW = "from cronsensus.startup.generations import master; print(master())"
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
    assert master() not in {own, *again}
    assert str(os.getppid()) not in own.split(":")[1:2]
