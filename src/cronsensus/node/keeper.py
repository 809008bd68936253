"""Keeps the session alive: on a thread and a connection of its own, so that nothing a job does can starve a lease.
Floor 4.

::

            ┌────────── every lease/3 while the node holds something ──────────┐
            ▼                                                                    │
    asked_at = monotonic ─▶ store.renew ─▶ alive: trust until asked_at + lease - margin
                                 │          lost : the session is dead for good → tell the conductor
                                 ▼
                            store error: try again soon; when the trust has run out, tell the conductor

An idle node holds a long lease and renews it about once a minute, so that an idle store can sleep.

Failure handling: an unreachable store ends nothing by itself. What ends is trust, by the monotonic clock; then the
conductor stops what runs. If the store answers again in time, nothing happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from cronsensus.clock import Clock
from cronsensus.errors import StoreError
from cronsensus.model.session import Renewal
from cronsensus.node.lease import SessionLease
from cronsensus.stores.base import Store

IDLE_RENEWAL = timedelta(seconds=90)
IDLE_LEASE = timedelta(seconds=300)
SOONEST = 0.05
QUICK_LOOK = 0.5
"""Least seconds between two renewals that hints ask for."""


class Keeper:
    """Renews one session. ``step`` does one round; ``run`` turns it until ``stop``."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        lease: timedelta,
        holds: Callable[[], bool],
        on_renewal: Callable[[SessionLease, Renewal], None],
        on_trust_lost: Callable[[SessionLease], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._holds = holds
        self._on_renewal = on_renewal
        self._on_trust_lost = on_trust_lost
        self._wake = threading.Event()
        self._stopped = False
        self._renewed_at = -1e9
        self._kept: SessionLease | None = None
        self._told: SessionLease | None = None

    def keep(self, lease: SessionLease) -> None:
        """Renew this session from now on, instead of the one before."""
        self._kept = lease
        self._renewed_at = self._clock.monotonic()
        self._wake.set()

    def nudge(self) -> None:
        """Look soon: the node began to hold something, or a hint came that may be a request to cancel."""
        self._wake.set()

    def step(self) -> float:
        """Renew if it is time to; return the seconds until the next look."""
        lease = self._kept
        if lease is None or lease.lost:
            return IDLE_RENEWAL.total_seconds()
        busy = self._holds()
        every = (self._lease / 3 if busy else IDLE_RENEWAL).total_seconds()
        asked_at = self._clock.monotonic()
        wait = self._renewed_at + every - asked_at
        if busy:
            wait = min(wait, lease.trusted_for - self._lease.total_seconds() / 2)
        if wait > 0:
            return wait
        if busy:
            return self._renew(lease, self._lease, asked_at, every)
        # A long lease answered while a claim sets a short one would be trusted for too long: one of them at a time.
        if not lease.changing.acquire(blocking=False):
            return SOONEST
        try:
            return SOONEST if self._holds() else self._renew(lease, max(self._lease, IDLE_LEASE), asked_at, every)
        finally:
            lease.changing.release()

    def look(self) -> float:
        """Renew now if the node holds something, unless it was just done: learns of requests to cancel."""
        if self._kept is not None and self._holds():
            self._renewed_at = min(self._renewed_at, self._clock.monotonic() - self._lease.total_seconds())
        return self.step()

    def _renew(self, lease: SessionLease, ttl: timedelta, asked_at: float, every: float) -> float:
        try:
            renewal = self._store.renew(lease.session, lease=ttl)
        except StoreError:
            if not lease.trusted and self._told is not lease:
                self._told = lease
                self._on_trust_lost(lease)
            return max(SOONEST, min(1.0, self._lease.total_seconds() / 10))
        self._renewed_at = asked_at
        if renewal.alive:
            self._told = None
            lease.confirm(asked_at, ttl)
        else:
            lease.lose()
        self._on_renewal(lease, renewal)
        return every

    def run(self) -> None:
        """Turn ``step`` until ``stop``; the keeper's thread."""
        wait, looked_at = 0.0, -1e9
        while not self._stopped:
            hinted = self._wake.wait(max(SOONEST, wait))
            self._wake.clear()
            if self._stopped:
                return
            now = self._clock.monotonic()
            if hinted and now - looked_at >= QUICK_LOOK:
                looked_at = now
                wait = self.look()
            else:
                wait = self.step()
                if hinted:
                    wait = min(wait, QUICK_LOOK)

    def stop(self) -> None:
        """End ``run``."""
        self._stopped = True
        self._wake.set()
