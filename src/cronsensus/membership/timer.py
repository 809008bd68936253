"""The thread of this process that watches the clock, for all timeouts and for the ends of all leases.

Timeouts must be noticed even when the code that runs over its time holds its own thread or event loop, so they are
watched from here: a heap of deadlines and one daemon thread that sleeps until the earliest of them. All timers of a
process share the thread, but for those of a clock that is moved by hand.

Failure handling: an action that raises is logged and the watch goes on. Actions run on the watching thread, one after
the other, so they must not block, and must ask no store.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from cronsensus.process.interrupts import Condition
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork
from cronsensus.timing.clock import Clock, SystemClock

logger = Logger(__name__)

LONGEST_WAIT = 3600.0
"""Most seconds of one wait. A deadline years ahead is checked again every hour, so no platform's limit is ever met."""
IDLE_SECONDS = 10.0
"""How long the thread stays when there is nothing to watch."""
COMPACT_FROM = 64
"""Fewest cancelled deadlines that are worth a cleaning of the heap."""
CLOSE_WITHIN = 1.0
"""Seconds that the close of a timer waits for an action of its own that has begun."""


class Deadline:
    """A moment at which something is to be done, unless it is cancelled before."""

    __slots__ = ("_watch", "action", "timer")

    def __init__(self, action: Callable[[], None], timer: Timer, watch: _Watch) -> None:
        self.action: Callable[[], None] | None = action
        self.timer = timer
        self._watch = watch

    def cancel(self) -> None:
        """Cancel the action, if it has not begun."""
        self._watch.cancel_deadline(self)


class Timer:
    """Calls actions at their time, until it is closed. Safe to share between threads.

    With a clock that is moved by hand, call ``wake`` after each move.
    """

    def __init__(self, clock: Clock) -> None:
        """Watch by ``clock``; the thread is started when there is something to watch."""
        self._own = None if isinstance(clock, SystemClock) else _Watch(clock)
        self.closed = False
        self.ahead: set[Deadline] = set()
        """Its deadlines that are neither over nor cancelled; belongs to the watch."""

    @property
    def _watch_thread(self) -> _Watch:
        return self._own or _of_this_process

    def call_after(self, seconds: float, action: Callable[[], None]) -> Deadline:
        """Call ``action`` on the watching thread in so many seconds. After ``close`` nothing is called any more."""
        return self._watch_thread.add_deadline(self, seconds, action)

    def recheck_clock(self) -> None:
        """Look at the clock again now."""
        self._watch_thread.wake_thread()

    def close(self) -> None:
        """Cancel every deadline, and wait for an action that has begun."""
        self._watch_thread.close_timer(self)

    def __len__(self) -> int:
        """Return how many deadlines are still ahead."""
        return len(self.ahead)


class _Watch:
    """The thread of all timers that go by one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = Condition()
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._under_way: Timer | None = None
        self._thread: threading.Thread | None = None
        self._leaves = False
        """Whether the thread is to end as soon as there is nothing to watch: a timer was closed."""

    def add_deadline(self, timer: Timer, seconds: float, action: Callable[[], None]) -> Deadline:
        deadline = Deadline(action, timer, self)
        at = self._clock.monotonic() + seconds
        with self._changed:
            if timer.closed:
                deadline.action = None
                return deadline
            timer.ahead.add(deadline)
            heapq.heappush(self._heap, (at, next(self._order), deadline))
            self._leaves = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_due, name="cronsensus-timer", daemon=True)
                self._thread.start()
            elif self._heap[0][2] is deadline:
                self._changed.notify_all()
        return deadline

    def wake_thread(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def cancel_deadline(self, deadline: Deadline) -> None:
        with self._changed:
            if deadline.action is not None:
                self._drop_deadline(deadline)

    def close_timer(self, timer: Timer) -> None:
        with self._changed:
            timer.closed = True
            for deadline in list(timer.ahead):
                self._drop_deadline(deadline)
            self._leaves = True
            self._changed.notify_all()
            thread = self._thread
            if thread is None or thread is threading.current_thread():
                return
            self._changed.wait_for(lambda: self._is_done_with(timer), CLOSE_WITHIN)
            if self._thread is thread:
                return
        thread.join(CLOSE_WITHIN)

    def _is_done_with(self, timer: Timer) -> bool:
        return self._under_way is not timer and (self._thread is None or self._cancelled < len(self._heap))

    def _drop_deadline(self, deadline: Deadline) -> None:
        deadline.action = None
        deadline.timer.ahead.discard(deadline)
        self._cancelled += 1
        # Ten thousand short calls with a timeout of an hour would otherwise stay here for that hour.
        if self._cancelled >= COMPACT_FROM and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _run_due(self) -> None:
        while (action := self._next_action()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001 - logged
                logger.aside.exception("a deadline's action failed")

    def _next_action(self) -> Callable[[], None] | None:
        """Wait for the next action that is due; ``None`` when there is none, and has been none for a while."""
        with self._changed:
            self._under_way = None
            self._changed.notify_all()
            while True:
                if self._cancelled == len(self._heap):
                    self._heap.clear()
                    self._cancelled = 0
                    # The users of the thread may be dropped without a call of ``close``.
                    if self._leaves or (not self._changed.wait(IDLE_SECONDS) and not self._heap):
                        self._thread = None
                        self._changed.notify_all()
                        return None
                    continue
                seconds = self._heap[0][0] - self._clock.monotonic()
                if seconds > 0:
                    self._changed.wait(min(seconds, LONGEST_WAIT))
                    continue
                deadline = heapq.heappop(self._heap)[2]
                action, deadline.action = deadline.action, None
                if action is not None:
                    deadline.timer.ahead.discard(deadline)
                    self._under_way = deadline.timer
                    return action
                self._cancelled -= 1


_of_this_process = _Watch(SystemClock())


def _in_child() -> None:
    global _of_this_process  # noqa: PLW0603 - the thread is the parent's, and another one may have held its lock
    _of_this_process = _Watch(SystemClock())


call_after_fork(_in_child)
