"""Those of this process who wait for locks: one thread hears for all of them.

::

    join ──▶ in line ──▶ try once more ──▶ wait ──▶ told, or time to look ──▶ try ──▶ join again, or leave
                                              ▲
              unlock elsewhere ──▶ line ──▶ the thread rings the one who has waited longest here

Whoever is told in vain, because nobody here waits any more, tells the next process.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from cronsensus.clock import Clock
from cronsensus.errors import StoreError
from cronsensus.interrupts import Condition
from cronsensus.lock.waiter import Waiter
from cronsensus.lock.worker_pool import submit
from cronsensus.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.lines import Line

_log = Logger("cronsensus.lock")

EMPTY_FOR = 10.0
"""Seconds after which a queue without waiters lets go of its thread and connection."""
AFTER_TROUBLE = 0.5


class Tells(Protocol):
    """Where an unlock can be heard of; a ``Store`` is such a place."""

    def line(self) -> Line:
        """Return a way to be told."""

    def call_next(self, name: str) -> None:
        """Tell one who waits."""


def tells(store: Store) -> bool:
    """Whether a line of ``store`` hears anything."""
    return store.capabilities.notify or store.capabilities.clock == "process"


class LocalQueue:
    """The waiters for one place in this process. Safe to share between threads; not for a forked child."""

    def __init__(self, place: Callable[[], Tells]) -> None:
        """Hear from the line of ``place()``, which is asked for when somebody waits."""
        self._place = place
        self._changed = Condition()
        self._moving = threading.Lock()
        """Held while a line elsewhere is joined or left, so that none is left that somebody is just joining."""
        self._waiting: dict[str, deque[QueuedWaiter]] = {}
        self._joined: set[str] = set()
        """In which lines elsewhere this process may be: while there are any, the thread hears what comes."""
        self._line: Line | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def join(self, waiter: QueuedWaiter) -> None:
        """Take a waiter in, at the end of its line here and, if it is the first, of the line elsewhere."""
        with self._changed:
            if waiter.left:  # its owner was cancelled while another thread came here for it
                return
            waiting = self._waiting.setdefault(waiter.name, deque())
            if waiter not in waiting:
                waiting.append(waiter)
            self._joined.add(waiter.name)
            if self._line is None:
                self._line = self._place().line()
            line = self._line
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._hear, name="cronsensus-waiting", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        with self._moving:
            line.join(waiter.name)

    def leave(self, waiter: QueuedWaiter) -> bool:
        """Let a waiter go; return whether he still waited to be told.

        The line elsewhere is left to the thread: told in vain, it tells the next.
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
        """Tell another waiter what was told to one who did not use it. May ask the store; never raises."""
        with self._changed:
            waiter = self._next(name)
            line = self._line
        if waiter is not None:
            waiter.wake()
        elif line is not None and not line.tells_all:
            self._place().call_next(name)

    def has_acquired(self, waiter: QueuedWaiter) -> None:
        """Let a waiter go who was faster than any news; the line elsewhere too, or the next news would come here."""
        waited, line = self.leave(waiter), self._line
        if waited and line is not None:
            with contextlib.suppress(StoreError):
                self._leave_line(line, waiter.name)

    def _leave_line(self, line: Line, name: str) -> None:
        """Leave a line elsewhere, unless somebody here waits."""
        with self._moving:
            with self._changed:
                if name in self._waiting or name not in self._joined:
                    return
                self._joined.discard(name)
            line.leave(name)

    def close(self) -> None:
        """Let everybody go."""
        with self._changed:
            self._closed = True
            line, self._line = self._line, None
            self._changed.notify_all()
        if line is not None:
            line.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        while (line := self._next_line()) is not None:
            try:
                told = line.hear(EMPTY_FOR)
                for name in told:
                    self._told(line, name)
                if not told:
                    for name in self._left_alone():
                        self._leave_line(line, name)
            except StoreError as error:
                _log.debug("no news of locks for now, waiters look by themselves: %s", error)
                self._begin_again(line)
            except Exception:  # noqa: BLE001 - logged
                if self._closed:  # under the hands of whatever waits or joins just now
                    continue
                _log.exception("a mistake in cronsensus; please report it. Waiters look by themselves meanwhile")
                self._begin_again(line)

    def _told(self, line: Line, name: str) -> None:
        with self._changed:
            waiter = self._next(name)
            others = bool(self._waiting.get(name))
            if waiter is not None:
                waiter.told = not line.tells_all  # before he can leave, or he could not know that he has to pass it on
        if waiter is not None:
            waiter.wake()
            if others:
                with self._moving:
                    line.join(name)
        elif not line.tells_all:
            self._place().call_next(name)

    def _next(self, name: str) -> QueuedWaiter | None:
        """Take out the one who has waited longest, who now has news."""
        waiting = self._waiting.get(name)
        waiter = waiting.popleft() if waiting else None
        if waiter is not None:
            waiter.news = True
        return waiter

    def _left_alone(self) -> list[str]:
        with self._changed:
            return [name for name in self._joined if name not in self._waiting]

    def _next_line(self) -> Line | None:
        """Return the line to hear from; ``None``: nobody has waited for a while, and the thread is over."""

        def is_needed() -> bool:
            return bool(self._waiting or self._joined)

        with self._changed:
            if not is_needed() and not self._closed:
                self._changed.wait_for(lambda: is_needed() or self._closed, EMPTY_FOR)
            if is_needed() and not self._closed:
                return self._line
            self._thread = None
            line, self._line = self._line, None
        if line is not None:
            line.close()
        return None

    def _begin_again(self, line: Line) -> None:
        """Stand in line anew for all who wait, on another connection; what was told meanwhile is lost."""
        line.close()
        with self._changed:
            self._changed.wait_for(lambda: self._closed, AFTER_TROUBLE)
            if self._closed:
                return
            self._line = self._place().line()
            self._joined.clear()
            waiting = [waiter for waiters in self._waiting.values() for waiter in waiters]
        for waiter in waiting:
            waiter.wake()


class QueuedWaiter(Waiter):
    """A place of one who is told when the lock may be free.

    Attributes:
        told: whether news came for him that went to nobody else.
        left: whether he waits no more, for good.
    """

    def __init__(self, clock: Clock, queue: LocalQueue, name: str, *, at_most: float) -> None:
        super().__init__(clock, at_most=at_most)
        self.name = name
        self.told = self.left = False
        self._queue = queue

    def join(self) -> None:
        """Stand in line."""
        self._queue.join(self)

    def leave(self) -> None:
        """Wait no more."""
        self._queue.leave(self)

    def give_up(self) -> None:
        """Wait no more, and pass on what was told."""
        self._queue.leave(self)
        if self.news:
            self.news = False
            submit(lambda: self._queue.pass_on(self.name))

    def has_acquired(self) -> None:
        """Wait no more, because the lock is had."""
        self._queue.has_acquired(self)
