"""etcd's set test: a lock alone does not protect from a holder that was frozen; its token does."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.scratch import make_tables
from tests.servers.distance import patience

ROOT = Path(__file__).parents[2]
WORKERS = 4
FREEZES = int(os.environ.get("CRONSENSUS_TEST_FREEZES") or 1)
FROZEN_FOR = 1.3
"""Seconds; longer than the TTL."""
PATIENCE = patience(60.0)


class Workers:
    """Processes that add to one set, see ``setting``."""

    def __init__(self, url: str, folder: Path, how: str) -> None:
        self.folder = folder
        make_tables(url)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.lock.setting", url, str(folder), str(number), how],
                cwd=ROOT, stdout=subprocess.PIPE, text=True,
            )
            for number in range(WORKERS)
        ]  # fmt: skip

    def freeze_a_holder(self) -> None:
        """Stop one that holds the lock for longer than its TTL."""
        deadline = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < deadline, "nobody holds the lock"
            assert all(process.poll() is None for process in self.processes), "a worker has ended"
            holder = next((one for one in self.processes if one.pid == self._holder()), None)
            if holder is not None:
                holder.send_signal(signal.SIGSTOP)
                if self._holder() == holder.pid:
                    break
                holder.send_signal(signal.SIGCONT)
            signal.sigtimedwait([], 0.001)
        signal.sigtimedwait([], FROZEN_FOR)
        holder.send_signal(signal.SIGCONT)

    def _holder(self) -> int:
        try:
            return int((self.folder / "holder").read_text() or 0)
        except FileNotFoundError:
            return 0

    def go_on(self, more: int) -> None:
        """Wait until so many more elements are acknowledged."""
        seen, deadline = len(self.acknowledged()), time.monotonic() + PATIENCE
        while len(self.acknowledged()) < seen + more:
            assert time.monotonic() < deadline, "the workers stand still"
            signal.sigtimedwait([], 0.01)

    def acknowledged(self) -> set[int]:
        """Return what the workers believe to have written."""
        return {
            int(line) for path in self.folder.glob("done-*") for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        }  # fmt: skip

    def there(self) -> set[int]:
        """Return what is in the set."""
        return set(json.loads((self.folder / "set").read_text())["elements"])

    def end(self) -> dict[str, int]:
        """Let them finish; return what they met."""
        (self.folder / "stop").touch()
        met: list[Any] = [json.loads(one.communicate(timeout=PATIENCE)[0]) for one in self.processes]
        return {key: sum(one[key] for one in met) for key in met[0]}


@contextmanager
def workers(url: str, folder: Path, how: str) -> Iterator[Workers]:
    begun = Workers(url, folder, how)
    try:
        yield begun
    finally:
        for process in begun.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.timeout(300)
def test_set_under_a_lock_keeps_all_acknowledged_values(shared_timed, folder):
    with workers(shared_timed, folder, "fenced") as them:
        them.go_on(10)
        for _ in range(FREEZES):
            them.freeze_a_holder()
            them.go_on(random.randrange(1, 10))
        met = them.end()
        print(met)
        assert them.acknowledged() <= them.there()
        assert met["stale"] + met["lost"] >= FREEZES, "the fault did not bite: nobody was late"


@pytest.mark.timeout(300)
def test_without_the_token_a_frozen_holder_undoes_what_others_wrote(shared_timed, folder):
    """The same, and the file believes everybody: this is what a lock with a TTL cannot prevent."""
    with workers(shared_timed, folder, "unfenced") as them:
        them.go_on(10)
        for _ in range(30):
            them.freeze_a_holder()
            them.go_on(WORKERS)
            acknowledged = them.acknowledged()  # before the set is read: it may grow meanwhile
            if not acknowledged <= them.there():
                return
    pytest.fail("the fault did not bite: nothing was lost without the fence either")


@pytest.mark.timeout(300)
def test_file_lock_of_a_frozen_process_keeps_others_waiting(folder):
    """The kernel holds the lock for as long as the process is there, so no other process gets it."""
    with workers(f"file://{folder / 'locks'}", folder, "unfenced") as them:
        them.go_on(10)
        for _ in range(FREEZES):
            them.freeze_a_holder()
            them.go_on(WORKERS)
        met = them.end()
        assert them.acknowledged() == them.there()
        assert met["stale"] + met["lost"] == 0
