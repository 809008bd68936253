"""This process as a guest of a store: one session for all that it holds outside of a node.

A lock is held by a session, so that it ends with its process. A process may hold locks without being a node; and a
node's own session will not do, because it ends when the node drains, and its lease is as short as a takeover must be
quick. So what a process holds by itself has a session of its own, one for each store. It is opened when it is first
needed, kept by a thread with a connection of its own, and closed when nothing has needed it for a while. It also
notices, as a node does, that the store was emptied; see ``loss``.

::

    come() ──▶ session open    ──▶ keep(lock) ──▶ forget(lock) ──▶ nobody needs it for a while ──▶ closed
                      │                                                   │
                      │   the keeper's thread: renews the session every four minutes, and steps what is kept
                      └── the store says that it is dead: all that is kept is lost; the next one opens a new session
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Protocol

from cronsensus.clock import Clock
from cronsensus.errors import StoreEmptied, StoreError
from cronsensus.interrupts import Event
from cronsensus.logger import Logger
from cronsensus.membership.lease import IDLE_LEASE, Asked, SessionLease
from cronsensus.membership.leaving import within
from cronsensus.membership.liveness import own_start
from cronsensus.membership.loss import StoreWatch
from cronsensus.membership.renewer import AFTER_A_BUG, SOONEST, SessionRenewer
from cronsensus.model.ids import new_id
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.stores.base import Store
from cronsensus.stores.boot import host_identity

_log = Logger("cronsensus.node")

IDLE_FOR = 60.0
"""Seconds after which a session that nobody needs is closed."""
LONGEST_WAIT = 3600.0
KNOWS_AFTER = 1.0
"""Seconds after which a guest asks which store it is in; who comes and goes at once is spared a connection for that."""
ASK_AGAIN = 5.0
LEAVE_WITHIN = 3.0
"""Seconds that closing waits for the store to take back what was held …"""
JOIN = 1.0
"""… and for the thread that renewed it, which may be in the middle of a verb."""
_SHORT_LEASE = timedelta(seconds=10)


class Kept(Protocol):
    """Something that a session holds, and that has to be renewed."""

    session: str

    def step(self, store: Store) -> float:
        """Ask ``store`` what is due to be asked; return the seconds until there is something again. Never raises."""

    def lose(self, why: str) -> None:
        """Be told that the session is over."""


class SessionHost:
    """Holds one session at a time, while it is needed. Safe to share between threads; not for a forked child."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str,
        lease: timedelta = _SHORT_LEASE,
        stop: bool = False,
        on_listed: Callable[[str, Collection[tuple[int, int]], Asked], None] = lambda *_: None,
    ) -> None:
        """Make a guest of ``store``, of which it opens siblings; nothing is opened yet.

        Args:
            store: stays the caller's to close.
            clock: for waits and trust.
            name: for people.
            lease: of the session while it holds runs; one that holds only locks, or nothing, has a long one.
            stop: refuse all that comes once the store was emptied.
            on_listed: told, after each renewal, which runs the store believes the session to hold.
        """
        self._on_listed = on_listed
        self._short = lease
        self._given = store
        self._clock = clock
        self._name = name
        self._stop = stop
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._wake = Event()
        self._handles: tuple[Store, Store] | None = None
        self._keeper: SessionRenewer | None = None
        self._lease: SessionLease | None = None
        self._kept: dict[Kept, None] = {}
        self._present = 0
        self._needed_at = self._clock.monotonic()
        self._looks_at = float("inf")
        self._soonest = IDLE_FOR
        """The shortest ``first`` of what began to be kept since the thread's last look."""
        self._thread: threading.Thread | None = None
        self._loss = StoreWatch(name, stop=stop, wake=self._wake.set, subject="process")
        self._opened: tuple[float, datetime] | None = None
        """When the session was opened, on this process's clock and on the store's."""
        _all.add(self)

    @property
    def store(self) -> Store:
        """The handle for verbs of the caller's own threads."""
        handles = self._handles  # asked for with each verb, so without the mutex
        return (self._open() if handles is None else handles)[0]

    @property
    def idle(self) -> bool:
        """Whether nothing is held, and nobody is about to."""
        with self._lock:
            return not self._kept and not self._present

    def come(self) -> SessionLease:
        """Return the session, opened if there is none that can be trusted; it is not closed before ``go``.

        Raises:
            StoreEmptied: the store was emptied, and this guest stops then.
            StoreError: the store cannot be used now; there is nothing to go from.
        """
        self.refuse_if_emptied()
        with self._lock:
            self._present += 1
            lease = self._lease
        if lease is not None and lease.trusted:
            return lease
        try:
            return self._new_session()
        except BaseException:
            self.go()
            raise

    def go(self) -> None:
        """Need the session no more, but for what is kept."""
        with self._lock:
            self._present -= 1
            self._needed_at = self._clock.monotonic()

    def keep(self, kept: Kept, first: float) -> None:
        """Step this from now on, for the first time in ``first`` seconds."""
        with self._lock:
            self._kept[kept] = None
            at = self._clock.monotonic() + first
            self._soonest = min(self._soonest, first)
            soon = at < self._looks_at
            if soon:
                self._looks_at = at
        if soon:
            self._wake.set()

    def forget(self, kept: Kept) -> None:
        """Step this no more."""
        with self._lock:
            self._kept.pop(kept, None)
            self._needed_at = self._clock.monotonic()

    def mistrust(self, lease: SessionLease) -> None:
        """Be told by the store that a session is dead."""
        lease.lose()
        self._lose(lease, "its session was ended")

    def doubt(self) -> None:
        """Be told that the store does not know what it should: ask soon whether it knows the session."""
        with self._lock:
            keeper = self._keeper
        if keeper is not None:
            keeper.ask()
        self._wake.set()

    def trouble(self, error: StoreError) -> None:
        """Be told why the store could not be used: what it lacks may tell that it was emptied."""
        if self._loss.trouble(error):
            with self._lock:
                lease = self._lease
            if lease is not None:
                lease.lose()
                self._lose(lease, "the store was emptied")

    def refuse_if_emptied(self) -> None:
        """Raise if the store was emptied, and this guest stops then.

        Raises:
            StoreEmptied: so it is.
        """
        if self._loss.halted:
            raise StoreEmptied(
                "the store was emptied, or is another one than the one that this process knew, and "
                "on_store_loss='stop': this process takes no lock and begins no guarded call more. When the data is "
                "back, or is to begin anew, restart it"
            )

    def close(self) -> None:
        """Close the session, and with it free all that it holds. Idempotent."""
        with self._lock:
            lease, self._lease = self._lease, None
            self._keeper = None
            thread, self._thread = self._thread, None
            handles, self._handles = self._handles, None
            held = any(kept.session for kept in self._kept)
        self._wake.set()
        if lease is not None:
            self._lose(lease, "this process let go of its session")
        if handles is not None:
            if lease is not None:
                self._leave_soon(handles[0], lease, held=held)
            if thread is not None and thread is not threading.current_thread():
                thread.join(JOIN)
            for handle in handles:
                handle.close()

    # --- the session --------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Store, Store]:
        with self._lock:
            if self._handles is None:
                self._handles = (self._given.sibling(), self._given.sibling())
            return self._handles

    def _new_session(self) -> SessionLease:
        with self._opening:
            lease = self._lease
            if lease is not None and lease.trusted:
                return lease
            store, keepers_own = self._open()
            spec = self._spec()
            lease = SessionLease(spec.id, self._clock)
            asked = lease.ask()
            try:
                opened_at = store.open_session(spec, lease=IDLE_LEASE)
                lease.confirm(asked, IDLE_LEASE)
                if self._stop:
                    self._know(store, spec.id, opened_at)
            except StoreError as error:
                self.trouble(error)
                self.refuse_if_emptied()
                raise
            self.refuse_if_emptied()
            self._opened = self._clock.monotonic(), opened_at
            with self._lock:
                old, self._lease = self._lease, lease
                if self._keeper is None:
                    self._keeper = SessionRenewer(
                        keepers_own,
                        self._clock,
                        lease=self._short,
                        holds=lambda: False,
                        on_renewal=self._on_renewal,
                        on_trust_lost=self._on_trust_lost,
                        on_trouble=self.trouble,
                    )
                self._keeper.keep(lease)
                if self._thread is None:
                    self._looks_at, self._soonest = float("inf"), IDLE_FOR
                    self._thread = threading.Thread(target=self._turn, name="cronsensus-guest", daemon=True)
                    self._thread.start()
            self._wake.set()
            if old is not None:
                self._lose(old, "its session could not be renewed in time")
            return lease

    def _spec(self) -> SessionSpec:
        from importlib.metadata import version

        pid = os.getpid()
        return SessionSpec(
            id=new_id(),
            node=self._name,
            host=host_identity(),
            pid=pid,
            pid_started=own_start(),
            release="",
            concurrency=0,
            version=version("cronsensus"),
        )

    def _leave_soon(self, store: Store, lease: SessionLease, *, held: bool) -> None:
        if not within(LEAVE_WITHIN, lambda: self._leave(store, lease, held=held)) and held:
            _log.warning("the store does not answer: what this process held is free when its lease ends")

    def _leave(self, store: Store, lease: SessionLease, *, held: bool) -> None:
        try:
            store.close_session(lease.session)
        except StoreError as error:
            if held:
                _log.warning(
                    "what this process held could not be given back, it is free when its lease ends: %s", error
                )
            else:
                _log.debug("a session that held nothing could not be closed, it ends with its lease: %s", error)

    def _know(self, store: Store, session: str, opened_at: datetime) -> None:
        """Ask which store a session was opened in; leave one that is to be left alone.

        Raises:
            StoreError: it cannot be asked.
        """
        self._loss.opened(store, session, opened_at)
        if self._loss.halted:
            with contextlib.suppress(StoreError):
                store.close_session(session)
                self._loss.tell(store)

    def _on_renewal(self, lease: SessionLease, renewal: Renewal, asked: Asked) -> None:
        self._loss.renewed(lease.session, renewal)
        if not renewal.alive:
            self._lose(lease, "its session was ended")
        elif renewal.held is not None:
            self._on_listed(lease.session, renewal.held, asked)

    def _on_trust_lost(self, lease: SessionLease) -> None:
        self._lose(lease, "its session could not be renewed in time")

    def _lose(self, lease: SessionLease, why: str) -> None:
        with self._lock:
            gone = [kept for kept in self._kept if kept.session == lease.session]
            for kept in gone:
                del self._kept[kept]
        for kept in gone:
            kept.lose(why)

    # --- the keeper's thread ------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        while not self._ends():
            try:
                wait = self._step()
            except Exception:  # noqa: BLE001 - logged
                # The thread outlives any mistake of ours: without it the locks would run out.
                _log.aside.exception("a mistake in cronsensus; please report it. What is held is kept")
                wait = AFTER_A_BUG
            with self._lock:
                self._looks_at = self._clock.monotonic() + wait
            self._wake.wait(wait)
            self._wake.clear()

    def _step(self) -> float:
        """Renew what is due; return the seconds until the next look."""
        with self._lock:
            kept, keeper, handles = list(self._kept), self._keeper, self._handles
            # What begins to be kept from here on wakes this thread, or it would be seen too late.
            self._looks_at = float("inf")
            # What came and went will mostly come again. The next look is as soon as that will want it, so that it need
            # not wake this thread: a lock that is taken and released all the time would do so each time.
            soonest, self._soonest = self._soonest, IDLE_FOR
        if keeper is None or handles is None:
            return SOONEST
        waits = [LONGEST_WAIT if kept else soonest]
        # Locks first: a session's lease is the longer one.
        waits += [one.step(handles[1]) for one in kept]
        waits += [keeper.step(), self._look_at_store(handles[1])]
        return max(SOONEST, min(waits))

    def _look_at_store(self, store: Store) -> float:
        """Learn which store it is, and write down what was found; return the seconds until that is due."""
        with self._lock:
            lease, opened = self._lease, self._opened
        try:
            if self._loss.has_news:
                self._loss.tell(store)
            if lease is None or opened is None or lease.lost or self._loss.session == lease.session:
                return LONGEST_WAIT
            left = opened[0] + KNOWS_AFTER - self._clock.monotonic()
            if left > 0:
                return left
            self._know(store, lease.session, opened[1])
        except StoreError as error:
            self.trouble(error)
            _log.debug("which store this is could not be asked yet: %s", error)
            return ASK_AGAIN
        return SOONEST if self._loss.has_news else LONGEST_WAIT

    def _ends(self) -> bool:
        """Whether the thread is to end; it is, with the session, when nobody has needed it for a while."""
        with self._lock:
            if self._thread is not threading.current_thread():
                return True
            idle = not self._kept and not self._present
            if not idle or self._clock.monotonic() - self._needed_at < IDLE_FOR:
                return False
            lease, self._lease = self._lease, None
            self._thread = None
            handles = self._handles
        if lease is not None and handles is not None:
            self._leave(handles[1], lease, held=False)
        return True


_all: weakref.WeakSet[SessionHost] = weakref.WeakSet()
_of_the_parent: list[object] = []
"""What a fork brought into this process and only the parent may close."""


def _at_exit() -> None:
    for guest in list(_all):
        guest.close()


def _in_child() -> None:
    _of_the_parent.extend(_all)
    _all.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
