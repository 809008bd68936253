"""Those of this process who wait for locks: one thread hears for all of them. Floor 5.

::

    stand ──▶ in line ──▶ try once more ──▶ wait ──▶ told, or time to look ──▶ try ──▶ stand again, or leave
                                              ▲
              unlock elsewhere ──▶ line ──▶ the thread rings the one who has waited longest here

Whoever is told in vain, because nobody here waits any more, tells the next process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from cronsensus.errors import StoreError
from cronsensus.model.session import LockView
from cronsensus.node.evidence import is_dead
from cronsensus.stores.lines import Line

_log = logging.getLogger("cronsensus.lock")

EMPTY_FOR = 10.0
"""Seconds after which a room without waiters lets go of its thread and connection."""
AFTER_TROUBLE = 0.5
AFTER_THE_END = 0.003
"""Seconds after a lock's end at which somebody looks: a little late rather than a little early."""


class Seat:
    """One waiter's place. This one is told nothing, and looks by itself.

    Attributes:
        look_again: seconds after which a waiter who is told nothing tries all the same.
    """

    look_again = 0.01

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._on_ring: Callable[[], None] | None = None

    def stand(self) -> None:
        """Stand in line; then the lock must be tried once more, for it may have come free before. Asks the store.

        Raises:
            StoreError: it cannot be asked.
        """

    def ring(self) -> None:
        """Wake the waiter."""
        self._rung.set()
        on_ring = self._on_ring
        if on_ring is not None:
            on_ring()

    def wait(self, seconds: float) -> bool:
        """Wait to be told; ``True``: the lock may be free."""
        told = self._rung.wait(max(0.0, seconds))
        self._rung.clear()
        return told

    async def await_(self, seconds: float) -> bool:
        """Do what ``wait`` does without blocking the event loop."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        self._on_ring = lambda: _tell(loop, told)
        try:
            if not self._rung.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), max(0.0, seconds))
            was_told = self._rung.is_set()
            self._rung.clear()
            return was_told
        finally:
            self._on_ring = None

    def is_abandoned(self) -> bool:
        """Whether somebody who held the lock when it was last tried is certainly dead. Asks no store."""
        return False

    def leave(self) -> None:
        """Wait no more. Asks no store."""


def _tell(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits on it
        loop.call_soon_threadsafe(told.set)


class Tells(Protocol):
    """Where an unlock can be heard of; a ``Store`` is such a place."""

    def line(self) -> Line:
        """Return a way to be told."""

    def call_next(self, name: str) -> None:
        """Tell one who waits."""


class Room:
    """The waiters for one place in this process. Safe to share between threads; not for a forked child."""

    def __init__(self, place: Callable[[], Tells]) -> None:
        """Hear from the line of ``place()``, which is asked for when somebody waits."""
        self._place = place
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[RoomSeat]] = {}
        self._line: Line | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def stand(self, seat: RoomSeat) -> None:
        """Take a waiter in, at the end of its line here and, if it is the first, of the line elsewhere."""
        with self._changed:
            waiting = self._waiting.setdefault(seat.name, deque())
            if seat not in waiting:
                waiting.append(seat)
            if self._line is None:
                self._line = self._place().line()
            line = self._line
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._hear, name="cronsensus-waiting", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        line.join(seat.name)

    def leave(self, seat: RoomSeat) -> None:
        """Let a waiter go. The line elsewhere is left to the thread: told in vain, it tells the next."""
        with self._changed:
            waiting = self._waiting.get(seat.name)
            if waiting is not None and seat in waiting:
                waiting.remove(seat)
            if not waiting:
                self._waiting.pop(seat.name, None)

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
        joined: set[str] = set()
        while (line := self._next_line()) is not None:
            try:
                for name in line.hear(EMPTY_FOR):
                    self._told(line, name)
                with self._changed:
                    wanted = set(self._waiting)
                for name in joined - wanted:
                    line.leave(name)
                joined = wanted
            except StoreError as error:
                _log.debug("no news of locks for now, waiters look by themselves: %s", error)
                self._begin_again(line)
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a mistake in cronsensus; please report it. Waiters look by themselves meanwhile")
                self._begin_again(line)

    def _told(self, line: Line, name: str) -> None:
        with self._changed:
            waiting = self._waiting.get(name)
            seat = waiting.popleft() if waiting else None
            others = bool(waiting)
        if seat is not None:
            seat.ring()
            if others:
                line.join(name)
        else:
            self._place().call_next(name)

    def _next_line(self) -> Line | None:
        """Return the line to hear from; ``None``: nobody has waited for a while, and the thread is over."""
        with self._changed:
            if not self._waiting and not self._closed:
                self._changed.wait_for(lambda: self._waiting or self._closed, EMPTY_FOR)
            if self._waiting and not self._closed:
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
            waiting = [seat for seats in self._waiting.values() for seat in seats]
        for seat in waiting:
            seat.ring()


class RoomSeat(Seat):
    """A place of one who is told when the lock may be free."""

    def __init__(self, room: Room, name: str, *, look_again: float) -> None:
        super().__init__()
        self.name = name
        self._room = room
        self._most = look_again
        self._holders: Sequence[LockView] = ()

    def see(self, holders: Sequence[LockView]) -> None:
        """Be told who holds the lock, now that it was refused; it may end before anybody looks again."""
        self._holders = holders
        ends = [max(0.0, holder.expires_in.total_seconds()) + AFTER_THE_END for holder in holders]
        self.look_again = min([self._most, *ends])

    def is_abandoned(self) -> bool:
        """Whether a process of this host that held the lock is gone."""
        return any(is_dead(holder) for holder in self._holders)

    def stand(self) -> None:
        """Stand in line."""
        self._room.stand(self)

    def leave(self) -> None:
        """Wait no more."""
        self._room.leave(self)
