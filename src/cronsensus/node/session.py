"""The sessions of a node: opening, closing, and declaring its jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from cronsensus.membership.lease import SessionLease
from cronsensus.membership.session import open_session
from cronsensus.model.session import SessionSpec
from cronsensus.node.decide import ENSURE_RUNS_EVERY
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

DECLARE_AGAIN_EVERY = 30.0
"""Seconds between two attempts to declare the jobs that a newer release does not have."""


class OwnSession:
    """The node's sessions, in order: a lost session is never used again.

    Attributes:
        lease: of the present session, lost or not; ``None`` before the first.
        opened_at: when it was opened, by the store's clock.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: NodeSettings,
        *,
        new_session: Callable[[], SessionSpec],
        declare: Callable[[Store], bool],
        on_lease_shortened: Callable[[], None],
        ensure_runs: Callable[[Store], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        # It holds no runs yet; the first claim makes the lease short.
        self._length = max(settings.lease, settings.idle_lease)
        self._new_session = new_session
        self._declare = declare
        self._ensure_runs = ensure_runs
        self._on_lease_shortened = on_lease_shortened
        self._declare_again = False
        self._declared_at = self._ensured_at = clock.monotonic()
        self._half_open: str | None = None
        self.lease: SessionLease | None = None
        self.opened_at: datetime | None = None

    def open_session(self) -> SessionLease:
        """Open a new session and declare the jobs; raises what the store raises."""
        # After a lost answer or a failed declaration: an unused session must not count as a live node.
        self.close_half_open()
        spec = self._new_session()
        self._half_open = spec.id
        lease, self.opened_at = open_session(self._store, self._clock, spec, self._length, self._on_lease_shortened)
        self._declare(self._store)
        # Once more in any case: a store that loses its last moment just after a deploy has the old jobs again.
        self._declare_again = True
        self._declared_at = self._clock.monotonic()
        self._half_open = None
        self.lease = lease
        return lease

    def close_session(self) -> None:
        """Close the session; its ends must be reported before."""
        if self.lease is not None:
            self._store.close_session(self.lease.session)
            self.lease.mark_lost()
            self._store.notify()

    def close_half_open(self) -> None:
        """Close a session that may have been opened, but was never used."""
        if self._half_open is not None:
            self._store.close_session(self._half_open)
            self._half_open = None

    def request_declaring(self) -> None:
        """Have the jobs declared once more at the next chance."""
        self._declare_again, self._declared_at = True, self._clock.monotonic() - 2 * DECLARE_AGAIN_EVERY

    def declare_again(self) -> None:
        """Declare the jobs once more, and repeatedly those that a newer release keeps out: it may be gone by now.

        The runs that must always exist are ensured as often.
        """
        if self._declare_again and self._clock.monotonic() - self._declared_at > DECLARE_AGAIN_EVERY:
            # Recorded before, or a store that refuses would be called in each round.
            self._declared_at = self._clock.monotonic()
            self._declare_again = self._declare(self._store)
        if self._clock.monotonic() - self._ensured_at >= ENSURE_RUNS_EVERY:
            self._ensured_at = self._clock.monotonic()
            self._ensure_runs(self._store)
