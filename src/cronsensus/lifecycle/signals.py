"""Turn SIGTERM and SIGINT into a drain.

The wait for a signal is a wait at a pipe (the self-pipe of D. J. Bernstein). A lock is not enough: if a signal
comes just before the wait, Python's handler has not run yet, and nothing wakes the thread to run it. The
interpreter writes a byte for every signal that has a Python handler, so the application's own signals arrive at the
pipe too. The byte only wakes the thread: the handler, which has run by then, records which signals count.

Signals that come together count as one. ``timeout``, and other tools that signal a process and then its group, send two
within a millisecond. If the second counted by itself, it would cut off the drain of the first.

A forked child inherits the handlers and the pipe. It gets the earlier handlers back, and writes to no pipe:
otherwise a SIGTERM for the child would neither end it nor leave its parent alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import weakref
from collections import deque
from types import FrameType, TracebackType
from typing import Any, Self

from cronsensus.node.forks import block_signals, unblock_signals
from cronsensus.timing.clock import SystemClock

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_SIGNAL_SECONDS = 1.0
"""Seconds after a signal for which further signals count as the same request."""
PATIENCE = 3
"""The third signal ends the process at once, because the orderly stop seems to hang."""
_LONGEST_POLL = 2**31 - 1
_REQUESTED = 0
"""The byte that ``request_stop`` writes; the interpreter writes the numbers of signals."""


class StopSignals:
    """While entered on the main thread, SIGTERM and SIGINT arrive at ``wait`` instead of ending the program.

    On another thread nothing is installed (Python does not allow it), and only ``request_stop`` arrives.
    """

    def __init__(self) -> None:
        self._arrived: deque[int] = deque()
        self._previous: dict[signal.Signals, Any] = {}
        self._count = 0
        self._counted_at = -math.inf
        self._lock = threading.Lock()
        self._reads, self._writes = -1, -1
        self._wakeup_before: int | None = None

    def __enter__(self) -> Self:
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._reads, False)
        os.set_blocking(self._writes, False)
        if threading.current_thread() is threading.main_thread():
            _entered.add(self)
            self._wakeup_before = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore_handlers()
        with self._lock:
            writes, self._writes = self._writes, -1
        os.close(writes)
        os.close(self._reads)

    def _restore_handlers(self) -> None:
        _entered.discard(self)
        for number, previous in self._previous.items():
            # None: a handler that was not installed from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
        self._previous.clear()
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            self._wakeup_before = None

    def request_stop(self) -> None:
        """Wake ``wait`` as a signal does; from any thread, even if nothing waits any more."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._writes >= 0:
                os.write(self._writes, bytes([_REQUESTED]))

    def is_asked(self) -> bool:
        """Whether SIGTERM or SIGINT has arrived."""
        return self._count > 0

    def wait(self, timeout: float | None = None) -> signal.Signals | None:
        """Block until SIGTERM or SIGINT arrives and return it; ``None`` after ``request_stop`` or ``timeout``."""
        deadline = None if timeout is None else _clock.monotonic() + timeout
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        while not self._arrived:
            remaining = None if deadline is None else max(0.0, deadline - _clock.monotonic())
            poll.poll(None if remaining is None else min(math.ceil(remaining * 1000), _LONGEST_POLL))
            with contextlib.suppress(BlockingIOError):
                self._arrived.extend(byte for byte in os.read(self._reads, 4096) if byte == _REQUESTED)
            if remaining == 0:
                break
        number = self._arrived.popleft() if self._arrived else _REQUESTED
        return None if number == _REQUESTED else signal.Signals(number)

    def forked(self) -> None:
        """Restore the earlier handlers; called in a forked child, on its only thread.

        A handler of the application may fork in the middle of ``wait`` and return there: that wait ends as after
        ``request_stop``.
        """
        if self._wakeup_before is not None:
            self._wakeup_before = -1  # the earlier descriptor is the parent's, too
        with contextlib.suppress(ValueError):  # the interpreter does not take this for its main thread
            self._restore_handlers()
        self._lock = threading.Lock()
        reads, writes = os.pipe()
        os.write(writes, bytes([_REQUESTED]))
        for new_descriptor, old_descriptor in ((reads, self._reads), (writes, self._writes)):
            os.dup2(new_descriptor, old_descriptor, inheritable=False)
            os.close(new_descriptor)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now = _clock.monotonic()
        if now - self._counted_at < SAME_SIGNAL_SECONDS:
            return
        self._counted_at = now
        self._arrived.append(number)
        self._count += 1
        if self._count >= PATIENCE:
            os._exit(128 + number)


_clock = SystemClock()
_entered: weakref.WeakSet[StopSignals] = weakref.WeakSet()


def _before_fork() -> None:
    if _entered:
        block_signals(SIGNALS)


def _in_child() -> None:
    try:
        for signals in list(_entered):
            signals.forked()
    finally:
        unblock_signals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=unblock_signals, after_in_child=_in_child)
