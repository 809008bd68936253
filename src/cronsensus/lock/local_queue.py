"""The waiters of this process for the locks of one backend: one thread receives notifications for all of them.

::

    join ──▶ in both queues ──▶ try once more ──▶ wait ──▶ notified, or time to poll ──▶ try ──▶ join again, or leave
                                                    ▲
              unlock elsewhere ──▶ WaitQueues ──▶ the thread wakes the first waiter in the local queue

A notification for a lock that no local waiter wants any more is passed on to the next process.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from cronsensus.errors import StoreError
from cronsensus.lock.waiter import Waiter
from cronsensus.lock.worker_pool import submit_act
from cronsensus.process.interrupts import Condition
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.lock")

CLOSE_AFTER_IDLE = 10.0
"""Seconds after which a queue without waiters ends its thread and closes its connection."""
RECONNECT_AFTER = 0.5


class Notifies(Protocol):
    """Where unlocks are notified; a ``Store`` is such a place."""

    def wait_queues(self) -> WaitQueues:
        """Return the wait queues of its locks."""

    def wake_next(self, name: str) -> None:
        """Notify the next waiter."""


def can_notify(store: Store) -> bool:
    """Whether the wait queues of ``store`` receive anything."""
    return store.capabilities.notify or store.capabilities.clock == "process"


class LocalQueue:
    """The waiters of this process for one backend. Safe to share between threads; not for a forked child."""

    def __init__(self, notifying: Callable[[], Notifies]) -> None:
        """Receive from the wait queues of ``notifying()``, which is called at the first ``join_queue``."""
        self._notifying = notifying
        self._changed = Condition()
        self._moving = threading.Lock()
        """Held while a remote queue is joined or left, so that none is left that a waiter is just joining."""
        self._waiting: dict[str, deque[QueuedWaiter]] = {}
        self._joined: set[str] = set()
        """The remote queues in which this process may be. While there are any, the thread receives."""
        self._remote: WaitQueues | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def join_queue(self, waiter: QueuedWaiter) -> None:
        """Put a waiter at the end of the local queue, and this process into the remote one."""
        with self._changed:
            if waiter.left:  # its task was cancelled while a thread of the pool came here for it
                return
            waiting = self._waiting.setdefault(waiter.name, deque())
            if waiter not in waiting:
                waiting.append(waiter)
            self._joined.add(waiter.name)
            if self._remote is None:
                self._remote = self._notifying().wait_queues()
            remote = self._remote
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._receive_notifications, name="cronsensus-waiting", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        with self._moving:
            remote.join_queue(waiter.name)

    def leave_queue(self, waiter: QueuedWaiter) -> bool:
        """Take a waiter out of the local queue; return whether it was in there.

        The thread leaves the remote queue later. A notification until then is passed on.
        """
        with self._changed:
            waiter.left = True
            waiting = self._waiting.get(waiter.name, deque())
            waited = waiter in waiting
            if waited:
                waiting.remove(waiter)
            if not waiting:
                self._waiting.pop(waiter.name, None)
            return waited

    def pass_on(self, name: str) -> None:
        """Pass an unused notification on to another waiter. May ask the store; never raises."""
        with self._changed:
            waiter = self._pop_first(name)
            remote = self._remote
        if waiter is not None:
            waiter.wake()
        elif remote is not None and not remote.notifies_all:
            self._notifying().wake_next(name)

    def note_acquired(self, waiter: QueuedWaiter) -> None:
        """Take a waiter that acquired without a notification out of both queues, so that it gets no later one."""
        waited, remote = self.leave_queue(waiter), self._remote
        if waited and remote is not None:
            with contextlib.suppress(StoreError):
                self._leave_remote(remote, waiter.name)

    def _leave_remote(self, remote: WaitQueues, name: str) -> None:
        """Leave a remote queue, unless a local waiter is in it."""
        with self._moving:
            with self._changed:
                if name in self._waiting or name not in self._joined:
                    return
                self._joined.discard(name)
            remote.leave_queue(name)

    def close(self) -> None:
        """Leave all queues, and end the thread."""
        with self._changed:
            self._closed = True
            remote, self._remote = self._remote, None
            self._changed.notify_all()
        if remote is not None:
            remote.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _receive_notifications(self) -> None:
        while (remote := self._next_remote()) is not None:
            try:
                names = remote.receive(CLOSE_AFTER_IDLE)
                for name in names:
                    self._deliver_notification(remote, name)
                if not names:
                    for name in self._leave_unused():
                        self._leave_remote(remote, name)
            except StoreError as error:
                _log.debug("no news of locks for now, waiters look by themselves: %s", error)
                self._rejoin_all(remote)
            except Exception:  # noqa: BLE001 - logged
                if self._closed:  # ``close`` took the connection away in the middle of a call
                    continue
                _log.exception("a mistake in cronsensus; please report it. Waiters look by themselves meanwhile")
                self._rejoin_all(remote)

    def _deliver_notification(self, remote: WaitQueues, name: str) -> None:
        with self._changed:
            waiter = self._pop_first(name)
            others = bool(self._waiting.get(name))
            if waiter is not None:
                waiter.told = not remote.notifies_all  # before it can leave, so that it knows to pass it on
        if waiter is not None:
            waiter.wake()
            if others:
                with self._moving:
                    remote.join_queue(name)
        elif not remote.notifies_all:
            self._notifying().wake_next(name)

    def _pop_first(self, name: str) -> QueuedWaiter | None:
        """Take out the first waiter, which is notified by that."""
        waiting = self._waiting.get(name)
        waiter = waiting.popleft() if waiting else None
        if waiter is not None:
            waiter.news = True
        return waiter

    def _leave_unused(self) -> list[str]:
        with self._changed:
            return [name for name in self._joined if name not in self._waiting]

    def _next_remote(self) -> WaitQueues | None:
        """Return the queues to receive from; ``None``: there was no waiter for a while, and the thread ends."""

        def is_needed() -> bool:
            return bool(self._waiting or self._joined)

        with self._changed:
            if not is_needed() and not self._closed:
                self._changed.wait_for(lambda: is_needed() or self._closed, CLOSE_AFTER_IDLE)
            if is_needed() and not self._closed:
                return self._remote
            self._thread = None
            remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()
        return None

    def _rejoin_all(self, remote: WaitQueues) -> None:
        """Join anew for all waiters, on another connection. Notifications in between are lost, so wake them all."""
        remote.close()
        with self._changed:
            self._changed.wait_for(lambda: self._closed, RECONNECT_AFTER)
            if self._closed:
                return
            self._remote = self._notifying().wait_queues()
            self._joined.clear()
            waiting = [waiter for waiters in self._waiting.values() for waiter in waiters]
        for waiter in waiting:
            waiter.wake()


class QueuedWaiter(Waiter):
    """A waiter that is notified when the lock may be free.

    Attributes:
        told: whether it got a notification that no other waiter got.
        left: whether it left for good.
    """

    def __init__(self, clock: Clock, queue: LocalQueue, name: str, *, at_most: float) -> None:
        super().__init__(clock, at_most=at_most)
        self.name = name
        self.told = self.left = False
        self._queue = queue

    def join_queue(self) -> None:
        """Join the queue."""
        self._queue.join_queue(self)

    def leave_queue(self) -> None:
        """Leave the queue."""
        self._queue.leave_queue(self)

    def give_up(self) -> None:
        """Leave the queue, and pass an unused notification on."""
        self._queue.leave_queue(self)
        if self.news:
            self.news = False
            submit_act(lambda: self._queue.pass_on(self.name))

    def note_acquired(self) -> None:
        """Leave both queues."""
        self._queue.note_acquired(self)
