"""Take over the runs of processes that died.

A process counts as dead as for a node (``plan_upkeep`` in ``node/decide.py``): it ran on this host and is gone, its
sign of life is missing in two looks, or its lease has run out. The thread looks only after something was acquired here
or elsewhere, and for as long as others hold runs or something waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from cronsensus.errors import LeaseLost, StoreError
from cronsensus.membership.liveness import Absences
from cronsensus.model.session import SessionView
from cronsensus.outside.claims import OutsideClaims
from cronsensus.outside.owned_claim import OwnedClaim, Ticket
from cronsensus.outside.pruning import Pruning
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.outside")

LOOK_INTERVAL = 1.0
"""Seconds between two looks while others hold runs."""
PROCESS_CHECK_INTERVAL = 0.2
"""Seconds between two looks at the processes of this host, which do not call the store."""
MOST_CLAIMS = 5
"""Most claims in one step, so that other processes get their part."""


class Leftovers:
    """The thread that looks for dead processes; started when it is first needed."""

    def __init__(
        self,
        claims: OutsideClaims,
        functions: Callable[[], Collection[str]],
        take_over: Callable[[OwnedClaim, Ticket], None],
        pruning: Pruning,
    ) -> None:
        """Start nothing yet.

        Args:
            claims: of this process.
            functions: returns the names of the functions that this process can run.
            take_over: called with each claim that was taken over.
            pruning: runs between two looks, when it is due.
        """
        self._claims = claims
        self._functions = functions
        self._take_over = take_over
        self._wake = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._absences = Absences()
        self._others: tuple[SessionView, ...] = ()
        self._pruning = pruning

    def watch_soon(self) -> None:
        """Look soon, and for as long as other processes hold something."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_thread, name="cronsensus-leftovers", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run_thread(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            while not self._closed:
                try:
                    may_be_more = self._look_once()
                except (StoreError, LeaseLost) as error:
                    _log.debug("the runs of dead processes could not be looked for: %s", error)
                    may_be_more = True
                except Exception:  # noqa: BLE001 - logged; the thread has to go on
                    _log.exception("the runs of dead processes could not be looked for")
                    may_be_more = True
                if not may_be_more:
                    break
                self._wait_for_next()

    def _wait_for_next(self) -> None:
        """Wait for the next look; less, if a process of this host is gone meanwhile."""
        until = self._claims.clock.monotonic() + LOOK_INTERVAL
        while not self._closed and (seconds_left := until - self._claims.clock.monotonic()) > 0:
            self._wake.clear()
            self._wake.wait(min(seconds_left, PROCESS_CHECK_INTERVAL))
            if any(self._claims.is_gone(session) for session in self._others):
                return

    def _look_once(self) -> bool:
        """Look once; return whether there may be something to take over soon."""
        store, clock = self._claims.store, self._claims.clock
        asked_at = clock.monotonic()
        view = store.look(limit=1)
        received_at = clock.monotonic()
        self._absences = self._absences.update_absences(view, asked_at, received_at)
        self._others = tuple(holder for holder in view.holders if holder.id != self._claims.session)
        dead = [
            session.id
            for session in self._others
            if self._claims.is_gone(session) or self._absences.is_gone(session.id)
        ]
        overdue = any(session.expires_in.total_seconds() <= 0 for session in self._others)
        reclaimed = store.reclaim(dead) if dead or overdue else []
        has_backlog = view.backlog
        if (reclaimed or has_backlog) and (functions := self._functions()):
            for owned, ticket in self._claims.take_pending(functions, MOST_CLAIMS):
                self._take_over(owned, ticket)
        if self._pruning.is_due():
            self._pruning.prune()
        return bool(self._others or reclaimed or has_backlog)
