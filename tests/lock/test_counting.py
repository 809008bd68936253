"""16 processes count in one file under the lock, and every increment is there in the end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKERS = 16
ROUNDS = int(os.environ.get("CRONSENSUS_TEST_ROUNDS") or 10)
"""Of each worker; a thousand of them, as the long run has it, take minutes."""
KILLS = max(6, min(30, ROUNDS // 5))


def count(url: str, folder: Path, *, kills: int = 0, ttl: str = "30s", limit: int = 1, rounds: int = ROUNDS) -> Any:
    given = [url, str(folder), str(WORKERS), str(rounds), str(kills), ttl, str(limit)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.lock.counting", *given], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(1800)
def test_no_increment_is_lost(shared, folder):
    seen = count(shared, folder)
    assert seen["wrong"] == []
    assert seen["sums"] == {f"w{number}": ROUNDS for number in range(WORKERS)}


@pytest.mark.timeout(1800)
def test_no_increment_is_lost_when_holders_are_killed(shared, folder):
    seen = count(shared, folder, kills=KILLS)
    assert seen["wrong"] == []
    assert seen["sums"] == {f"w{number}": ROUNDS for number in range(WORKERS)}
    assert seen["kills"] == KILLS
    assert seen["holders_killed"] >= KILLS // 6, "the fault did not bite: too few held the lock when they were killed"


@pytest.mark.timeout(1800)
def test_increments_are_lost_where_the_lock_lets_two_in(folder):
    """The count would show it: with a lock for two the file is wrong soon."""
    assert count(f"sqlite:///{folder / 'locks.db'}", folder, limit=2, rounds=max(ROUNDS, 100))["wrong"]
