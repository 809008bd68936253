"""Decides when a session is renewed, and renews it, on the thread and the connection of the heartbeat.

::

            ┌────────── every lease/3 while the session holds something ───────┐
            ▼                                                                    │
    asked_at = monotonic ─▶ store.renew ─▶ alive: trust until asked_at + lease - margin
                                 │          lost : the session is dead for good → its owner is called
                                 ▼
                            store error: try again soon

An idle session has a long lease and renews it every four minutes, so that an idle store can sleep. The store decides
which of the two leases applies, by what the session holds (ADR 4).

Failure handling: an unreachable store ends nothing by itself. The trust in the lease ends by the monotonic clock, which
the lease monitor notices. If the store answers before that, nothing has happened.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta

from cronsensus.errors import StoreError
from cronsensus.membership.heartbeat import Resource
from cronsensus.membership.lease import IDLE_LEASE, UNTRUSTED_SHARE, LeaseRequest, SessionLease
from cronsensus.model.session import Renewal
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock
from cronsensus.timing.durations import format_duration

_log = Logger("cronsensus.node")

IDLE_RENEWAL = timedelta(seconds=240)
QUICK_CHECK = 0.5
"""Least seconds between two renewals on notifications, while the node holds runs."""
IDLE_CHECK = 2.0
"""The same for an idle node, which can only be asked to drain."""
ENOUGH, LEAST = 20, 15
"""How many renewals in a row a lease should have time for, and below how many a warning is logged. A renewal is two
round trips on PostgreSQL and MySQL, one on Redis; see ``docs/stores.md``."""
MOST_MEASURED = 5
"""Number of renewals of which the quickest counts: each may be late, and the first one connects."""


class SessionRenewer:
    """Renews a single session at a time, whenever the heartbeat calls ``renew``, until ``stop``."""

    def __init__(
        self,
        clock: Clock,
        *,
        lease: timedelta,
        holds: Callable[[], bool],
        on_renewal: Callable[[SessionLease, Renewal, LeaseRequest], None],
        on_trouble: Callable[[StoreError], object] = lambda _: None,
        beat_within: Callable[[float], None] = lambda _: None,
        idle_lease: timedelta = IDLE_LEASE,
        idle_renewal: timedelta = IDLE_RENEWAL,
    ) -> None:
        self._clock = clock
        self._lease = lease
        self._holds = holds
        self._on_renewal = on_renewal
        self._on_trouble = on_trouble
        self._beat_within = beat_within
        self._idle_lease = max(lease, idle_lease)
        self._idle_renewal = idle_renewal
        self._notified = self._asked_for = False
        self._stopped = False
        self._looked_at = -1e9
        self._kept: SessionLease | None = None
        self._took: deque[float] = deque(maxlen=MOST_MEASURED)
        self._warned = False

    def keep_session(self, lease: SessionLease) -> None:
        """Renew this session from now on, instead of the previous one."""
        self._kept = lease
        self._beat_within(0.0)

    def reschedule_renewal(self) -> None:
        """Recompute the next renewal: the node started to hold runs, or its trust in the lease ran out."""
        self._beat_when_due()

    def request_renewal(self) -> None:
        """Renew as soon as possible: the runs that the store lists for this session are in doubt."""
        self._asked_for = True
        self._beat_within(0.0)

    def renew_soon(self) -> None:
        """Renew soon: something changed in the store, perhaps a request to cancel or to drain."""
        self._notified = True
        self._beat_when_due()

    def _beat_when_due(self) -> None:
        """Have the heartbeat wake when the renewal is due, and not now: its thread would delay a starting run."""
        if (lease := self._kept) is not None:
            self._beat_within(max(0.0, self._due_in(lease)))

    def renew(self, store: Store) -> float:
        """Renew if it is time to, or after a notification; return the seconds until the next renewal."""
        lease = self._kept
        if lease is None or lease.is_lost or self._stopped:
            return self._idle_renewal.total_seconds()
        wait = self._due_in(lease)
        return wait if wait > 0 else self._renew_lease(store, lease)

    def list_resources(self) -> Collection[Resource]:
        """Return nothing: the runs of a node are held by its session and renewed with it."""
        return ()

    def _due_in(self, lease: SessionLease) -> float:
        """Return the seconds until the next renewal, by the length that the lease has now."""
        if self._asked_for:
            return 0.0
        every = self._idle_renewal if lease.length > self._lease else min(self._lease / 3, self._idle_renewal)
        # Counted from the lease itself and not from the last renewal, because a claim sets the lease too.
        wait = lease.trusted_for - (lease.length.total_seconds() * (1 - UNTRUSTED_SHARE) - every.total_seconds())
        if self._notified:
            look = QUICK_CHECK if self._holds() else IDLE_CHECK
            wait = min(wait, self._looked_at + look - self._clock.monotonic())
        return wait

    def _renew_lease(self, store: Store, lease: SessionLease) -> float:
        request = lease.note_request()
        self._notified, self._asked_for, self._looked_at = False, False, request.at
        try:
            renewal = store.renew(lease.session, lease=self._lease, idle_lease=self._idle_lease)
        except StoreError as error:
            self._notified = True
            self._on_trouble(error)
            return min(1.0, self._lease.total_seconds() / 10)
        self._measure_renewal(self._clock.monotonic() - request.at)
        if self._stopped:
            # The owner is closing the session.
            return self._idle_renewal.total_seconds()
        if renewal.alive:
            # A claim may yet be carried out although its answer was lost, and shorten the lease.
            lease.confirm_renewal(request, min(renewal.lease, self._lease) if self._holds() else renewal.lease)
        else:
            lease.mark_lost()
        self._on_renewal(lease, renewal, request)
        return self._due_in(lease)

    def _measure_renewal(self, seconds: float) -> None:
        """Record how long a renewal took; warn once if the lease is too short for such a distance."""
        self._took.append(seconds)
        quickest = min(self._took)
        if self._warned or len(self._took) < MOST_MEASURED or self._lease.total_seconds() >= LEAST * quickest:
            return
        self._warned = True
        _log.aside.warning(
            "the lease of %s is short for a store as far away or slow as this one: the quickest of the last %d "
            "renewals took %.0f ms, so what runs may be stopped and taken over although this process lives. Choose one "
            "of %ds or more: Scheduler(…, lease='%ds'), or CRONSENSUS_LEASE=%ds",
            format_duration(self._lease), MOST_MEASURED, quickest * 1000, *[math.ceil(ENOUGH * quickest)] * 3,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop renewing, and ignore an answer that is still on its way."""
        self._stopped = True
