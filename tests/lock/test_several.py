"""A lock for several, held by processes that are killed: never one too many, and no place is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lock.places import lock_at
from tests.lock.several import LIMIT

ROOT = Path(__file__).parents[2]
KILLS = 5


@pytest.mark.timeout(180)
def test_no_more_than_may_hold_it_although_holders_are_killed(shared_by_several, folder):
    done = subprocess.run(
        [sys.executable, "-m", "tests.lock.several", shared_by_several, str(folder), str(KILLS)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["wrong"], seen["stuck"]) == ([], 0), done.stderr
    assert seen["left"] == 0
    assert seen["holders_killed"] >= KILLS // 4, "the fault did not bite: too few held it when they were killed"
    locks = [lock_at(shared_by_several, "several", limit=LIMIT) for _ in range(LIMIT + 1)]
    assert [lock.acquire(blocking=False) for lock in locks] == [*[True] * LIMIT, False], "a place was lost"
    for lock in locks[:LIMIT]:
        lock.release()
