"""Wait queues of locks: how a waiter learns that a lock may be free.

A notification is advisory: the waiter that gets one must try to acquire, and may lose the race. A notification can also
be lost, together with the process that it was for. So a waiter tries now and then without one.
"""

from __future__ import annotations

from cronsensus.process.interrupts import Event


class WaitQueues:
    """The places of one process in the wait queues of any number of locks. This one receives nothing; stores override.

    An unlock notifies the first in the queue and removes it from there; join again to wait further. One thread at a
    time may call ``receive``, any thread the others.

    Attributes:
        notifies_all: an unlock notifies all in the queue, so no waiter need pass a notification on.
    """

    notifies_all = False

    def __init__(self) -> None:
        self._closed = Event()

    def join_queue(self, name: str) -> None:
        """Join the queue of a lock at its end, unless in it. On return, an unlock is noticed from then on."""

    def leave_queue(self, name: str) -> None:
        """Leave the queue of a lock."""

    def receive(self, timeout: float) -> list[str]:
        """Wait up to ``timeout`` seconds for notifications; return the names of locks that may be free."""
        self._closed.wait(max(0.0, timeout))
        return []

    def close(self) -> None:
        """Leave all queues; ends a ``receive`` in another thread. Idempotent."""
        self._closed.set()
