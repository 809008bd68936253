"""The calls of this process that wait for an occurrence, and the notifications of its end.

A notification to other processes costs a statement, and to receive them costs a connection. So a call joins the wait
queue only after a while, and only the end of a run that took about as long is notified.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.lock.local_queue import LocalQueue, QueuedWaiter, can_notify
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

JOIN_AFTER = 0.05
"""Seconds that a call waits before it joins the wait queue."""
NOTIFY_AFTER = JOIN_AFTER / 2
"""Seconds that a function must run for its end to be notified: no call is in the queue of a shorter one."""


class Waiters:
    """The waiters of one store and namespace in this process. Safe to share between threads."""

    def __init__(self, clock: Clock, store: Callable[[], Store]) -> None:
        """Wait by ``clock``; ``store`` returns the handle through which other processes are notified."""
        self._clock = clock
        self._store = store
        self._queue = LocalQueue(store)
        self._lock = threading.Lock()
        self._waiters: dict[int, set[QueuedWaiter]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiters)

    @property
    def can_be_notified(self) -> bool:
        """Whether the store has notifications."""
        return can_notify(self._store())

    def close(self) -> None:
        """Close the connection."""
        self._queue.close()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def add_waiter(self, occurrence: int) -> QueuedWaiter:
        """Return a waiter for the end of an occurrence; take it out by ``remove_waiter``.

        It is woken when this process ends the occurrence, and once it has joined the queue, when another one does.
        """
        waiter = QueuedWaiter(self._clock, self._queue, _queue_of(occurrence), at_most=0.0)
        with self._lock:
            self._waiters.setdefault(occurrence, set()).add(waiter)
        return waiter

    def remove_waiter(self, waiter: QueuedWaiter, *, pass_on: bool) -> None:
        """Take out a waiter.

        Args:
            waiter: from ``add_waiter``.
            pass_on: wake all waiters here, and the next process if the notification went to this one alone.
        """
        waiter.leave_queue()
        occurrence = _waited_for(waiter)
        with self._lock:
            waiters = self._waiters.get(occurrence, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(occurrence, None)
        if pass_on:
            self.wake_calls(occurrence)
            if waiter.told:
                self._store().wake_next(waiter.name)

    # --- notifying ----------------------------------------------------------------------------------------------------

    def notify_of_end(self, occurrence: int, *, ran_for: float, attempt: int) -> None:
        """Notify other processes of an occurrence's end, if one of them can be in its queue. Never raises."""
        # A call that waited for an earlier attempt too may have waited for longer than this one ran.
        if (ran_for > NOTIFY_AFTER or attempt > 1) and self.can_be_notified:
            self._store().wake_next(_queue_of(occurrence))

    def wake_calls(self, occurrence: int) -> None:
        """Wake the calls that wait here for an occurrence."""
        with self._lock:
            waiters = list(self._waiters.get(occurrence, ()))
        for waiter in waiters:
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all calls that wait here, so that they poll."""
        with self._lock:
            occurrences = list(self._waiters)
        for occurrence in occurrences:
            self.wake_calls(occurrence)


def _queue_of(occurrence: int) -> str:
    # A lock's name cannot begin with a space.
    return f" once {occurrence}"


def _waited_for(waiter: QueuedWaiter) -> int:
    return int(waiter.name.rpartition(" ")[2])
