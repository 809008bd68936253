"""Locks held in a store, by this process's session there."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import timedelta

from cronsensus.errors import LeaseLost, StoreError
from cronsensus.lock.backend import LockBackend, LockRequest
from cronsensus.lock.lease import RENEWALS, Lease, LeaseRef
from cronsensus.lock.local_queue import LocalQueue, QueuedWaiter, can_notify
from cronsensus.lock.waiter import PollingWaiter, Waiter
from cronsensus.membership.heartbeat import Heartbeat
from cronsensus.membership.liveness import is_dead
from cronsensus.membership.session_host import SessionHost
from cronsensus.model.session import LockGrant, LockView
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

REPEAT_WITHIN = 3.0
"""Seconds without an answer after which the call is not repeated at once: the caller has waited long enough."""
RETRY_INTERVAL = 0.5
"""Seconds after which a waiter tries without a notification: one may be lost, or the holder be dead."""


class StoreLockBackend(LockBackend):
    """The locks of one store and namespace."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str = "",
        heartbeat: Heartbeat | None = None,
        owned: bool = False,
        fast_evidence: bool = True,
        stop: bool = False,
    ) -> None:
        """Use ``store`` for locks; nothing is opened yet.

        Args:
            store: its schema is brought up to date when it is first needed. All verbs of callers use this handle.
            clock: for trust and waits.
            name: of this process, for people; host name and pid if none is given.
            heartbeat: renews what is held, and all else of this process in the store; ``None``: one of its own.
            owned: close ``store`` in the end; else that is the caller's, after ``close``.
            fast_evidence: regard a process of this host as dead as soon as it is gone.
            stop: refuse every lock once the store was emptied.
        """
        super().__init__()
        self.clock = clock
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._fast_evidence = fast_evidence
        self._store = store
        self._owned = owned
        self._is_ready = False
        self._host = SessionHost(store, clock, name=self._name, heartbeat=heartbeat, stop=stop)
        self._queue = LocalQueue(lambda: store)
        self._notifies = can_notify(store)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held here."""
        return self._host.is_idle

    def close(self) -> None:
        """Free all that is held, and close connections."""
        self._queue.close()
        self._host.close()
        if self._owned:
            self._store.close()

    # --- taking -------------------------------------------------------------------------------------------------------

    def try_lock(self, request: LockRequest, waiter: Waiter | None = None, *, look: bool = True) -> Lease | None:
        """Try to take the lock; if it is refused, look whether its holders live."""
        if not self._is_ready:
            self._store.migrate()
            self._is_ready = True
        lease = self._try_store(request)
        if lease is None and look and self._fast_evidence and (waiter is None or waiter.wants_holders):
            holders = self._read_views(request.name)
            if self._reclaim_dead(holders):
                lease = self._try_store(request)
            if waiter is not None:
                waiter.note_holders(holders)
        return lease

    def _try_store(self, request: LockRequest, *, may_repeat: bool = True) -> Lease | None:
        holder = self.name_holder(self._name)
        sessions_asked: list[str] = []
        try:
            return self._request_grant(request, holder, sessions_asked)
        except LeaseLost:
            # The session was declared dead; this process is alive, and begins a new one.
            if not may_repeat:
                raise
        except StoreError as error:
            self._host.store_failed(error)
            # Most often an idle connection was cut off, and the store is there.
            if not (self._undo_grant(request.name, holder, sessions_asked) and error.retryable and may_repeat):
                raise
        return self._try_store(request, may_repeat=False)

    def _request_grant(self, request: LockRequest, holder: str, sessions_asked: list[str]) -> Lease | None:
        session = self._host.pin_session()
        try:
            sessions_asked.append(session.session)
            asked_at = self.clock.monotonic()
            grant = self._store.lock(
                request.name, holder, ttl=request.ttl, session=session.session, limit=request.limit
            )
            return None if grant is None else self._register_lease(request, grant, session.session, asked_at)
        except LeaseLost:
            self._host.session_ended(session)
            raise
        finally:
            self._host.unpin_session()

    def _undo_grant(self, name: str, holder: str, sessions_asked: list[str]) -> bool:
        """Release a grant whose answer was lost, or all waiters would wait until its TTL ends.

        Only grants of the sessions in ``asked``: processes in two containers may have one host name and pid.

        Returns whether the store could be asked.
        """
        try:
            for view in self._read_views(name):
                if view.holder == holder and view.session in sessions_asked:
                    grant = LockGrant(
                        name=name, holder=holder, token=view.token, place=view.place, session=view.session
                    )
                    self._store.unlock(grant)
        except StoreError:
            return False
        return True

    def _register_lease(self, request: LockRequest, grant: LockGrant, session: str, asked_at: float) -> Lease:
        lease = request.lease_of_grant(
            self, grant, holder=grant.holder, token=grant.token, asked_at=asked_at, session=session
        )

        def keep(ref: LeaseRef) -> None:
            # Also what is not renewed: it is lost with the session.
            self._host.add_resource(ref, request.ttl.total_seconds() / RENEWALS)
            self._host.monitor.monitor_lease(ref)

        lease.register(keep)
        return lease

    def _reclaim_dead(self, holders: Sequence[LockView]) -> bool:
        """End the sessions of holders whose process is dead; ``True`` if any was, so that the lock may be free."""
        dead = {view.session for view in holders if view.session is not None and is_dead(view)}
        if dead:
            self._store.reclaim(dead)
        return bool(dead)

    # --- holding ------------------------------------------------------------------------------------------------------

    def free_lock(self, lease: Lease) -> bool:
        """Free a lock.

        An answer may be lost, and the repeated call answers that the lock is not held under this token. It was freed by
        the first call if the lease was still trusted when that was sent.
        """
        grant, asked_at = _grant_of(lease), self.clock.monotonic()
        was_held = lease.trusted_at(asked_at)
        try:
            return self._check_known(self._store.unlock(grant))
        except StoreError as error:
            if not self._asks_again(error, asked_at):
                raise
        return self._store.unlock(grant) or was_held

    def extend_lock(self, lease: Lease, ttl: timedelta, *, by: Store | None = None) -> bool:
        """Extend a lock; repeated once after a lost answer, which only sets the same time again."""
        store, grant, asked_at = by or self._store, _grant_of(lease), self.clock.monotonic()
        try:
            return self._check_known(store.extend(grant, ttl=ttl))
        except StoreError as error:
            if not self._asks_again(error, asked_at):
                raise
        return self._check_known(store.extend(grant, ttl=ttl))

    def _check_known(self, was_held: bool) -> bool:  # noqa: FBT001 - the answer, which is passed on
        """Check soon that this is still the same store, if the store does not know a lock that is held here."""
        if not was_held:
            self._host.verify_soon()
        return was_held

    def _asks_again(self, error: StoreError, asked_at: float) -> bool:
        """Whether to repeat the call at once: after a broken connection, not after a timeout."""
        self._host.store_failed(error)
        return error.retryable and self.clock.monotonic() - asked_at < REPEAT_WITHIN

    def forget_lease(self, lease: LeaseRef) -> None:
        """Stop renewing and watching a lease."""
        self._host.discard_resource(lease)
        self._host.monitor.drop_lease(lease)

    def watch_lease(self, lease: LeaseRef) -> None:
        """Have the monitor notice the end of a lease."""
        self._host.monitor.monitor_lease(lease)

    def is_held(self, lease: Lease) -> bool:
        """Whether the lock is held under this lease."""
        return any(view.token == lease.token for view in self._read_views(lease.name))

    def count_holders(self, name: str) -> int:
        """Return how many hold the lock."""
        return len(self._read_views(name))

    def _read_views(self, name: str) -> list[LockView]:
        return self._store.locks(name=name, limit=10_000)

    def make_waiter(self, name: str) -> Waiter:
        """Return a waiter."""
        return (
            QueuedWaiter(self.clock, self._queue, name, at_most=RETRY_INTERVAL)
            if self._notifies
            else PollingWaiter(self.clock)
        )


def _grant_of(lease: Lease) -> LockGrant:
    assert isinstance(lease.grant, LockGrant)  # noqa: S101 - this backend's own
    return lease.grant
