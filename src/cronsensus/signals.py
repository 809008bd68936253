"""Turn SIGTERM and SIGINT into a drain. Floor 5.

Whoever waits for a signal waits at a pipe (the self-pipe of D. J. Bernstein). Waiting at a lock would do, if no signal
ever came just before the wait: then Python's handler has not run yet, and nobody wakes the thread to run it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections import deque
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 3
"""The signal with this number ends the process where it stands: the orderly way hangs on something."""
_LONGEST_POLL = 2**31 - 1
_TOLD = 0
"""The byte of ``tell``; the others are the numbers of signals, written by the interpreter itself."""


class StopSignals:
    """While entered on the main thread, SIGTERM and SIGINT arrive at ``wait`` instead of ending the program.

    On another thread nothing is installed (Python does not allow it), and only ``tell`` arrives.
    """

    def __init__(self) -> None:
        self._arrived: deque[int] = deque()
        self._previous: dict[signal.Signals, Any] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._reads, self._writes = -1, -1
        self._wakeup_before: int | None = None

    def __enter__(self) -> Self:
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._reads, False)
        os.set_blocking(self._writes, False)
        if threading.current_thread() is threading.main_thread():
            self._wakeup_before = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            # None: a handler that was not installed from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before)
        with self._lock:
            writes, self._writes = self._writes, -1
        os.close(writes)
        os.close(self._reads)

    def tell(self) -> None:
        """Arrive at ``wait`` like a signal; from any thread, also when nobody waits any more."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._writes >= 0:
                os.write(self._writes, bytes([_TOLD]))

    def wait(self, timeout: float | None = None) -> signal.Signals | None:
        """Block until a signal arrives and return it; ``None`` after ``tell`` or ``timeout`` seconds."""
        if not self._arrived:
            poll = select.poll()
            poll.register(self._reads, select.POLLIN)
            poll.poll(None if timeout is None else min(timeout * 1000, _LONGEST_POLL))
            with contextlib.suppress(BlockingIOError):
                self._arrived.extend(byte for byte in os.read(self._reads, 4096) if byte == _TOLD or byte in SIGNALS)
        number = self._arrived.popleft() if self._arrived else _TOLD
        return None if number == _TOLD else signal.Signals(number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count >= PATIENCE:
            os._exit(128 + number)
