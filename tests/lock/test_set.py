"""etcd's set test: a lock alone does not protect from a holder that was frozen; its token does."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKERS, SECONDS = 4, 12


def run(url: str, folder: Path, how: str) -> tuple[set[int], set[int], dict[str, int]]:
    """Return what was written as far as the workers know, what is in the file, and what they met."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lock.setting", url, str(folder), str(number), str(SECONDS), how],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for number in range(WORKERS)
    ]  # fmt: skip
    ends = time.monotonic() + SECONDS
    try:
        while time.monotonic() < ends and all(worker.poll() is None for worker in workers):
            holder = int((folder / "holder").read_text() or 0) if (folder / "holder").exists() else 0
            frozen = next((worker for worker in workers if worker.pid == holder), None)
            if frozen is not None:
                frozen.send_signal(signal.SIGSTOP)
                signal.sigtimedwait([], 1.5)  # longer than the TTL
                frozen.send_signal(signal.SIGCONT)
            signal.sigtimedwait([], random.random() * 0.2)
        met = [json.loads(worker.communicate(timeout=90)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
    acknowledged = {int(line) for path in folder.glob("done-*") for line in path.read_text().split()}
    there = set(json.loads((folder / "set").read_text())["elements"])
    return acknowledged, there, {key: sum(one[key] for one in met) for key in met[0]}


@pytest.mark.timeout(300)
def test_what_was_acknowledged_under_the_token_is_there(shared_url, folder):
    acknowledged, there, met = run(shared_url, folder, "fenced")
    print(met)
    assert len(acknowledged) > 20
    assert acknowledged <= there
    assert met["stale"] + met["lost"] > 0, "the fault did not bite: nobody who held the lock was frozen"


@pytest.mark.timeout(300)
def test_without_the_token_a_frozen_holder_undoes_what_others_wrote(shared_url, folder):
    """The same, and the file believes everybody: this is what a lock with a TTL cannot prevent."""
    for _ in range(5):
        acknowledged, there, _met = run(shared_url, folder, "unfenced")
        if not acknowledged <= there:
            return
    pytest.fail("the fault did not bite: nothing was lost without the fence either")
