"""Waiting for files and for a word from another thread, until closed."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from cronsensus.clock import SystemClock
from cronsensus.interrupts import Event

_PATIENCE = SystemClock()


class Bell:
    """Wakes the one thread that waits for files, inside of ``with bell``. ``ring`` and ``close`` by any thread.

    What the waiting thread uses is let go of once the bell is closed and nothing waits any more, by the last of both.
    """

    def __init__(self, let_go: Callable[[], None]) -> None:
        """Call ``let_go`` in the end; may be repeated, and more often than once."""
        self._let_go = let_go
        self._lock = threading.Lock()
        self._ends: tuple[int, int] | None = None
        """A pipe: where the bell is heard, and where it is rung; there from the first ``with`` on."""
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

    def wait(self, files: Collection[int], until: float) -> bool:
        """Wait until one of ``files`` can be read (``True``), or for a ring, or until then (monotonic seconds)."""
        if self._ends is None:
            raise RuntimeError("nothing rings outside of the block")
        rung = self._ends[0]
        poll = select.poll()
        for file in (*files, rung):
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(max(0.0, until - _PATIENCE.monotonic()) * 1000)}
        with contextlib.suppress(BlockingIOError):
            os.read(rung, 64)
        return not ready <= {rung}

    def ring(self) -> None:
        """Wake the thread that waits, if one does."""
        with self._lock:
            if self._waiting and self._ends is not None:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._ends[1], b"!")

    def close(self) -> None:
        """Let the thread that waits come to an end. Idempotent."""
        self._closed.set()
        self.ring()
        with self._lock:
            waiting = self._waiting
        if not waiting:
            self._end()

    def forget_the_parents(self) -> None:
        """In a forked child: the thread that waited, and one that may have had the lock, are the parent's."""
        self._lock = threading.Lock()
        self._waiting = False
        self._close_ends()

    def _end(self) -> None:
        self._let_go()
        with self._lock:
            self._close_ends()

    def _close_ends(self) -> None:
        ends, self._ends = self._ends, None
        for end in ends or ():
            os.close(end)
