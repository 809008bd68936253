"""Hand the write lock over without delay: a waiter is notified when the lock comes free.

SQLite has no queue for its write lock: a process that finds it taken must try again, and pauses between the tries cost
either time or work. So a waiter keeps a named pipe beside the database open for reading, and a writer that has ended
writes a byte into it; where there is no reader, that write fails at once. A process that has notified a waiter pauses
once before it takes the lock again, so that two busy processes take turns. The notification is advisory: SQLite alone
grants the lock, and a waiter that receives nothing tries again by itself.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cronsensus.stores.sql.sqlite.pipes import SUPPORTED, directory_of, make_pipe, open_to_listen, write_notification
from cronsensus.timing.clock import SystemClock

NAME = "writers"
STEP_BACK = 0.0003
"""Seconds for which a process that notified a waiter leaves the lock to others."""
JUST_BEFORE = 0.002
"""Seconds after which a waiter that was notified has had its chance."""
_CLOCK = SystemClock()


class WriteLockQueue:
    """One handle on the queue. Safe to share between threads."""

    def __init__(self, database: Path, pause: Callable[[float], object]) -> None:
        """Use the queue of ``database``; ``pause(seconds)`` waits where there are no named pipes."""
        self._database = database
        self._pipe = directory_of(database) / NAME
        self._pause = pause
        self._notified_at = float("-inf")
        self._supported = SUPPORTED

    @contextmanager
    def waiting(self) -> Iterator[Callable[[float], object]]:
        """Join the queue; gives ``wait(seconds)``, which ends early when the lock may be free."""
        reader = self._listen() if self._supported else None
        if reader is None:
            yield self._pause
            return
        poll = select.poll()
        poll.register(reader, select.POLLIN)

        def wait(seconds: float) -> None:
            if poll.poll(seconds * 1000):
                with contextlib.suppress(BlockingIOError):  # another waiter took the byte
                    os.read(reader, 4096)

        try:
            yield wait
        finally:
            os.close(reader)

    def _listen(self) -> int | None:
        with contextlib.suppress(OSError):
            return open_to_listen(self._pipe)
        try:
            with contextlib.suppress(FileExistsError):
                make_pipe(self._database, NAME)
            return open_to_listen(self._pipe)
        except OSError:
            self._supported = False
            return None

    def released(self) -> None:
        """Notify the waiters that the lock is free."""
        if self._supported:
            try:
                if write_notification(self._pipe):
                    self._notified_at = _CLOCK.monotonic()
            except OSError:
                self._supported = False

    def step_back(self) -> None:
        """Before taking the lock: leave it to others for a moment, if a waiter was notified just before."""
        since, self._notified_at = _CLOCK.monotonic() - self._notified_at, float("-inf")
        if since < JUST_BEFORE:
            self._pause(STEP_BACK)
