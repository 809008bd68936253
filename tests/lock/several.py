"""Workers that share a lock for several, and the kernel's word on how many are in: ``several.py URL FOLDER KILLS``.

Each holder locks one of as many files as may hold the lock; if none is free, there is one too many. The kernel frees
the file of a killed worker before anybody can see that its process is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from tests.lock.places import lock_at
from tests.scratch import import_before_forks
from tests.servers.distance import patience

WORKERS, LIMIT, ROUNDS = 6, 3, 10
PATIENCE = patience(60.0)


class Files:
    """As many files as may hold the lock."""

    def __init__(self, folder: Path) -> None:
        self._files = [os.open(folder / f"in-{number}", os.O_RDWR | os.O_CREAT) for number in range(LIMIT)]

    def enter(self) -> int:
        """Lock a free one, with the pid in it."""
        for file in self._files:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.pwrite(file, str(os.getpid()).encode().ljust(20), 0)
                return file
        raise AssertionError(f"more than {LIMIT} hold the lock")

    @staticmethod
    def leave(file: int) -> None:
        """Unlock it."""
        os.pwrite(file, b"0".ljust(20), 0)
        fcntl.flock(file, fcntl.LOCK_UN)

    def holders(self) -> list[int]:
        """Return the processes inside, as far as the files tell."""
        return [int(os.pread(file, 20, 0) or 0) for file in self._files]


def work(url: str, folder: Path) -> None:
    lock, files = lock_at(url, "several", limit=LIMIT, blocking_timeout=PATIENCE), Files(folder)
    tokens = [0]
    for _ in range(ROUNDS):
        with lock as lease:
            assert lease.token > tokens[-1], (lease.token, tokens)
            tokens.append(lease.token)
            file = files.enter()
            threading.Event().wait(random.random() * 0.01)
            files.leave(file)


def main() -> None:
    url, given, kills = sys.argv[1:]
    folder, left, holders_killed = Path(given), int(kills), 0
    import_before_forks(url)
    alive: set[int] = set()
    wrong: list[int] = []

    def start() -> None:
        pid = os.fork()
        if pid:
            alive.add(pid)
            return
        try:
            random.seed(os.getpid())
            work(url, folder)
        except BaseException:  # noqa: BLE001 - the parent sees the code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    lock_at(url, "several", limit=LIMIT)  # imports what is needed, once for all
    for _ in range(WORKERS):
        start()
    files, until = Files(folder), time.monotonic() + PATIENCE
    while alive and time.monotonic() < until:
        found = [pid for pid in files.holders() if pid in alive]
        if left and found:
            victim = random.choice(found)
            os.kill(victim, signal.SIGSTOP)
            holders_killed += victim in files.holders()
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            alive.discard(victim)
            left -= 1
            start()
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            alive.discard(pid)
            wrong += [status] if status else []
        else:
            signal.sigtimedwait([], 0.002)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    print(json.dumps({"wrong": wrong, "stuck": len(alive), "left": left, "holders_killed": holders_killed}))


if __name__ == "__main__":
    main()
