"""The example in ``examples/snapshots`` under kill -9 at random: each snapshot appears exactly once.

Looked at from outside: which files ever appear in the folder, what the shop and the catalog hold, and the audit.
``SNAPSHOTS_TEST_KILLS`` and ``SNAPSHOTS_TEST_SEED`` lengthen or repeat it by hand.
"""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cronsensus.audit import audit
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import open_store

EXAMPLE = Path(__file__).parents[1] / "examples" / "snapshots"
KILLS = int(os.environ.get("SNAPSHOTS_TEST_KILLS") or 10)
KEEP = 6
PATIENCE = 60.0
NODES = ("a", "b", "c")


class Watcher(threading.Thread):
    """Looks at the folder of snapshots all the time, and remembers every file that it ever saw."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.seen: dict[str, int] = {}
        self.sales: dict[str, int] = {}
        self.wrong: list[str] = []
        self.most = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            self.look()

    def look(self) -> None:
        try:
            files = {entry.name: entry.inode() for entry in os.scandir(self.folder) if entry.name.startswith("shop-")}
        except FileNotFoundError:
            return
        self.most = max(self.most, len(files))
        for name in sorted(files):
            if name not in self.seen:
                self.seen[name] = files[name]
                self.examine(name)
            elif self.seen[name] != files[name]:
                self.wrong.append(f"{name} was made twice")

    def examine(self, name: str) -> None:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.folder / name}?mode=ro", uri=True)) as copy:
                if copy.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                    self.wrong.append(f"{name} is damaged")
                self.sales[name] = copy.execute("SELECT count(*) FROM sales").fetchone()[0]
        except sqlite3.Error as error:
            self.wrong.append(f"{name} cannot be read: {error}")


class Processes:
    """Three processes that run the example; killed and replaced here, and only these."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, name: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRONSENSUS_")}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(EXAMPLE), *filter(None, [environment.get("PYTHONPATH")])]),
            "SNAPSHOTS_FOLDER": str(self.folder),
            "SNAPSHOTS_EVERY": "2s",
            "SNAPSHOTS_KEEP": str(KEEP),
        }
        path = self.folder / f"node-{name}-{len(self.started)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "cronsensus", "run", "jobs:scheduler", "--node", name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self.live[name] = process
        self.started.append((process, path))

    def kill(self, name: str) -> None:
        self.live[name].kill()
        self.live[name].wait()

    def stop(self, name: str) -> None:
        """Stop a process, and wait until it stands still."""
        self.live[name].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.live[name].pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def drain(self) -> list[int]:
        for process in self.live.values():
            process.terminate()
        return [process.wait(PATIENCE) for process in self.live.values()]

    def beginning(self) -> str | None:
        """Return a node that is in the middle of a snapshot."""
        return next((name for name in self.live if self.in_a_snapshot(name)), None)

    def in_a_snapshot(self, name: str) -> bool:
        path = next(path for started, path in self.started if started is self.live[name])
        said = path.read_text(errors="replace")
        return said.count(" begins, ") > said.count(" ends, ")

    def cut(self) -> int:
        """Count the snapshots that began and never ended, because their process was killed."""
        texts = [path.read_text(errors="replace") for process, path in self.started if process.returncode == -9]
        return sum(text.count(" begins, ") - text.count(" ends, ") for text in texts)

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.live.values())

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for _, path in self.started)

    def end_all(self) -> None:
        for process, _ in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.end_all()


def until(happened: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"after {PATIENCE:.0f} s still not: {what}"
        threading.Event().wait(0.02)


@pytest.mark.timeout(4 * KILLS + 4 * PATIENCE)
def test_each_snapshot_is_made_exactly_once_while_processes_are_killed_at_random(tmp_path, processes):
    seed = int(os.environ.get("SNAPSHOTS_TEST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"SNAPSHOTS_TEST_SEED={seed}")
    dice = random.Random(seed)
    watcher = Watcher(tmp_path / "snapshots")
    watcher.start()
    for name in NODES:
        processes.start(name)
    until(lambda: watcher.seen or not processes.alive(), "the first snapshot")
    assert processes.alive(), processes.logs()

    kill_at_random(processes, dice)
    until(lambda: len(watcher.seen) > KEEP + 1, "old snapshots are rotated away")

    store = open_store(f"sqlite:///{tmp_path / 'cronsensus.db'}")
    pids = {process.pid for process in processes.live.values()}
    until(lambda: pids <= {one.pid for one in store.sessions()}, "the last one that was replaced takes part")
    until(lambda: 0.5 < time.time() % 1 < 0.8, "the later half of a second")
    end = store.now()
    until(lambda: not audit(store, until=end).pending, "everything that was due is done")
    exits = processes.drain()
    report = audit(store, until=end)
    watcher.look()
    watcher.stopped.set()
    watcher.join()

    # The fault bit.
    assert processes.cut() >= 1, "no kill cut a snapshot"
    assert report.takeovers >= 1
    # The ledger is in order.
    assert report.findings == []
    assert (report.missed, report.duplicates, report.ran) == (0, 0, report.expected)
    assert report.succeeded == report.expected
    assert exits == [0, 0, 0]
    # So are the files: each nominal time has one, made once, whole, and later ones hold no fewer sales.
    wanted = [name_of(at) for at in nominal_times(store, "snapshot", end)]
    made = sorted(name for name in watcher.seen if name <= name_of(end))
    assert watcher.wrong == []
    assert made == wanted
    assert len(made) == next(job.expected for job in report.jobs if job.job == "snapshot") > KEEP
    assert [watcher.sales[name] for name in made] == sorted(watcher.sales[name] for name in made)
    # Rotation keeps the newest, and leaves nothing half-made behind.
    left = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert left == sorted(watcher.seen)[-KEEP:]
    assert watcher.most <= KEEP + 1
    with contextlib.closing(sqlite3.connect(tmp_path / "catalog.db")) as catalog:
        assert [name for (name,) in catalog.execute("SELECT name FROM snapshots ORDER BY name")] == sorted(watcher.seen)
    # Each second was sold once, however often it was run.
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        sold = {key for (key,) in shop.execute("SELECT key FROM sales")}
    assert {f"default:sell:@{at:%Y-%m-%dT%H:%M:%S}Z" for at in nominal_times(store, "sell", end)} <= sold
    store.close()


def kill_at_random(processes: Processes, dice: random.Random) -> None:
    """Kill a process every second or two: at any time, or, twice in three times, in the middle of a snapshot."""
    for number in range(KILLS):
        pause, delay, victim = 0.8 + dice.random() * 1.2, dice.random() * 0.04, dice.choice(NODES)
        threading.Event().wait(pause)
        if number % 3:
            victim = stopped_in_a_snapshot(processes, delay)
        processes.kill(victim)
        processes.start(victim)


def stopped_in_a_snapshot(processes: Processes, delay: float) -> str:
    """Stop a process some time after it began a snapshot, and before it ended it; return its name."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (found := processes.beginning()) is not None:
            threading.Event().wait(delay)
            processes.stop(found)
            if processes.in_a_snapshot(found):
                return found
            processes.live[found].send_signal(signal.SIGCONT)
            delay /= 2  # on a fast machine a snapshot takes no longer
        threading.Event().wait(0.005)
    raise AssertionError(f"after {PATIENCE:.0f} s no process is in the middle of a snapshot\n{processes.logs()}")


def name_of(at: datetime) -> str:
    return f"shop-{at:%Y%m%dT%H%M%SZ}.db"


def nominal_times(store: Any, job: str, end: datetime) -> list[datetime]:
    """Return the nominal times of a job that succeeded up to ``end``."""
    where = OccurrenceFilter(job=job, states=(State.SUCCEEDED,), scheduled_until=end)
    times = [one.scheduled_for for one in store.occurrences(where, limit=10_000) if one.scheduled_for is not None]
    return sorted(at.astimezone(UTC) for at in times)
