"""A thread with a connection of its own that renews all sessions of this process in a store, and their locks.

::

    Heartbeat ──▶ SessionRenewer of the node ───────────────────▶ store.renew
              ├─▶ SessionHost of the locks ──▶ SessionRenewer ──▶ store.renew, store.extend for each lock
              └─▶ SessionHost of guarded calls ─▶ SessionRenewer ▶ store.renew

No job, event loop or pool can starve it. Each store has a heartbeat of its own, so a store that hangs costs no lease in
another store. Within a store sessions are renewed first, and again between two of many locks, because a lost session
loses everything that it holds.

A verb that may wait for locked rows (such as recording a result) has no place here: it would delay all renewals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Protocol

from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

SHORTEST_WAIT = 0.05
LONGEST_WAIT = 3600.0
BUG_PAUSE = 1.0
SESSIONS_EVERY = 0.1
"""Seconds of extending locks after which sessions are checked again."""


class Resource(Protocol):
    """A lock, or another resource of a session that has a renewal of its own."""

    session: str

    def renew_when_due(self, store: Store) -> float:
        """Extend it if it is time to; return the seconds until the next time. Never raises."""

    def mark_lost(self, why: str) -> None:
        """End it, because the session is over."""


class Member(Protocol):
    """The owner of a session that is to be renewed."""

    def renew(self, store: Store) -> float:
        """Renew the session if it is time to; return the seconds until the next time."""

    def list_resources(self) -> Collection[Resource]:
        """Return the session's resources that have a renewal of their own."""


class Heartbeat:
    """Renews while it has members. Safe to share between threads; not for a forked child."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Open a sibling of ``store`` for as long as there are members; nothing is opened yet."""
        self._given = store
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = Event()
        self._members: dict[Member, None] = {}
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._registered: str | None = None
        self._anew = False
        self._beats_at = float("inf")
        self._soonest = LONGEST_WAIT
        """The shortest ``beat_in`` since the last beat."""

    def add_member(self, member: Member) -> None:
        """Renew the session of ``member`` from now on."""
        with self._lock:
            self._members[member] = None
            if self._thread is None:
                self._beats_at, self._soonest = float("inf"), LONGEST_WAIT
                store = self._open_handle()
                thread = threading.Thread(
                    target=self._beat_once, args=(store,), name="cronsensus-heartbeat", daemon=True
                )
                try:
                    thread.start()
                except BaseException:
                    del self._members[member]
                    raise
                self._thread, self._store = thread, store
        self._wake.set()

    def remove_member(self, member: Member) -> Callable[[float], None]:
        """Stop renewing the session of ``member``; without members the thread ends.

        Returns a function that waits for that end, for at most so many seconds, because a verb may hang.
        """
        with self._lock:
            self._members.pop(member, None)
            thread, store = self._thread, self._store
            if self._members or thread is None or store is None:
                return _wait_for_nothing
            self._thread = self._store = None
        self._wake.set()

        def ended(within: float) -> None:
            if thread is not threading.current_thread():
                thread.join(within)
            store.close()

        return ended

    def register_presence(self, session: str) -> None:
        """Show a sign of life of this session, if the store supports it."""
        with self._lock:
            self._registered = session
            if self._store is not None:
                self._store.register_presence(session)

    def withdraw_presence(self, session: str) -> None:
        """Stop showing the sign of life of a session that has ended, even if this process holds others."""
        with self._lock:
            if self._registered == session:
                self._registered, self._anew = None, True

    def wake_thread(self) -> None:
        """Renew what is due now."""
        self._wake.set()

    def beat_within(self, seconds: float) -> None:
        """Beat in ``seconds`` at the latest. The thread is woken only if it would sleep for longer."""
        at = self._clock.monotonic() + seconds
        with self._lock:
            soon = at < self._beats_at
            if soon:
                self._beats_at = at
        if soon:
            self._wake.set()

    def beat_in(self, seconds: float) -> None:
        """Beat in ``seconds`` at the latest, and as soon again after the next beat.

        So a lock that is acquired and released all the time need not wake the thread each time.
        """
        with self._lock:
            at = self._clock.monotonic() + seconds
            self._soonest = min(self._soonest, seconds)
            soon = at < self._beats_at
            if soon:
                self._beats_at = at
        if soon:
            self._wake.set()

    def renew_due(self, store: Store) -> float:
        """Renew what is due; return the seconds until the next beat."""
        with self._lock:
            members = list(self._members)
            # A resource that is added from here on wakes this thread, or it would be renewed too late.
            self._beats_at = float("inf")
            soonest, self._soonest = self._soonest, LONGEST_WAIT
        next_at = self._clock.monotonic() + soonest

        def renew_sessions() -> float:
            for member in members:
                wait = _call_guarded(member.renew, store)
                at[member] = self._clock.monotonic() + wait
            return self._clock.monotonic()

        at: dict[Member, float] = {}
        renewed_at = renew_sessions()
        for member in members:
            for resource in member.list_resources():
                wait = _call_guarded(resource.renew_when_due, store)
                now = self._clock.monotonic()
                next_at = min(next_at, now + wait)
                if now - renewed_at >= SESSIONS_EVERY:
                    renewed_at = renew_sessions()
        return max(SHORTEST_WAIT, min([next_at, *at.values()]) - self._clock.monotonic())

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _beat_once(self, store: Store) -> None:
        try:
            while self._goes_on():
                store = self._refresh_handle(store)
                wait = _call_guarded(self.renew_due, store)
                with self._lock:
                    self._beats_at = self._clock.monotonic() + wait
                self._wake.wait(wait)
                self._wake.clear()
        finally:
            store.close()

    def _goes_on(self) -> bool:
        with self._lock:
            return self._thread is threading.current_thread()

    def _refresh_handle(self, store: Store) -> Store:
        """Return a new handle if a connection of this one still shows a sign of life of a session that has ended."""
        with self._lock:
            if not self._anew or self._thread is not threading.current_thread():
                return store
            self._anew = False
            new_handle = self._store = self._open_handle()
        store.close()
        return new_handle

    def _open_handle(self) -> Store:
        store = self._given.sibling()
        self._anew = False
        if self._registered is not None:
            store.register_presence(self._registered)
        return store


def _call_guarded(act: Callable[[Store], float], store: Store) -> float:
    """Call ``act``; an unexpected error in it must not keep the thread from the other leases."""
    try:
        return act(store)
    except Exception:  # noqa: BLE001 - logged
        _log.aside.exception("a mistake in cronsensus; please report it. Leases are renewed all the same")
        return BUG_PAUSE


def _wait_for_nothing(within: float) -> None:
    """Wait for nothing."""
