"""Workers that count in one file, each increment read, added and written under the lock: what two did at once is lost.

``count`` forks the workers and, if it is told to, kills holders at random; a killed worker begins anew where the file
says that it was. The file holds one counter per worker, so it says for itself whose increments are in it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cronsensus import Lock
from tests.lock.places import be_patient, lock_at
from tests.scratch import import_before_forks

BLOCK = 4096
NOBODY = b"0".ljust(20)


@dataclass(frozen=True)
class Count:
    """What was seen. ``wrong`` are reports of workers that did not find in the file what they had written."""

    sums: dict[str, int]
    tokens: list[int]
    kills: int
    holders_killed: int
    wrong: list[str]


class File:
    """Numbers in one block; a write is one system call, so that a kill leaves the old or the new."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)

    def read(self) -> dict[str, int]:
        text = os.pread(self._file, BLOCK, 0).rstrip(b" \0")
        return json.loads(text) if text else {}

    def write(self, numbers: dict[str, int]) -> None:
        os.pwrite(self._file, json.dumps(numbers).encode().ljust(BLOCK), 0)


def work(make_lock: Callable[[], Lock], folder: Path, worker: str, rounds: int, *, linger: bool) -> None:
    """Count to ``rounds``, from where the file says that this worker was; now and then ``linger`` in the middle."""
    lock, file = make_lock(), File(folder / "numbers")
    holder = os.open(folder / "holder", os.O_RDWR | os.O_CREAT)
    done: int | None = None
    while done is None or done < rounds:
        with lock as lease:
            os.pwrite(holder, str(os.getpid()).encode().ljust(len(NOBODY)), 0)
            numbers = file.read()
            if done is not None and numbers.get(worker, 0) != done:
                raise AssertionError(f"{worker} wrote {done} and found {numbers.get(worker)}")
            if numbers.get("token", 0) >= lease.token:
                raise AssertionError(f"{worker} got the token {lease.token} after {numbers.get('token')}")
            done = min(numbers.get(worker, 0) + 1, rounds)
            if linger and random.random() < 0.25:
                signal.sigtimedwait([], 0.02)
            file.write({**numbers, worker: done, "token": lease.token})
            os.pwrite(holder, NOBODY, 0)


def count(make_lock: Callable[[], Lock], folder: Path, *, workers: int, rounds: int, kills: int = 0) -> Count:
    """Let the workers count; return what the file says in the end."""
    make_lock()  # imports what is needed, once for all; it connects to nothing
    names = [f"w{number}" for number in range(workers)]
    alive: dict[int, str] = {}
    wrong: list[str] = []
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}", flush=True)
    dice, killed, holders_killed = random.Random(seed), 0, 0

    def start(name: str) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(make_lock, folder, name, rounds, linger=kills > 0)
                code = 0
            except Exception:  # noqa: BLE001 - the parent reports it
                (folder / f"{name}.wrong").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        alive[pid] = name

    for name in names:
        start(name)
    file = File(folder / "numbers")
    while alive:
        if killed < kills:
            # A machine may be so slow that holders are hard to meet; the last kill waits for one, if none was met yet.
            patience = 60 if killed == kills - 1 and not holders_killed else 5 if dice.random() < 0.8 else 0
            victim, held = _stop_one(folder, alive, dice, patience)
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            killed += 1
            holders_killed += held
            start(alive.pop(victim))
            seen = sum(file.read().values())
            while alive and sum(file.read().values()) < seen + dice.randrange(30) and not _reap(alive, wrong, folder):
                signal.sigtimedwait([], 0.002)
        if not _reap(alive, wrong, folder):
            signal.sigtimedwait([], 0.005)
    numbers = file.read()
    tokens = [numbers.pop("token", 0)]
    return Count(numbers, tokens, killed, holders_killed, wrong)


def _stop_one(folder: Path, alive: dict[int, str], dice: random.Random, patience: float) -> tuple[int, bool]:
    """Stop a worker, one that holds the lock if ``patience`` seconds show one; return it, and whether it does."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        holder = _holder(folder)
        if holder in alive:
            os.kill(holder, signal.SIGSTOP)
            if _holder(folder) == holder:
                return holder, True
            os.kill(holder, signal.SIGCONT)
        signal.sigtimedwait([], 0.001)
    victim = dice.choice(list(alive))
    os.kill(victim, signal.SIGSTOP)
    return victim, _holder(folder) == victim


def _holder(folder: Path) -> int | None:
    try:
        return int((folder / "holder").read_text() or 0)
    except (FileNotFoundError, ValueError):
        return None


def _reap(alive: dict[int, str], wrong: list[str], folder: Path) -> bool:
    """Note the workers that ended; ``True``: there was one."""
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid == 0:
        return False
    name = alive.pop(pid)
    if status != 0:
        report = folder / f"{name}.wrong"
        wrong.append(f"{name}: {report.read_text() if report.exists() else status}")
    return True


def main() -> None:
    url, folder, workers, rounds, kills, ttl, limit = sys.argv[1:]
    be_patient(url)
    import_before_forks(url)
    done = count(
        lambda: lock_at(url, "counting", ttl=ttl, limit=int(limit)),
        Path(folder),
        workers=int(workers),
        rounds=int(rounds),
        kills=int(kills),
    )
    print(json.dumps(done.__dict__))


if __name__ == "__main__":
    main()
