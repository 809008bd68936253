"""One thread that watches the clock for everybody.

Timeouts must be noticed even when the code that runs over its time holds its own thread or event loop, so they are
watched from here: a heap of deadlines and one daemon thread that sleeps until the earliest of them.

Failure handling: an action that raises is logged and the watch goes on. Actions run on the watching thread, one after
the other, so they must not block.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from cronsensus.clock import Clock
from cronsensus.interrupts import Condition
from cronsensus.logger import Logger

logger = Logger(__name__)

LONGEST_NAP = 3600.0
"""Most seconds of one wait; what waits for years is looked at again every hour, and no platform's limit is ever met."""
IDLE_SECONDS = 10.0
"""How long the thread stays when there is nothing to watch."""
COMPACT_FROM = 64
"""Fewest cancelled deadlines that are worth a cleaning of the heap."""


class Deadline:
    """A moment at which something is to be done, unless it is cancelled before."""

    __slots__ = ("_cancel", "action")

    def __init__(self, action: Callable[[], None], cancel: Callable[[Deadline], None]) -> None:
        self.action: Callable[[], None] | None = action
        self._cancel = cancel

    def cancel(self) -> None:
        """Drop the action, if it has not begun."""
        self._cancel(self)


class Timer:
    """Calls things back at their time. Safe to share between threads and executors.

    With a clock that is moved by hand, call ``wake`` after each move.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = Condition()
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, action: Callable[[], None]) -> Deadline:
        """Call ``action`` on the watching thread in so many seconds. After ``close`` nothing is called any more."""
        deadline = Deadline(action, self._cancel)
        at = self._clock.monotonic() + seconds
        with self._changed:
            if self._closed:
                deadline.action = None
                return deadline
            heapq.heappush(self._heap, (at, next(self._order), deadline))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="cronsensus-timer", daemon=True)
                self._thread.start()
            elif self._heap[0][2] is deadline:
                self._changed.notify_all()
        return deadline

    def wake(self) -> None:
        """Look at the clock again now."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Forget every deadline and end the thread."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def __len__(self) -> int:
        """Return how many deadlines are still ahead."""
        with self._changed:
            return len(self._heap) - self._cancelled

    def _cancel(self, deadline: Deadline) -> None:
        with self._changed:
            if deadline.action is None:
                return
            deadline.action = None
            self._cancelled += 1
            # Ten thousand short calls with a timeout of an hour would otherwise stay here for that hour.
            if self._cancelled >= COMPACT_FROM and self._cancelled * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].action is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _watch(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001 - logged
                logger.aside.exception("a deadline's action failed")

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next action that is due; ``None`` when closed, or when there has been none for a while."""
        with self._changed:
            while not self._closed:
                if self._cancelled == len(self._heap):
                    self._heap.clear()
                    self._cancelled = 0
                    if not self._changed.wait(IDLE_SECONDS) and not self._heap:
                        self._thread = None  # whatever used this may be dropped without a word
                        return None
                    continue
                left = self._heap[0][0] - self._clock.monotonic()
                if left > 0:
                    self._changed.wait(min(left, LONGEST_NAP))
                    continue
                deadline = heapq.heappop(self._heap)[2]
                action, deadline.action = deadline.action, None
                if action is not None:
                    return action
                self._cancelled -= 1
            return None
