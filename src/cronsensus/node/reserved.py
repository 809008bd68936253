"""Claims that wait on this node for a free slot, in the order in which they were claimed.

::

    add() ──▶ waiting ──begin()──▶ active, and unrecorded for half a second ──▶ ended, or a note says that it has begun
                 │
                 └──take_all(), remove()──▶ given back, or not this node's any more

Executors' threads begin what waits, the rounds add and give back, the heartbeat looks. What waits is always either here
or among what runs: in a third place it would be an unknown claim. Calls are made when they are added,
because the lock is held in between, and all threads of a node come here at the end of each run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from cronsensus.membership.lease import SessionLease
from cronsensus.model.occurrence import Claim, Note
from cronsensus.node.accepted_ends import Key
from cronsensus.node.executors.base import Call
from cronsensus.node.holding import Ahead, Running
from cronsensus.node.progress import EVERY
from cronsensus.timing.clock import Clock


class _Waiting(NamedTuple):
    key: Key
    since: float
    call: Call
    lease: SessionLease


class Reserved:
    """The claims of a node that wait for a free slot, in order.

    Attributes:
        lock: held while a claim goes from here to the active runs; for those that look at both.
        unrecorded_starts: when runs began that the store does not know to have begun.
    """

    def __init__(self, clock: Clock, held: MutableMapping[Key, Ahead | Running]) -> None:
        """Put what begins into ``held``."""
        self._clock = clock
        self._held = held
        self._waiting: deque[_Waiting] = deque()
        self._half = 0
        self._closed = False
        self._beginning: set[int] = set()
        """Threads that begin something: what they cannot begin ends there and then."""
        self.lock = threading.Lock()
        self.unrecorded_starts: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_half_empty(self) -> bool:
        """Whether at most half of the claims added last is left."""
        return len(self._waiting) <= self._half

    @property
    def waits_for(self) -> float | None:
        """Return for how many seconds the first claim has waited; ``None`` if none waits."""
        try:
            return self._clock.monotonic() - self._waiting[0].since
        except IndexError:
            return None

    @property
    def progress_in(self) -> float | None:
        """Return the seconds until the start of a run is to be reported; ``None`` if no start is unrecorded."""
        begun = list(self.unrecorded_starts.values())
        return max(0.0, min(begun) + EVERY - self._clock.monotonic()) if begun else None

    def start_notes(self) -> tuple[Note, ...]:
        """Return the notes that record the starts of runs; a run that ended at once needs none."""
        now = self._clock.monotonic()
        return tuple(
            Note(*key, session=held.claim.session, ran=timedelta(seconds=now - at))
            for key, at in list(self.unrecorded_starts.items())
            if now - at >= EVERY and (held := self._held.get(key)) is not None
        )

    def list_keys(self, session: str | None = None) -> dict[Key, float]:
        """Return the waiting claims of a session, or of all, and since when; called with the lock."""
        return {one.key: one.since for one in self._waiting if session in {None, one.call.claim.session}}

    def add_calls(self, calls: Sequence[Call], lease: SessionLease) -> None:
        """Add calls behind those that wait."""
        now = self._clock.monotonic()
        with self.lock:
            self._waiting.extend(_Waiting((call.claim.id, call.claim.token), now, call, lease) for call in calls)
            self._half = len(self._waiting) // 2

    def start_first(self, start: Callable[[Call], None]) -> Call | None:
        """Start the first call; ``None`` if there is none, or its lease is not trusted."""
        thread = threading.get_ident()
        if thread in self._beginning:
            return None
        with self.lock:
            if self._closed or not self._waiting or not self._waiting[0].lease.is_trusted:
                return None
            key, since, call, _ = self._waiting.popleft()
            self._held[key] = Running(call, since)
            self.unrecorded_starts[key] = self._clock.monotonic()
        self._beginning.add(thread)
        try:
            start(call)
        finally:
            self._beginning.discard(thread)
        return call

    def withdraw_claim(self, key: Key) -> Claim | None:
        """Withdraw a waiting claim, and return it."""
        with self.lock:
            for one in self._waiting:
                if one.key == key:
                    self._waiting.remove(one)
                    return one.call.claim
        return None

    def withdraw_matching(self, applies: Callable[[Claim], bool]) -> list[Claim]:
        """Withdraw the waiting claims that match, and return them."""
        with self.lock:
            found = [one for one in self._waiting if applies(one.call.claim)]
            for one in found:
                self._waiting.remove(one)
        return [one.call.claim for one in found]

    def stop_starting(self) -> None:
        """Start nothing any more."""
        with self.lock:
            self._closed = True

    def withdraw_all(self) -> list[Claim]:
        """Withdraw all waiting claims, and return them."""
        with self.lock:
            claims = [one.call.claim for one in self._waiting]
            self._waiting.clear()
        return claims
