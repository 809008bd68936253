"""Claims that wait on this node for a free slot, in the order in which they were claimed.

::

    add_calls() ──▶ waiting ──start_first()──▶ active, and unrecorded for half a second ──▶ ended, or a note records it
                 │
                 └──withdraw_…()──▶ released, or not this node's any more

Executors' threads start waiting claims, the rounds add and release them, the heartbeat reads. A waiting claim is always
either here or among the active runs: in a third place it would look like an unknown claim. Calls are made when they are
added, because the lock is held when they start, and all threads of a node need it at the end of each run.
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
from cronsensus.node.holding import Running, Waiting
from cronsensus.node.progress import WRITE_EVERY
from cronsensus.timing.clock import Clock


class _Waiting(NamedTuple):
    key: Key
    since: float
    call: Call
    lease: SessionLease


class Reserved:
    """The claims of a node that wait for a free slot, in order.

    Attributes:
        lock: held while a claim moves from here to the active runs; for readers of both.
        unrecorded_starts: the start times of runs that the store does not know to have started.
    """

    def __init__(self, clock: Clock, held: MutableMapping[Key, Waiting | Running]) -> None:
        """Start empty; claims that start move into ``held``."""
        self._clock = clock
        self._held = held
        self._waiting: deque[_Waiting] = deque()
        self._half = 0
        self._closed = False
        self._starting_threads: set[int] = set()
        """Threads that are starting a call: if that fails, the call ends on the same thread."""
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
        started_at = list(self.unrecorded_starts.values())
        return max(0.0, min(started_at) + WRITE_EVERY - self._clock.monotonic()) if started_at else None

    def start_notes(self) -> tuple[Note, ...]:
        """Return the notes that record the starts of runs; a run that ended at once needs none."""
        now = self._clock.monotonic()
        return tuple(
            Note(*key, session=held.claim.session, ran=timedelta(seconds=now - at))
            for key, at in list(self.unrecorded_starts.items())
            if now - at >= WRITE_EVERY and (held := self._held.get(key)) is not None
        )

    def list_keys(self, session: str | None = None) -> dict[Key, float]:
        """Return the waiting claims of a session, or of all, and since when they wait; called with the lock."""
        return {
            waiting.key: waiting.since for waiting in self._waiting if session in {None, waiting.call.claim.session}
        }

    def add_calls(self, calls: Sequence[Call], lease: SessionLease) -> None:
        """Add calls after the waiting ones."""
        now = self._clock.monotonic()
        with self.lock:
            self._waiting.extend(_Waiting((call.claim.id, call.claim.token), now, call, lease) for call in calls)
            self._half = len(self._waiting) // 2

    def start_first(self, start: Callable[[Call], None]) -> Call | None:
        """Start the first call; ``None`` if there is none, or its lease is not trusted."""
        thread = threading.get_ident()
        if thread in self._starting_threads:
            return None
        with self.lock:
            if self._closed or not self._waiting or not self._waiting[0].lease.is_trusted:
                return None
            key, since, call, _ = self._waiting.popleft()
            self._held[key] = Running(call, since)
            self.unrecorded_starts[key] = self._clock.monotonic()
        self._starting_threads.add(thread)
        try:
            start(call)
        finally:
            self._starting_threads.discard(thread)
        return call

    def withdraw_claim(self, key: Key) -> Claim | None:
        """Withdraw a waiting claim, and return it."""
        with self.lock:
            for waiting in self._waiting:
                if waiting.key == key:
                    self._waiting.remove(waiting)
                    return waiting.call.claim
        return None

    def withdraw_matching(self, applies: Callable[[Claim], bool]) -> list[Claim]:
        """Withdraw the waiting claims that match, and return them."""
        with self.lock:
            matching = [waiting for waiting in self._waiting if applies(waiting.call.claim)]
            for waiting in matching:
                self._waiting.remove(waiting)
        return [waiting.call.claim for waiting in matching]

    def stop_starting(self) -> None:
        """Start no more calls."""
        with self.lock:
            self._closed = True

    def withdraw_all(self) -> list[Claim]:
        """Withdraw all waiting claims, and return them."""
        with self.lock:
            claims = [waiting.call.claim for waiting in self._waiting]
            self._waiting.clear()
        return claims
