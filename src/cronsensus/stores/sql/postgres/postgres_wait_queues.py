"""Wait queues of locks by LISTEN and NOTIFY, on a connection of its own.

There is one channel for a namespace, and a notification names the lock. It reaches all processes that listen, so all
waiters of the lock try, and the fastest acquires it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg

from cronsensus.stores.poller import Poller
from cronsensus.stores.sql.postgres.postgres_driver import PATIENCE, BoundedConnection
from cronsensus.stores.wait_queues import WaitQueues

_TELL = "SELECT pg_notify($1, $2)"


class NotificationQueues(WaitQueues):
    """One process's places in the wait queues of a namespace."""

    notifies_all = True

    def __init__(
        self,
        connect: Callable[[], BoundedConnection],
        channel: str,
        *,
        explained: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Listen to ``channel``; nothing is opened before the first ``join_queue``. ``explained`` translates errors."""
        super().__init__()
        self._connect = connect
        self._explained = explained
        self._channel = channel
        self._lock = threading.Lock()
        self._driver: BoundedConnection | None = None
        self._joined: set[str] = set()
        self._told: list[str] = []
        self._poller = Poller(self._hang_up)

    def join_queue(self, name: str) -> None:
        """Join the queue; from here on, unlocks are received."""
        with self._explained(), self._lock:
            self._joined.add(name)
            if self._driver is None and not self._poller.is_closed():
                driver = self._connect()
                try:
                    driver.add_notify_handler(lambda notification: self._told.append(notification.payload))
                    driver.execute(f'LISTEN "{self._channel}"', prepare=False)
                except BaseException:
                    driver.close()
                    raise
                self._driver = driver
                self._poller.wake()

    def leave_queue(self, name: str) -> None:
        """Leave the queue."""
        with self._lock:
            self._joined.discard(name)

    def receive(self, timeout: float) -> list[str]:
        """Wait for notifications.

        Raises:
            StoreUnavailable: the connection broke. Notifications since then are lost; open another one and join again.
        """
        with self._explained():
            return self._receive_once(timeout)

    def _receive_once(self, timeout: float) -> list[str]:
        until = PATIENCE.monotonic() + max(0.0, timeout)
        if self._poller.is_closed():
            return []
        with self._poller:
            while not self._poller.is_closed():
                driver = self._driver
                if driver is not None and (notified_names := self._read_notifications(driver)):
                    return notified_names
                files = [] if driver is None else [driver.pgconn.socket]
                if not self._poller.wait(files, until) and PATIENCE.monotonic() >= until:
                    break
        return []

    def _read_notifications(self, driver: BoundedConnection) -> list[str]:
        """Take the notifications that came in; return the locks among them that are waited for here."""
        driver.pgconn.consume_input()
        while (notification := driver.pgconn.notifies()) is not None:
            self._told.append(notification.extra.decode())
        names, self._told = self._told, []
        with self._lock:
            joined_names = [name for name in dict.fromkeys(names) if name in self._joined]
            self._joined.difference_update(joined_names)
        return joined_names

    def close(self) -> None:
        """Leave all queues."""
        with self._lock:
            self._poller.close()

    def _hang_up(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()


def channel_of(schema: str, namespace: str) -> str:
    """Return the channel of the locks of a namespace."""
    return "cronsensus_lock_" + hashlib.sha256(f"{schema}\0{namespace}".encode()).hexdigest()[:32]


def notify_waiters(driver: psycopg.Connection[object], channel: str, name: str) -> None:
    """Notify all waiters of a lock."""
    psycopg.RawCursor(driver).execute(_TELL, [channel, name])
