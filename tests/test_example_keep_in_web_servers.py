"""The examples with APScheduler in web workers: each worker runs each time, and with the guard's lines one does."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.audit import audit
from cronsensus.external.observed import read_observed
from cronsensus.model.occurrence import OccurrenceFilter
from tests.scratch import copy_migrated_sqlite, scratch_folder

EXAMPLES = Path(__file__).parent.parent / "examples"
PATIENCE = 60.0
STEP = 2
"""Seconds between two times of the examples."""

FLASK = [
    sys.executable, "-m", "gunicorn", "--workers", "8", "--bind", "unix:socket", "--no-control-socket", "app:app"
]  # fmt: skip
FASTAPI = [sys.executable, "-m", "uvicorn", "--workers", "4", "--uds", "socket", "keep_fastapi:app"]
SERVERS = {
    "flask": (FLASK, 8),
    "flask-preload": ([*FLASK, "--preload"], 8),
    "fastapi": (FASTAPI, 4),
}


def copy_example(kind: str, folder: Path, *, guarded: bool) -> None:
    """Write the example; bare is the same program without each line that says ``guard``."""
    from_folder = EXAMPLES / "keep_flask"
    files = [EXAMPLES / "keep_fastapi.py"] if kind == "fastapi" else [*from_folder.glob("*.py")]
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / file.name).write_text("".join(line for line in lines if guarded or "guard" not in line))


@contextlib.contextmanager
def served(kind: str, folder: Path, **settings: str):
    """Run the server; give the lines that its workers have printed so far."""
    out = folder / "out"
    # Unbuffered, print writes the end of its line apart, and another worker's line may come between.
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "",
        "CRONSENSUS_URL": f"sqlite:///{folder / 'kept.db'}",
        **settings,
    }
    with out.open("wb") as file:
        process = subprocess.Popen(
            SERVERS[kind][0], cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield lambda: out.read_text(encoding="utf-8").splitlines()
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


def ran(lines: list[str]) -> list[tuple[int, str]]:
    """Return each run: in which second of the day, and in which process."""
    found = [re.match(r"(\d\d):(\d\d):(\d\d) report in (\d+)$", line) for line in lines]
    return [((int(one[1]) * 60 + int(one[2])) * 60 + int(one[3]), one[4]) for one in found if one is not None]


def until(condition, what: str):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def all_workers_up(kind: str, folder: Path, *, guarded: bool, **settings: str):
    copy_example(kind, folder, guarded=guarded)
    with served(kind, folder, **settings) as lines:
        workers = SERVERS[kind][1]
        until(lambda: sum("keeping the schedule in" in line for line in lines()) == workers, "the start of all workers")
        yield lines


def until_all_ran_two_times(kind: str, lines) -> None:
    def by_all() -> list[int]:
        counted = Counter(at for at, _ in {(second // STEP, process) for second, process in ran(lines())})
        return [at for at, processes in counted.items() if processes == SERVERS[kind][1]]

    until(lambda: len(by_all()) >= 2, "two times that all workers ran")


@pytest.mark.parametrize("kind", SERVERS)
def test_without_the_guard_each_worker_runs_each_time(kind):
    with scratch_folder() as folder, all_workers_up(kind, folder, guarded=False) as lines:
        until_all_ran_two_times(kind, lines)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_guard_that_observes_lets_each_worker_run_each_time_and_counts(kind):
    with scratch_folder() as folder:
        copy_migrated_sqlite(folder / "kept.db")
        scheduler = Scheduler(f"sqlite:///{folder / 'kept.db'}")

        def recorded_by_all():
            return [one for one in read_observed(scheduler.store).jobs if one.replicas == SERVERS[kind][1]]

        with all_workers_up(kind, folder, guarded=True, CRONSENSUS_OBSERVE="1") as lines:
            until_all_ran_two_times(kind, lines)
            until(recorded_by_all, "the first records of all workers")
        (observed,) = recorded_by_all()
        scheduler.stop()
        printed = lines()
    assert observed.prevented == observed.runs - observed.times
    # What a worker could not record in the time that a stop has is missing.
    assert 2 * SERVERS[kind][1] <= observed.runs <= len(ran(printed)), "\n".join(printed)


@pytest.mark.parametrize("kind", SERVERS)
def test_with_the_guard_one_worker_runs_each_time(kind):
    with scratch_folder() as folder:
        with all_workers_up(kind, folder, guarded=True) as lines:
            before = len(ran(lines()))
            until(lambda: len(ran(lines())) >= before + 3, "three times")
        scheduler = Scheduler(f"sqlite:///{folder / 'kept.db'}")
        recorded = scheduler.store.occurrences(OccurrenceFilter(job="apscheduler:report"), limit=200)
        report = audit(scheduler.store)
        scheduler.stop()
        counted = len(ran(lines()))
    assert report.ok, report
    # What the stop has cut off is begun again.
    assert len(recorded) <= counted <= sum(one.attempt for one in recorded)
