"""The lease of a lock that is held: its token, and how long this process may trust it.

The store (or the majority, or the kernel) decides which process holds a lock. A holder cannot read it all the time, so
it trusts its lease for a while after each answer: counted from before the request, by the monotonic clock, less a
margin. So ``lost`` is set before another process can acquire the lock. The lease monitor sets it without the store, and
``lost.is_set()`` compares the clock as well, so it is right in a process that was frozen a moment ago, too.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cronsensus.errors import CronsensusError, LeaseLost, NotTheHolder, StoreError
from cronsensus.lock.worker_pool import (
    call_surely,
    end_holding,
    on_worker,
    start_holding,
    submit_act,
    submit_drop,
    when_gone,
)
from cronsensus.membership.lease import UNTRUSTED_SHARE
from cronsensus.process.background import Gone
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import this_process
from cronsensus.process.twins import twin
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock
from cronsensus.timing.durations import Duration, parse_duration

_log = Logger("cronsensus.lock")

RENEWALS = 3
"""Renewals that fit into a lease: all of these answers but one may be late or lost."""
SOONEST = 0.02
NOTHING_DUE = 3600.0
"""Seconds until the next step when nothing is due."""


class LeaseBackend(ABC):
    """The part of a backend that a lease uses."""

    clock: Clock

    @abstractmethod
    def free_lock(self, lease: Lease) -> bool:
        """Free a lock; ``False``: it was no longer held under this lease, and nothing changed."""

    @abstractmethod
    def extend_lock(self, lease: Lease, ttl: timedelta, *, by: Store | None = None) -> bool:
        """Set a lock's end to ``ttl`` from now; ``False``: it was no longer held under this lease."""

    @abstractmethod
    def watch_lease(self, lease: LeaseRef) -> None:
        """Watch for the lease's end, which may have come nearer. Does not call the store."""

    @abstractmethod
    def forget_lease(self, lease: LeaseRef) -> None:
        """Stop renewing and watching the lease. Does not call the store."""

    @abstractmethod
    def is_held(self, lease: Lease) -> bool:
        """Whether the lock is held under this lease."""


class LeaseRef(Gone):
    """A weak reference by which the backend knows a lease, so that an unreachable lease is collected and freed.

    Its act frees the lock. It is created without a call of ``__init__``, because each acquire creates one.
    """

    __slots__ = ("_backend", "_left", "_of_thread", "session")

    _left: dict[str, Any] | None
    """The attributes of the lease, kept for a moment after its collection."""
    _of_thread: dict[LeaseRef, None] | None
    _backend: LeaseBackend
    session: str

    @classmethod
    def refer_to(cls, lease: Lease, backend: LeaseBackend) -> LeaseRef:
        """Return a reference to ``lease``."""
        ref = cls(lease, when_gone())
        ref.session, ref._backend, ref._left, ref._of_thread = lease.session, backend, lease.__dict__, None
        start_holding(ref)
        return ref

    def ends_with(self, thread: dict[LeaseRef, None]) -> None:
        """Bind the lease to a thread."""
        self._of_thread = thread
        thread[self] = None

    def renew_when_due(self, store: Store | None = None) -> float:
        """Renew the lease if that is due; return the seconds until the next step. For the heartbeat; never raises."""
        lease: Lease | None = self()
        if lease is not None:
            return lease.renew_when_due(store)
        # A dropped lease ends by itself; its session must last until then.
        ends: float = -1.0 if self._left is None else self._left["_ends"]
        seconds_left = ends - self._backend.clock.monotonic()
        if seconds_left <= 0:
            self._backend.forget_lease(self)
            return NOTHING_DUE
        return seconds_left

    @property
    def expires_in(self) -> float:
        """Return the seconds for which the lease can still be trusted."""
        lease: Lease | None = self()
        return NOTHING_DUE if lease is None else lease.expires_in

    @property
    def lost(self) -> bool:
        """Whether there is nothing left to renew."""
        lease: Lease | None = self()
        return lease is None or lease.released or not lease.trusted

    def mark_released(self) -> None:
        """Record that the lease was released: its collection needs no act."""
        self._left = None
        self._stop_holding()

    def _stop_holding(self) -> None:
        end_holding(self)
        if self._of_thread is not None:
            self._of_thread.pop(self, None)

    def free_abandoned(self) -> None:
        """Free a lock whose lease and ``Lock`` object are both gone. Runs on the worker pool."""
        left = getattr(self, "_left", None)  # absent: an exception came during its creation
        if left is None:
            return
        lease = object.__new__(Lease)
        lease.__dict__ = left
        if lease.released:
            self.mark_released()
        elif lease.ends_with_its_owner and lease.trusted:
            lease.abandon("its Lock object was dropped; keep it for as long as the lock is to be held")
        else:
            self._stop_holding()

    def expire(self) -> None:
        """Expire the lease; for the monitor."""
        if (lease := self()) is not None:
            lease.expire()

    def mark_lost(self, why: str) -> None:
        """Mark the lease as lost with its session."""
        if (lease := self()) is not None:
            lease.mark_lost(why)
        else:  # dropped, and about to be freed: nothing is left to do, and the backend may be closed by then
            self.mark_released()

    def thread_ended(self) -> None:
        """Handle the end of the thread to which the lease is bound."""
        if (lease := self()) is not None:
            lease.thread_ended()


class Lost(Event):
    """Set when a lease is lost, and never cleared."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._of = lease

    def is_set(self) -> bool:
        """Whether the lease is lost, by the clock of this moment."""
        return super().is_set() or not self._of.trusted

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, or for ``timeout`` seconds; return whether it is lost."""
        return self.is_set() or super().wait(timeout)


_OF_THE_BACKEND = frozenset({
    "abandon", "abandon_now", "end", "ends_with_its_owner", "expire", "grant", "is_ours", "mark_lost", "ref",
    "register", "renew", "renew_when_due", "require_holder", "session", "thread_ended", "trusted", "trusted_at",
    "unbind",
})  # fmt: skip
"""Attributes for the backend and the heartbeat, left out of tab completion."""


class Lease:
    """One hold of a lock, from ``acquire`` to ``release``.

    Attributes:
        name: of the lock.
        holder: the name of the holder, for people.
        token: the fencing token: higher than that of every holder before. Pass it to the protected resource, which must
            refuse a token lower than the highest that it has seen.
        released: whether it was released.
    """

    released: bool = True
    _freed = False
    _why = ""
    _lost: weakref.ref[Lost] | None = None

    def __init__(
        self,
        backend: LeaseBackend,
        *,
        name: str,
        holder: str,
        token: int,
        ttl: timedelta | None,
        asked_at: float,
        renew: bool,
        bound: bool,
        session: str = "",
        grant: object = None,
    ) -> None:
        """Make the lease of a ``grant``, the backend's own value. Without a ``ttl`` it has no end."""
        self.name: str = name
        self.holder: str = holder
        self.token: int = token
        self.session: str = session
        self.grant: object = grant
        self.renew: bool = renew
        self._backend = backend
        self._clock: Clock = backend.clock
        self._ttl = ttl
        self._pid = this_process.pid
        self._thread = threading.current_thread() if bound else None
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._ends, self._trusted_until = _end_times(asked_at, ttl)
        self.ref: LeaseRef | None = LeaseRef.refer_to(self, backend)
        self.released = False  # last: from here on the lock is freed when the lease is dropped

    # --- trust --------------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> Lost:
        """The event that is set before another holder can have the lock."""
        with self._lock:
            lost = None if self._lost is None else self._lost()
            if lost is None:  # created late: most leases never need it, and an event is expensive
                lost = Lost(self)
                self._lost = weakref.ref(lost)  # weak, or the two would keep each other alive
                if self._why:
                    lost.set()
            return lost

    @property
    def trusted(self) -> bool:
        """Whether no other holder can have the lock yet."""
        return self.trusted_at(self._clock.monotonic())

    def trusted_at(self, now: float) -> bool:
        """Whether no other holder can have the lock at this time of the backend's clock."""
        return not self._why and now < self._trusted_until and self._pid == this_process.pid

    @property
    def ttl(self) -> timedelta:
        """Return how long the lock lasts without a renewal; ``timedelta.max`` for a lock without an end."""
        return timedelta.max if self._ttl is None else self._ttl

    @property
    def expires_in(self) -> float:
        """Return the seconds for which this process may still trust the lease; zero or less: it is lost."""
        return -1.0 if self._why else self._trusted_until - self._clock.monotonic()

    def check(self) -> None:
        """Raise if the lease is lost; for the middle of long work.

        Raises:
            LeaseLost: another process may hold the lock by now.
        """
        if self.lost.is_set():
            raise self._loss_error()

    def expire(self) -> None:
        """Lose the lease because it has run out; for the monitor."""
        if not self.released:
            self.mark_lost("it could not be renewed in time" if self.renew else "its time is over")

    def mark_lost(self, why: str) -> None:
        """Mark the lease as lost: another holder has the lock, or may have it."""
        with self._lock:
            first = not self._why and not self.released
            self._why = self._why or why
            lost = None if self._lost is None else self._lost()
            if lost is not None:
                lost.set()
        if first and self.renew:
            # Aside: the threads that renew and watch all leases call this.
            _log.aside.warning("the lock %r, token %d, is lost: %s", self.name, self.token, why)

    def _loss_error(self) -> LeaseLost:
        why = self._why or ("its time is over" if self.is_ours else "it is the parent process's")
        return LeaseLost(
            f"the lock {self.name!r} is no longer held under token {self.token}: {why}; another process may hold it by "
            "now, so what this one still does must be refused by the token"
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Free the lock.

        Raises:
            LeaseLost: the lock had been lost; its present holder keeps it.
            NotTheHolder: another thread or process acquired it, or it is released already.
            StoreError: the store cannot be used; the lock ends with its TTL.
        """
        try:
            self.require_holder()
            self.end()
            self._free_in_store()
        except CronsensusError:
            raise
        except BaseException:  # out of a signal handler
            self.abandon_now()
            raise

    def _free_in_store(self) -> None:
        """Free the lock in the store; once, after ``end``."""
        freed = self._backend.free_lock(self)
        self._freed = True
        if not freed:
            self._why = self._why or "it had run out"
            raise self._loss_error()

    def end(self) -> None:
        """Stop renewing and watching the lease. The lock itself is not freed yet."""
        with self._lock:
            if self.released:
                raise NotTheHolder(f"the lock {self.name!r}, token {self.token}, is released already")
            self.released = True
        self._forget_lease()

    def register(self, keep: Callable[[LeaseRef], object]) -> None:
        """Call ``keep`` with the reference, unless the lease was released in between, as for an interrupted caller."""
        ref = self.ref
        if ref is not None:
            keep(ref)

    def _forget_lease(self) -> None:
        ref = self.ref
        if ref is not None:
            self._backend.forget_lease(ref)
            ref.mark_released()
            self.ref = None  # or Python would still call it when the lease is collected

    def abandon(self, why: str = "") -> None:
        """Free a lock that is no longer used, also after failed attempts.

        Args:
            why: for people; it is logged if the lock was still held.
        """
        if self._freed or not self.is_ours:
            return
        if why and not self.released and self.trusted:
            _log.warning("the lock %r, token %d, is freed: %s", self.name, self.token, why)
        self.released = True
        self._forget_lease()
        try:
            self._backend.free_lock(self)
            self._freed = True
        except StoreError as error:
            _log.warning("the lock %r could not be freed, it ends with its TTL: %s", self.name, error)

    def abandon_now(self) -> None:
        """Free the lock for an interrupted caller; if this is interrupted too, in the background."""
        try:
            self.abandon()
        except BaseException:
            submit_act(self.abandon)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether it was acquired in this process, and not before it was forked."""
        return this_process.pid == self._pid

    def unbind(self) -> None:
        """Allow any thread to release and extend the lock."""
        self._thread = None

    def require_holder(self) -> None:
        """Raise unless the lock may be released or extended here.

        Raises:
            NotTheHolder: another thread or process acquired it, or it is released already.
        """
        if not self.is_ours:
            raise NotTheHolder(
                f"the lock {self.name!r} is held by process {self._pid}, of which this one ({this_process.pid}) was "
                "forked; only there it can be released or extended. Acquire it here, if this process is to have it"
            )
        if self.released:
            raise NotTheHolder(f"the lock {self.name!r}, token {self.token}, is released already")
        current_thread = threading.current_thread()
        if self._thread is not None and self._thread is not current_thread:
            raise NotTheHolder(
                f"the lock {self.name!r} was acquired by the thread {self._thread.name!r} and can only be released or "
                f"extended there, not in {current_thread.name!r}"
            )

    # --- renewing -----------------------------------------------------------------------------------------------------

    def extend(self, additional_time: Duration, replace_ttl: bool = False) -> bool:  # noqa: FBT001, FBT002 - redis-py's
        """Extend the lease by ``additional_time``, or to that much from now; return ``True``.

        Args:
            additional_time: seconds, or text such as ``"30s"``.
            replace_ttl: count from now, instead of adding to the rest.

        Raises:
            LeaseLost: the lock is no longer held here.
            NotTheHolder, StoreError: as ``release``.
        """
        self.require_holder()
        additional = parse_duration(additional_time, what="additional_time")
        if self._ttl is not None:
            remaining = (
                timedelta(0) if replace_ttl else timedelta(seconds=max(0.0, self._ends - self._clock.monotonic()))
            )
            with self._asking:  # one at a time, or the answers would not show which call came last
                self._extend_lease(remaining + additional)
        return True

    def reacquire(self) -> bool:
        """Extend the lease to its whole TTL from now on; return ``True``.

        Raises:
            LeaseLost, NotTheHolder, StoreError: as ``extend``.
        """
        return self.extend(self._ttl or timedelta(0), replace_ttl=True)

    def owned(self) -> bool:
        """Read from the store whether the lock is still held under this token.

        Raises:
            StoreError: the store cannot be used.
        """
        return not self.released and self.is_ours and self._backend.is_held(self)

    def _extend_lease(self, ttl: timedelta, *, only_longer: bool = False, by: Store | None = None) -> None:
        asked_at = self._clock.monotonic()
        ends, trusted_until = _end_times(asked_at, ttl)
        if only_longer and ends <= self._ends:
            return
        if trusted_until < self._trusted_until:
            # The lease may become shorter even if the answer is lost.
            self._trusted_until = trusted_until
            self.register(self._backend.watch_lease)
        if not self._backend.extend_lock(self, ttl, by=by):
            self.mark_lost("another process has it, or it had run out")
            raise self._loss_error()
        self._ends, self._trusted_until = ends, trusted_until

    @property
    def ends_with_its_owner(self) -> bool:
        """Whether the lock is freed with its owner; with ``renew=False`` it ends after its TTL, and not before."""
        return self.renew or self._ttl is None

    def thread_ended(self) -> None:
        """Free the lock because the thread to which it is bound has ended."""
        if not self.released and self.ends_with_its_owner and self.trusted:
            submit_drop(lambda: self.abandon("the thread that acquired it ended without releasing it"))

    def renew_when_due(self, store: Store | None = None) -> float:
        """Renew the lease if that is due; return the seconds until the next step. For the heartbeat; never raises."""
        if self._ttl is None or self.released or not self.renew:
            return NOTHING_DUE if self._ttl is None else self._ttl.total_seconds()
        length = self._ttl.total_seconds()
        wait = self._ends - self._clock.monotonic() - length * (1 - 1 / RENEWALS)
        if wait > 0:
            return wait
        if self._thread is not None and not self._thread.is_alive():
            self.thread_ended()
            return length
        retry_in = max(SOONEST, min(1.0, length / 20))
        if not self._asking.acquire(blocking=False):
            return retry_in  # a caller is extending it, and may hang; other leases must not wait for that
        try:
            self._extend_lease(self._ttl, only_longer=True, by=store)
        except LeaseLost:
            self._forget_lease()
        except StoreError as error:
            _log.debug("the lock %r could not be renewed, and will be tried again: %s", self.name, error)
            return retry_in
        finally:
            self._asking.release()
        return length / RENEWALS

    # --- async twins --------------------------------------------------------------------------------------------------

    async def arelease(self) -> None:
        """Do what ``release`` does without blocking the event loop."""
        self.require_holder()
        self.end()
        await call_surely(self._free_in_store)

    @twin(extend, on_worker)
    def aextend(self) -> None:
        """Do what ``extend`` does without blocking the event loop."""

    @twin(reacquire, on_worker)
    def areacquire(self) -> None:
        """Do what ``reacquire`` does without blocking the event loop."""

    @twin(owned, on_worker)
    def aowned(self) -> None:
        """Do what ``owned`` does without blocking the event loop."""

    def __dir__(self) -> list[str]:
        own = (name for name in super().__dir__() if not name.startswith("_") or name.startswith("__"))
        return sorted(set(own) - _OF_THE_BACKEND)

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost.is_set() else "held"
        return f"<Lease {self.name!r} token={self.token} {state}>"


def _end_times(asked_at: float, ttl: timedelta | None) -> tuple[float, float]:
    """Return the earliest end of a lease, and until when it is trusted."""
    if ttl is None:
        return float("inf"), float("inf")
    length = ttl.total_seconds()
    return asked_at + length, asked_at + length * (1 - UNTRUSTED_SHARE)
