"""Wait queues of locks: a queue for each lock in the server, a channel for each waiting process.

The script that frees a lock publishes the lock's name on the channel of the first in its queue. The server answers how
many subscribers received it, so processes that are gone are passed over. See ``queues.lua``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from typing import Any

from cronsensus.errors import StoreError
from cronsensus.process.interrupts import Event
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.pubsub import Subscription
from cronsensus.stores.redis.redis_url import RedisUrl
from cronsensus.stores.redis.routing import route_to
from cronsensus.stores.wait_queues import WaitQueues


class RedisQueues(WaitQueues):
    """One process's places in the wait queues of a namespace. It receives on a connection of its own."""

    def __init__(self, url: RedisUrl, keyspace: Keyspace, write: Callable[..., Any]) -> None:
        """Wait for locks in queues that ``write`` changes; nothing is opened before the first ``join_queue``."""
        super().__init__()
        self._write = write
        self._id = secrets.token_hex(8)
        channel = keyspace.waiter_channel(self._id)
        self._subscription = Subscription(route_to(url, keyspace.meta.decode()), channel, where=url.where)
        self._lock = threading.Lock()
        self._joined: set[str] = set()
        self._begun = Event()

    def join_queue(self, name: str) -> None:
        """Subscribe first, then join the queue."""
        if self._closed.is_set():
            return
        with self._lock:
            self._subscription.listen()
            self._joined.add(name)
        self._begun.set()
        self._write("join_queue", name, self._id)

    def leave_queue(self, name: str) -> None:
        """Leave the queue."""
        with self._lock:
            self._joined.discard(name)
        self._write("leave_queues", [name], self._id)

    def receive(self, timeout: float) -> list[str]:
        """Wait for notifications.

        Raises:
            StoreUnavailable: the connection broke. Notifications since then are lost; open another one and join again.
        """
        if not self._begun.wait(max(0.0, timeout)):
            return []
        names = [name.decode(errors="replace") for name in self._subscription.receive(max(0.0, timeout))]
        with self._lock:
            self._joined.difference_update(names)
        return names

    def close(self) -> None:
        """Leave all queues."""
        self._closed.set()
        self._begun.set()
        self._subscription.close()
        with self._lock:
            names, self._joined = sorted(self._joined), set()
        if names:
            with contextlib.suppress(StoreError):  # without a subscriber this waiter is passed over
                self._write("leave_queues", names, self._id)
