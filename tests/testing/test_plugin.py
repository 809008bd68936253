"""The fixture in a project of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
from cronsensus import Scheduler, cron
scheduler = Scheduler("postgresql://nobody:secret@127.0.0.1:1/prod", tz="Europe/Paris")
@scheduler.job(cron("30 2 * * *"))
def nightly(): pass
@scheduler.job()
def broken():
    assert 1 == 2
@scheduler.job()
async def double(number: int) -> int:
    return 2 * number
"""
TESTS = """
import asyncio, sys
import jobs, pytest
def test_view(cronsensus):
    assert jobs.double.enqueue(2).result("1m") == 4
@pytest.mark.cronsensus(start="2027-03-27 12:00", nodes=3)
def test_night(cronsensus):
    cronsensus.travel(to="2027-03-29 00:00")
    cronsensus.assert_ran_once(jobs.nightly, on="2027-03-28")
def test_async(cronsensus):
    async def view():
        handle = await jobs.double.aenqueue(3)
        return await handle.aresult("1m")
    assert asyncio.run(view()) == 6
@pytest.fixture
def anyio_backend():
    return "asyncio"
@pytest.mark.anyio
async def test_on_the_loop_of_anyio(cronsensus):
    handle = await jobs.double.aenqueue(3)
    await cronsensus.arun_due()
    assert await handle.aresult("1m") == 6
def test_fails_in_silence(cronsensus):
    jobs.broken.enqueue()
    cronsensus.run_due()
@pytest.mark.cronsensus(allow_failures=True)
def test_may_fail(cronsensus):
    jobs.broken.enqueue()
    cronsensus.run_due()
def test_would_use_the_real_store():
    jobs.double.enqueue(1)
@pytest.mark.real_store
def test_may_use_the_real_store():
    with pytest.raises(Exception, match="Connection refused|connection failed|cannot be reached"):
        jobs.double.enqueue(1)
"""
PLAIN = """
import sys
def test_nothing():
    assert not [name for name in sys.modules if name.startswith("cronsensus.") and "plugin" not in name
                and name not in ("cronsensus.testing",)]
"""


def run_pytest(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CRONSENSUS", "COV"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *more]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "jobs.py").write_text(APP, "utf-8")
    (folder / "test_jobs.py").write_text(TESTS, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\ncronsensus_app = jobs:scheduler\npythonpath = .\n", "utf-8")
    return run_pytest(folder, "-rA", "--no-header").stdout


def test_a_project_tests_views_nights_and_async_code_by_the_fixture(report: str) -> None:
    for name in (
        "test_view",
        "test_night",
        "test_async",
        "test_on_the_loop_of_anyio",
        "test_may_fail",
        "test_may_use_the_real_store",
    ):
        assert f"PASSED test_jobs.py::{name}" in report, report


def test_a_job_that_failed_unseen_fails_its_test_with_the_assert_in_the_job(report: str) -> None:
    assert "FAILED test_jobs.py::test_fails_in_silence" in report
    assert "1 failed run of which the test saw nothing" in report
    assert "assert 1 == 2" in report


def test_a_test_without_the_fixture_reaches_no_real_store(report: str) -> None:
    assert "this test would use the real store postgresql://nobody:***@127.0.0.1:1/prod; take the fixture" in report


def test_a_pytest_that_tests_no_job_loads_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(PLAIN, "utf-8")
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "cronsensus" not in done.stdout
