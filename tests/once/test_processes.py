"""Many processes call in the same instant, and are killed at random: one recorded result, one effect."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Scheduler, State
from cronsensus.model.occurrence import OccurrenceFilter
from tests.once.test_once import Effects
from tests.scratch import BUSY
from tests.servers.distance import patience
from tests.servers.fixtures import with_query

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("CRONSENSUS_TEST_GENERATIONS") or 2)
"""Generations of workers; the long run has a hundred."""
CALLERS = 50
WORKERS = 8


def run(url: str, kind: str, workers: int, kills: int, seed: int, *, table: str = "-", **env: str) -> Any:
    # A busy machine is no fault here.
    if not url.startswith(("redis", "sqlite")):
        url = with_query(url, timeout=f"{patience(60)}s")
    given = [url, kind, str(workers), str(kills), str(seed), table]
    done = subprocess.run(
        [sys.executable, "-m", "tests.once.working", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
        # A master has a process group of its own, as service managers give it one.
        start_new_session=True,
        timeout=patience(280),
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert not [line for line in seen["lines"] if line[1] == "error"], done.stderr
    return seen


def said(seen: Any, word: str) -> list[str]:
    return [line[2] if word == "result" else line[0] for line in seen["lines"] if line[1] == word]


def recorded(url: str, job: str) -> list[State]:
    store = Scheduler(url).store
    try:
        return [one.state for one in store.occurrences(OccurrenceFilter(job=job), limit=1000)]
    finally:
        store.close()


def migrate(url: str) -> None:
    scheduler = Scheduler(url)
    scheduler.store.migrate()
    scheduler._opened.close()


@pytest.mark.timeout(patience(300))
def test_of_fifty_concurrent_callers_one_result_is_recorded(shared_url):
    migrate(shared_url)
    seen = run(shared_url, "once", CALLERS, 4, 1)
    assert len(set(said(seen, "result"))) == 1
    assert len(said(seen, "result")) + len(seen["killed"]) >= CALLERS
    assert recorded(shared_url, "once:run") == [State.SUCCEEDED]
    ended_well = set(said(seen, "end")) - {str(pid) for pid in seen["killed"]}
    assert len(ended_well) <= 1, "two ran it to the end"
    assert set(said(seen, "begin")) & {str(pid) for pid in seen["killed"]}, "the fault did not bite"


@pytest.mark.timeout(patience(300))
def test_of_fifty_concurrent_callers_one_effect_is_committed(sql_url):
    migrate(sql_url)
    effects = Effects(sql_url)
    seen = run(sql_url, "effects", CALLERS, 4, 2, table=effects.table)
    results = set(said(seen, "result"))
    assert len(results) == 1
    assert effects.all() == list(results)
    assert recorded(sql_url, "once:run") == [State.SUCCEEDED]
    effects.drop()


@pytest.mark.timeout(patience(300) * ROUNDS)
def test_of_eight_workers_exactly_one_completes_the_task_in_each_generation(shared_url):
    for generation in range(1, ROUNDS + 1):
        seen = run(shared_url, "wait", WORKERS, 2, generation)
        assert recorded(shared_url, "startup:run") == [State.SUCCEEDED] * generation
        killed = {str(pid) for pid in seen["killed"]}
        assert len(set(said(seen, "end")) - killed) <= 1, "two of one generation ran it to the end"
        order = [line[1] for line in seen["lines"]]
        assert "started" not in order[: order.index("end")], "somebody went on before it had succeeded"
        assert len(set(said(seen, "started")) - killed) == WORKERS


@pytest.mark.timeout(patience(300))
def test_startup_task_without_wait_is_taken_over(shared_url):
    """The runner is killed, and no process is started in its place."""
    seen = run(shared_url, "watch", WORKERS, 2, 3)
    assert recorded(shared_url, "startup:run") == [State.SUCCEEDED]
    assert seen["killed"]


@pytest.mark.timeout(patience(300))
def test_key_of_an_unseen_dead_process_is_taken_over_after_the_lease(folder):
    url = f"sqlite:///{folder / 'once.db'}?{BUSY}"
    migrate(url)
    seen = run(url, "once", WORKERS, 1, 4, CRONSENSUS_FAST_EVIDENCE="false", CRONSENSUS_LEASE="1s")
    assert seen["killed"]
    assert len(set(said(seen, "result"))) == 1
    assert recorded(url, "once:run") == [State.SUCCEEDED]
