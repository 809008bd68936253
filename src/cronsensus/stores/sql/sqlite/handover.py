"""Hand the write lock on without delay: who waits for it is told when it comes free.

SQLite has no queue for its write lock: whoever finds it taken must try again, and pauses in between cost either time or
work. So a waiter has a named pipe beside the database open for reading while it waits, and a writer that ends writes a
byte into it, which fails at once when nobody reads. A process that handed over steps back once before it wants the lock
again, so that two busy ones take turns. All of it is a hint: the lock is SQLite's alone, and a waiter that hears
nothing tries again by itself.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cronsensus.stores.sql.sqlite.pipes import SUPPORTED, directory_of, make_pipe, open_to_listen, tell

NAME = "writers"
STEP_BACK = 0.0003
"""Seconds for which a process that handed over leaves the lock to others."""


class Handover:
    """One handle's part in it. Safe to share between threads."""

    def __init__(self, database: Path, pause: Callable[[float], object]) -> None:
        """Take part for ``database``; ``pause(seconds)`` waits where a pipe cannot be had."""
        self._database = database
        self._pipe = directory_of(database) / NAME
        self._pause = pause
        self._step_back = False
        self._supported = SUPPORTED

    @contextmanager
    def waiting(self) -> Iterator[Callable[[float], object]]:
        """Stand in line; gives ``wait(seconds)``, which ends early when the lock may have come free."""
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
        """Tell who waits that the lock is free."""
        if self._supported:
            try:
                self._step_back = tell(self._pipe)
            except OSError:
                self._supported = False

    def step_back(self) -> None:
        """Before wanting the lock: leave it to others for a moment, if the last time somebody was waiting for it."""
        if self._step_back:
            self._step_back = False
            self._pause(STEP_BACK)
