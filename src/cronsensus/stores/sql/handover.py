"""Hand the write lock on without delay: who waits for it is told when it comes free, instead of asking again and again. Floor 3.

SQLite has no queue for its write lock: whoever finds it taken must try again, and pauses in between cost either time or work. So
a waiter has a named pipe beside the database open for reading while it waits, and a writer that ends writes a byte into it, which
fails at once when nobody reads. A process that handed over steps back once before it wants the lock again, so that two busy ones
take turns. All of it is a hint: the lock is SQLite's alone, and a waiter that hears nothing tries again by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cronsensus.stores.sql.pipes import SUPPORTED, directory_of, make_pipe

NAME = "writers"
STEP_BACK = 0.0003
"""Seconds for which a process that handed over leaves the lock to others."""
_NOBODY = {errno.ENXIO, errno.ENOENT, errno.EPIPE}


class Handover:
    """One handle's part in it. Safe to share between threads."""

    def __init__(self, database: Path, pause: Callable[[float], object]) -> None:
        """Take part for ``database``; ``pause(seconds)`` waits where a pipe cannot be had."""
        self._database = database
        self._path = directory_of(database) / NAME
        self._pause = pause
        self._writer: int | None = None
        self._pid = os.getpid()
        self._step_back = False
        self._supported = SUPPORTED

    @contextmanager
    def waiting(self) -> Iterator[Callable[[float], object]]:
        """Stand in line; gives ``wait(seconds)``, which ends early when the lock may have come free."""
        reader = self._open_reader()
        if reader is None:
            yield self._pause
            return
        poll = select.poll()
        poll.register(reader, select.POLLIN)

        def wait(seconds: float) -> None:
            if poll.poll(seconds * 1000):
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, 4096)

        try:
            yield wait
        finally:
            os.close(reader)

    def step_back(self) -> None:
        """Before wanting the lock: leave it to others for a moment, if the last time somebody was waiting for it."""
        if self._step_back:
            self._step_back = False
            self._pause(STEP_BACK)

    def released(self) -> None:
        """Tell who waits that the lock is free."""
        if not self._supported:
            return
        try:
            if self._writer is None or self._pid != os.getpid():
                self._writer, self._pid = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK), os.getpid()
            os.write(self._writer, b"!")
        except BlockingIOError:
            pass  # full of hints already
        except OSError as error:
            self._supported = error.errno in _NOBODY
            return
        self._step_back = True

    def close(self) -> None:
        """Let go of the pipe."""
        if self._writer is not None and self._pid == os.getpid():
            os.close(self._writer)
        self._writer = None
        self._supported = False

    def _open_reader(self) -> int | None:
        if not self._supported:
            return None
        try:
            # For writing too: a pipe without writers would say "end of file" all the time.
            return os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            pass
        except OSError:
            return None
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                make_pipe(self._database, NAME)
            return os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        return None
