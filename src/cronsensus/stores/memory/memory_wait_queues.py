"""Wait queues of locks within one process."""

from __future__ import annotations

from cronsensus.stores.memory.state import Space
from cronsensus.stores.wait_queues import WaitQueues


class MemoryQueues(WaitQueues):
    """One handle's places in the wait queues of a namespace."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self._space = space
        self._changed = space.world.changed
        self.notified: list[str] = []

    def join_queue(self, name: str) -> None:
        """Join the queue."""
        with self._changed:
            if not self._closed.is_set():
                self._space.wait_queues.setdefault(name, {}).setdefault(self)

    def leave_queue(self, name: str) -> None:
        """Leave the queue."""
        with self._changed:
            self._space.leave_queue(self, name)

    def receive(self, timeout: float) -> list[str]:
        """Wait for notifications."""
        with self._changed:
            self._changed.wait_for(lambda: self.notified or self._closed.is_set(), max(0.0, timeout))
            notified, self.notified = self.notified, []
            return notified

    def close(self) -> None:
        """Leave all queues."""
        with self._changed:
            self._closed.set()
            for name in [name for name, waiting in self._space.wait_queues.items() if self in waiting]:
                self._space.leave_queue(self, name)
            self._changed.notify_all()
