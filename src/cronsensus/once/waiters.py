"""Those of this process who wait for what somebody else runs, and how they are told of its end.

A word to other processes costs a statement, and to listen for it a connection. So only those stand in line who have
waited for a while, and only what ran for about as long is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.clock import Clock
from cronsensus.lock.waiting import Room, RoomSeat, tells
from cronsensus.stores.base import Store

STAND_AFTER = 0.05
"""Seconds that a caller waits before he stands in line."""
TELL_AFTER = STAND_AFTER / 2
"""Seconds that a function runs before its end is told: nobody stands in line for what was shorter."""


class Waiters:
    """The waiters of one store and namespace in this process. Safe to share between threads."""

    def __init__(self, clock: Clock, store: Callable[[], Store]) -> None:
        """Wait by ``clock``; ``store`` gives the handle to tell others by."""
        self._clock = clock
        self._store = store
        self._room = Room(store)
        self._lock = threading.Lock()
        self._seats: dict[int, set[RoomSeat]] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._seats)

    @property
    def can_be_told(self) -> bool:
        """Whether the store has a way to."""
        return tells(self._store())

    def close(self) -> None:
        """Let go of the connection."""
        self._room.close()

    # --- who waits ----------------------------------------------------------------------------------------------------

    def sit(self, occurrence: int) -> RoomSeat:
        """Return a place to wait in until an occurrence may have ended; give it up by ``get_up``.

        It is rung when this process ends it; once its owner stands in line, also when another one does.
        """
        seat = RoomSeat(self._clock, self._room, _line_of(occurrence), at_most=0.0)
        with self._lock:
            self._seats.setdefault(occurrence, set()).add(seat)
        return seat

    def get_up(self, seat: RoomSeat, *, pass_on: bool) -> None:
        """Wait no more.

        Args:
            seat: from ``sit``.
            pass_on: what was told in it: to all who wait here, and elsewhere to the next, if nobody else was told.
        """
        seat.leave()
        occurrence = _waited_for(seat)
        with self._lock:
            seats = self._seats.get(occurrence, set())
            seats.discard(seat)
            if not seats:
                self._seats.pop(occurrence, None)
        if pass_on:
            self.ring(occurrence)
            if seat.told:
                self._store().call_next(seat.name)

    # --- who tells ----------------------------------------------------------------------------------------------------

    def tell(self, occurrence: int, *, ran_for: float, attempt: int) -> None:
        """Tell other processes that an occurrence is over, if anybody can be waiting for that. Never raises."""
        # Who began to wait for an earlier attempt may have waited for longer than this one ran.
        if (ran_for > TELL_AFTER or attempt > 1) and self.can_be_told:
            self._store().call_next(_line_of(occurrence))

    def ring(self, occurrence: int) -> None:
        """Have those who wait here for an occurrence look again."""
        with self._lock:
            seats = list(self._seats.get(occurrence, ()))
        for seat in seats:
            seat.ring()

    def ring_all(self) -> None:
        """Have all who wait here look again."""
        with self._lock:
            occurrences = list(self._seats)
        for occurrence in occurrences:
            self.ring(occurrence)


def _line_of(occurrence: int) -> str:
    # No lock can have this name.
    return f" once {occurrence}"


def _waited_for(seat: RoomSeat) -> int:
    return int(seat.name.rpartition(" ")[2])
