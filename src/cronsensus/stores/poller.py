"""Wait for file descriptors with a poll that other threads can end."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from cronsensus.process.interrupts import Event
from cronsensus.timing.clock import SystemClock

_CLOCK = SystemClock()

SILENT = 60.0
"""Seconds without traffic on a connection that listens, after which it is tested by a round trip.

A proxy in between may have dropped it without a notice: then it seems open, and delivers nothing. If the other host
does not answer at all, the kernel notices that.
"""


class Poller:
    """Lets one thread wait for files, inside of ``with poller``. Any thread may call ``wake`` and ``close``.

    The resources of the waiting thread are released once the poller is closed and no thread waits any more: by
    ``close``, or by the waiting thread when it leaves the block.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        """Call ``release`` in the end. It may be called more than once."""
        self._release = release
        self._lock = threading.Lock()
        self._ends: tuple[int, int] | None = None
        """A pipe, to read from and to write to. It is opened by the first ``with``."""
        self._waiting = False
        self._closed = Event()

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed.is_set()

    def __enter__(self) -> Self:
        with self._lock:
            if self._ends is None:
                self._ends = os.pipe()
                for end in self._ends:
                    os.set_blocking(end, False)
            self._waiting = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._waiting = False
        if self.is_closed():
            self._end()

    def wait(self, files: Collection[int], until: float) -> set[int]:
        """Wait for ``files``, for ``wake``, or until ``until`` (monotonic seconds); return those to read."""
        if self._ends is None:
            raise RuntimeError("a poller waits only inside of its block")
        woken = self._ends[0]
        poll = select.poll()
        for file in (*files, woken):
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(max(0.0, until - _CLOCK.monotonic()) * 1000)}
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 64)
        return ready - {woken}

    def wake(self) -> None:
        """Wake the thread that waits, if one does."""
        with self._lock:
            if self._waiting and self._ends is not None:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._ends[1], b"!")

    def close(self) -> None:
        """End the wait of the thread that waits, for good. Idempotent."""
        self._closed.set()
        self.wake()
        with self._lock:
            waiting = self._waiting
        if not waiting:
            self._end()

    def after_fork_in_child(self) -> None:
        """In a forked child: forget the pipe and the lock, whose threads exist in the parent only."""
        self._lock = threading.Lock()
        self._waiting = False
        self._close_ends()

    def _end(self) -> None:
        self._release()
        with self._lock:
            self._close_ends()

    def _close_ends(self) -> None:
        ends, self._ends = self._ends, None
        for end in ends or ():
            os.close(end)
