"""Keeps a session for the locks, or the guarded calls, that this process holds in a store.

A lock is held by a session, so that it ends with its process. A process may hold locks without being a node. And a
node's session is not suitable: it ends when the node drains, and its lease is short, for quick takeovers (ADR 12, 14).
So locks and guarded calls have sessions of their own. Such a session is opened when it is first needed,
renewed by the heartbeat, and closed when it has not been needed for a while. As a node does, the host
also notices if the store was emptied; see ``loss``.

::

    pin_session() ──▶ session open ──▶ add_resource(lock) ──▶ discard_resource(lock) ──▶ not needed for a while ──▶
    closed
                  │                                                   │
                  │   the heartbeat: renews the session every four minutes, and its resources
                  └── the store reports that it is dead: all of its resources are lost; the next pin opens a new session
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from cronsensus.errors import StoreEmptied, StoreError
from cronsensus.membership.heartbeat import LONGEST_WAIT, SHORTEST_WAIT, Heartbeat, Resource
from cronsensus.membership.lease import IDLE_LEASE, LeaseRequest, SessionLease
from cronsensus.membership.lease_monitor import LeaseMonitor
from cronsensus.membership.leaving import ended_within
from cronsensus.membership.loss import StoreWatch
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.membership.session import of_this_process, open_session
from cronsensus.model.session import Renewal
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

IDLE_FOR = 60.0
"""Seconds after which a session that is not needed is closed."""
IDENTIFY_AFTER = 1.0
"""Seconds after which it reads the store's identity. A process that ends before that saves a connection."""
IDENTIFY_AGAIN = 5.0
"""Seconds until the next try, if the store did not answer."""
LEAVE_WITHIN = 3.0
"""Seconds that ``close`` waits for the store to end the session."""
JOIN_WITHIN = 1.0
"""Seconds that ``close`` waits for the thread of the heartbeat, which may be in the middle of a verb."""
_SHORT_LEASE = timedelta(seconds=10)


class SessionHost:
    """Keeps a session open while it is needed. Safe to share between threads; not for a forked child.

    Attributes:
        store: the handle for verbs of the callers' own threads.
        monitor: notices when a lease can no longer be trusted.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str,
        heartbeat: Heartbeat | None = None,
        lease: timedelta = _SHORT_LEASE,
        stop: bool = False,
        on_listed: Callable[[str, Collection[tuple[int, int]], LeaseRequest], None] = lambda *_: None,
    ) -> None:
        """Open nothing yet.

        Args:
            store: for verbs on the callers' threads; the caller closes it, after this object.
            clock: for waits, and for how long a lease is trusted.
            name: of this process, for people.
            heartbeat: renews all sessions of this process in the store; ``None``: a heartbeat for this session alone.
            lease: of the session while it holds runs. With only locks, or nothing, it has a long lease.
            stop: refuse new locks and calls once the store was emptied.
            on_listed: called after each renewal with the runs that the store lists for the session.
        """
        self.store = store
        self.monitor = LeaseMonitor(clock)
        self._heartbeat = heartbeat or Heartbeat(store, clock)
        self._on_listed = on_listed
        self._short = lease
        self._clock = clock
        self._name = name
        self._stop = stop
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._renewer: SessionRenewer | None = None
        self._lease: SessionLease | None = None
        self._held: dict[Resource, None] = {}
        self._pins = 0
        self._needed_at = self._clock.monotonic()
        self._loss = StoreWatch(name, stop=stop, wake=self._heartbeat.wake_thread, subject="process")
        self._opened: tuple[float, datetime] | None = None
        """When the session was opened, by this process's clock and by the store's."""
        _all.add(self)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held or about to be held."""
        with self._lock:
            return not self._held and not self._pins

    @property
    def session(self) -> str | None:
        """The id of the open session."""
        lease = self._lease
        return None if lease is None else lease.session

    def pin_session(self) -> SessionLease:
        """Return the session, or a new one if it cannot be trusted; it stays open until ``unpin_session``.

        Raises:
            StoreEmptied: the store was emptied, and ``stop`` was given.
            StoreError: the store cannot be used now; there is nothing to unpin.
        """
        self.refuse_if_emptied()
        with self._lock:
            self._pins += 1
            lease = self._lease
        if lease is not None and lease.is_trusted:
            return lease
        try:
            return self._new_session()
        except BaseException:
            self.unpin_session()
            raise

    def unpin_session(self) -> None:
        """Undo a ``pin_session``: without pins, only resources keep the session open."""
        with self._lock:
            self._pins -= 1
            self._needed_at = self._clock.monotonic()

    def add_resource(self, resource: Resource, beat_in_seconds: float) -> None:
        """Renew ``resource`` from now on, for the first time in ``beat_in_seconds`` seconds."""
        with self._lock:
            self._held[resource] = None
        self._heartbeat.beat_in(beat_in_seconds)

    def discard_resource(self, resource: Resource) -> None:
        """Stop renewing ``resource``."""
        with self._lock:
            self._held.pop(resource, None)
            self._needed_at = self._clock.monotonic()

    def session_ended(self, lease: SessionLease) -> None:
        """Record that the store reported a session as dead."""
        lease.mark_lost()
        self._lose_session(lease, "its session was ended")

    def verify_soon(self) -> None:
        """Renew soon, to check whether the store still has the session: it lacks something else of this process."""
        with self._lock:
            renewer = self._renewer
        if renewer is not None:
            renewer.request_renewal()

    def store_failed(self, error: StoreError) -> None:
        """Record an error of the store: missing tables may mean that it was emptied."""
        if self._loss.note_trouble(error):
            with self._lock:
                lease = self._lease
            if lease is not None:
                lease.mark_lost()
                self._lose_session(lease, "the store was emptied")

    def refuse_if_emptied(self) -> None:
        """Raise if the store was emptied and ``stop`` was given.

        Raises:
            StoreEmptied: the store was emptied.
        """
        if self._loss.is_halted:
            raise StoreEmptied(
                "the store was emptied, or is another one than the one that this process knew, and "
                "on_store_loss='stop': this process takes no lock and begins no guarded call more. When the data is "
                "back, or is to begin anew, restart it"
            )

    def close(self) -> None:
        """Close the session, which frees all of its resources. Idempotent."""
        with self._lock:
            lease, self._lease = self._lease, None
            holds_anything = any(resource.session for resource in self._held)
            join_heartbeat = self._leave_heartbeat()
        self.monitor.close()
        if lease is not None:
            self._lose_session(lease, "this process let go of its session")
            self._close_within(LEAVE_WITHIN, lease, holds_anything=holds_anything)
        join_heartbeat(JOIN_WITHIN)

    # --- the session --------------------------------------------------------------------------------------------------

    def _new_session(self) -> SessionLease:
        with self._opening:
            lease = self._lease
            if lease is not None and lease.is_trusted:
                return lease
            spec = of_this_process(self._name)
            try:
                lease, opened_at = open_session(self.store, self._clock, spec, IDLE_LEASE, self._monitor_lease)
                if self._stop:
                    self._identify_store(self.store, spec.id, opened_at)
            except StoreError as error:
                self.store_failed(error)
                self.refuse_if_emptied()
                raise
            self.refuse_if_emptied()
            self._opened = self._clock.monotonic(), opened_at
            with self._lock:
                previous, self._lease = self._lease, lease
                if self._renewer is None:
                    self._renewer = SessionRenewer(
                        self._clock,
                        lease=self._short,
                        holds=lambda: False,
                        on_renewal=self._on_renewal,
                        on_trouble=self.store_failed,
                        beat_within=self._heartbeat.beat_within,
                    )
                self._renewer.keep_session(lease)
                self._heartbeat.add_member(self)
            self._monitor_lease()
            if previous is not None:
                self._lose_session(previous, "its session could not be renewed in time")
            return lease

    def _leave_heartbeat(self) -> Callable[[float], None]:
        renewer, self._renewer = self._renewer, None
        if renewer is not None:
            renewer.stop()
        return self._heartbeat.remove_member(self)

    def _close_within(self, seconds: float, lease: SessionLease, *, holds_anything: bool) -> None:
        if (
            not ended_within(seconds, lambda: self._close_session(self.store, lease, holds_anything=holds_anything))
            and holds_anything
        ):
            _log.warning("the store does not answer: what this process held is free when its lease ends")

    def _close_session(self, store: Store, lease: SessionLease, *, holds_anything: bool) -> None:
        try:
            store.close_session(lease.session)
        except StoreError as error:
            if holds_anything:
                _log.warning("what this process held could not be released, it is free when its lease ends: %s", error)
            else:
                _log.debug("a session that held nothing could not be closed, it ends with its lease: %s", error)

    def _identify_store(self, store: Store, session: str, opened_at: datetime) -> None:
        """Read the identity of a session's store; close the session if this process must stop using the store.

        Raises:
            StoreError: the store cannot be used.
        """
        self._loss.note_opened(store, session, opened_at)
        if self._loss.is_halted:
            with contextlib.suppress(StoreError):
                store.close_session(session)
                self._loss.record_losses(store)

    def _on_renewal(self, lease: SessionLease, renewal: Renewal, request: LeaseRequest) -> None:
        self._loss.detect_loss(lease.session, renewal)
        if not renewal.alive:
            self._lose_session(lease, "its session was ended")
            return
        self._monitor_lease()
        if renewal.held is not None:
            self._on_listed(lease.session, renewal.held, request)

    def _lose_session(self, lease: SessionLease, reason: str) -> None:
        with self._lock:
            lost = [resource for resource in self._held if resource.session == lease.session]
            for resource in lost:
                del self._held[resource]
        for resource in lost:
            resource.mark_lost(reason)

    # --- the end of trust --------------------------------------------------------------------------------------------

    def _monitor_lease(self) -> None:
        self.monitor.monitor_lease(self)

    @property
    def expires_in(self) -> float:
        """Return the seconds for which the session may be trusted; for the monitor of leases."""
        lease = self._lease
        return LONGEST_WAIT if lease is None else lease.trusted_for

    def expire(self) -> None:
        """Lose all resources of the session: it could not be renewed in time."""
        lease = self._lease
        if lease is not None:
            self._lose_session(lease, "its session could not be renewed in time")

    # --- what the heartbeat calls -------------------------------------------------------------------------------------

    def renew(self, store: Store) -> float:
        """Renew the session if it is due, or close it if it is not needed; return the seconds until the next call."""
        with self._lock:
            renewer = self._renewer
            unneeded = None if self._held or self._pins else self._needed_at + IDLE_FOR - self._clock.monotonic()
            lease = self._lease
            if unneeded is not None and unneeded <= 0:
                self._lease = None
                self._leave_heartbeat()
                self.monitor.drop_lease(self)
        if unneeded is not None and unneeded <= 0:
            if lease is not None:
                self._close_session(store, lease, holds_anything=False)
            return LONGEST_WAIT
        if renewer is None:
            return LONGEST_WAIT
        seconds = [renewer.renew(store), self._check_store(store)]
        return min(seconds) if unneeded is None else min(*seconds, unneeded)

    def list_resources(self) -> Collection[Resource]:
        """Return the session's resources."""
        with self._lock:
            return list(self._held)

    def _check_store(self, store: Store) -> float:
        """Read the store's identity, and record losses; return the seconds until that is due again."""
        with self._lock:
            lease, opened = self._lease, self._opened
        try:
            if self._loss.has_unrecorded_losses:
                self._loss.record_losses(store)
            if lease is None or opened is None or lease.is_lost or self._loss.session == lease.session:
                return LONGEST_WAIT
            seconds_left = opened[0] + IDENTIFY_AFTER - self._clock.monotonic()
            if seconds_left > 0:
                return seconds_left
            self._identify_store(store, lease.session, opened[1])
        except StoreError as error:
            self.store_failed(error)
            _log.debug("the identity of the store could not be read yet: %s", error)
            return IDENTIFY_AGAIN
        return SHORTEST_WAIT if self._loss.has_unrecorded_losses else LONGEST_WAIT


_all: weakref.WeakSet[SessionHost] = weakref.WeakSet()
_of_the_parent: list[object] = []
"""Objects that a fork copied into this process and that only the parent may close."""


def _at_exit() -> None:
    for host in list(_all):
        host.close()


def _in_child() -> None:
    _of_the_parent.extend(_all)
    _all.clear()


atexit.register(_at_exit)
call_after_fork(_in_child)
