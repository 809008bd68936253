"""Turn SIGTERM and SIGINT into a drain. Floor 5.

A handler runs between any two instructions of the main thread, also while that holds a lock; so it only puts a number
into a queue that is made for this (``SimpleQueue``), and whoever waits there decides.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_log = logging.getLogger("cronsensus.node")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 3
"""The signal with this number ends the process where it stands: the orderly way hangs on something."""


class StopSignals:
    """While entered on the main thread, SIGTERM and SIGINT arrive at ``wait`` instead of ending the program.

    On another thread nothing is installed (Python does not allow it), and only ``tell`` arrives.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        self._previous: dict[signal.Signals, Any] = {}
        self._count = 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            # None: a handler that was not installed from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def tell(self) -> None:
        """Arrive at ``wait`` like a signal; from any thread."""
        self._arrived.put(None)

    def wait(self, timeout: float | None = None) -> signal.Signals | None:
        """Block until a signal arrives and return it; ``None`` after ``tell`` or ``timeout`` seconds."""
        try:
            return self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count >= PATIENCE:
            os._exit(128 + number)
        self._arrived.put(signal.Signals(number))
