"""Those of this process who wait for what somebody else runs, and how they are told of its end.

A word to other processes costs a statement, and to listen for it a connection. So only those join in line who have
waited for a while, and only what ran for about as long is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.clock import Clock
from cronsensus.lock.local_queue import LocalQueue, QueuedWaiter, tells
from cronsensus.stores.base import Store

JOIN_AFTER = 0.05
"""Seconds that a caller waits before he stands in line."""
TELL_AFTER = JOIN_AFTER / 2
"""Seconds that a function runs before its end is told: nobody stands in line for what was shorter."""


class Waiters:
    """The waiters of one store and namespace in this process. Safe to share between threads."""

    def __init__(self, clock: Clock, store: Callable[[], Store]) -> None:
        """Wait by ``clock``; ``store`` gives the handle to tell others by."""
        self._clock = clock
        self._store = store
        self._queue = LocalQueue(store)
        self._lock = threading.Lock()
        self._waiters: dict[int, set[QueuedWaiter]] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiters)

    @property
    def can_be_told(self) -> bool:
        """Whether the store has a way to."""
        return tells(self._store())

    def close(self) -> None:
        """Let go of the connection."""
        self._queue.close()

    # --- who waits ----------------------------------------------------------------------------------------------------

    def add(self, occurrence: int) -> QueuedWaiter:
        """Return a place to wait in until an occurrence may have ended; give it up by ``remove``.

        It is rung when this process ends it; once its owner stands in line, also when another one does.
        """
        waiter = QueuedWaiter(self._clock, self._queue, _queue_of(occurrence), at_most=0.0)
        with self._lock:
            self._waiters.setdefault(occurrence, set()).add(waiter)
        return waiter

    def remove(self, waiter: QueuedWaiter, *, pass_on: bool) -> None:
        """Wait no more.

        Args:
            waiter: from ``add``.
            pass_on: what was told in it: to all who wait here, and elsewhere to the next, if nobody else was told.
        """
        waiter.leave()
        occurrence = _waited_for(waiter)
        with self._lock:
            waiters = self._waiters.get(occurrence, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(occurrence, None)
        if pass_on:
            self.wake(occurrence)
            if waiter.told:
                self._store().call_next(waiter.name)

    # --- who tells ----------------------------------------------------------------------------------------------------

    def tell(self, occurrence: int, *, ran_for: float, attempt: int) -> None:
        """Tell other processes that an occurrence is over, if anybody can be waiting for that. Never raises."""
        # Who began to wait for an earlier attempt may have waited for longer than this one ran.
        if (ran_for > TELL_AFTER or attempt > 1) and self.can_be_told:
            self._store().call_next(_queue_of(occurrence))

    def wake(self, occurrence: int) -> None:
        """Have those who wait here for an occurrence look again."""
        with self._lock:
            waiters = list(self._waiters.get(occurrence, ()))
        for waiter in waiters:
            waiter.wake()

    def wake_all(self) -> None:
        """Have all who wait here look again."""
        with self._lock:
            occurrences = list(self._waiters)
        for occurrence in occurrences:
            self.wake(occurrence)


def _queue_of(occurrence: int) -> str:
    # No lock can have this name.
    return f" once {occurrence}"


def _waited_for(waiter: QueuedWaiter) -> int:
    return int(waiter.name.rpartition(" ")[2])
