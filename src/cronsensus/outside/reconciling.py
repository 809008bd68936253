"""Reconcile the claims that the store lists for this process with those that calls hold.

A store that loses its last moment (a failover, a restart from a snapshot) may list a key as *running* after it had
accepted its end. As long as this process renews its session, all calls of that key would wait. So the list in the
answer to each renewal is compared, as in a node. The second list in a row
with a claim that no call holds, requested after the first was compared, shows that the store forgot its end. The end is
recorded again; if it is not known, the claim is released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from cronsensus.errors import StoreError
from cronsensus.membership.lease import LeaseRequest
from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim, Settled
from cronsensus.model.states import State
from cronsensus.model.step import GiveBack, Step
from cronsensus.node.accepted_ends import AcceptedEnds, Key
from cronsensus.outside.owned_claim import uncounted_end
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.outside")


class Reconciliation:
    """Compares the store's list with the claims of calls. Safe to share between threads."""

    def __init__(
        self,
        clock: Clock,
        store: Store,
        held: Callable[[], Collection[Key] | None],
        *,
        call_later: Callable[[Callable[[], object]], object],
    ) -> None:
        """Compare the claims that ``held`` returns.

        Args:
            clock: for the order of requests and answers.
            store: where forgotten ends are recorded again.
            held: returns the claims that calls hold; ``None`` while a call acquires one.
            call_later: calls a function on a thread that may wait for the store.
        """
        self._clock = clock
        self._store = store
        self._held = held
        self._call_later = call_later
        self._lock = threading.Lock()
        self._accepted = AcceptedEnds(clock)
        self._unknown: set[Key] = set()
        """The listed claims that no call held at the last comparison."""
        self._compared_at = -1e9

    def note_end(self, claim: Claim, end: End, *, committed: bool) -> None:
        """Record an end that the store has accepted; ``committed``: in the transaction of the function."""
        with self._lock:
            # A store that forgot the end has also forgotten the effects committed with it, so the key is free.
            self._accepted.remember_end((claim.id, claim.token), GiveBack(claim=claim) if committed else end)

    def compare_listed(self, session: str, runs: Collection[Key], asked: LeaseRequest) -> None:
        """Compare the runs that a renewal of ``session`` listed. Does not call the store."""
        held = self._held()
        with self._lock:
            unknown = set() if held is None else {key for key in runs if key not in held}
            forgotten = unknown & self._unknown if asked.at > self._compared_at else set()
            self._unknown, self._compared_at = unknown - forgotten, self._clock.monotonic()
            ends = {key: self._accepted.pop_end(key) for key in sorted(forgotten)}
        resent = [end if isinstance(end, End) else uncounted_end(*key, session) for key, end in ends.items()]
        if resent:
            _log.aside.warning("the store forgot how %d calls ended: their ends are recorded again", len(resent))
            self._call_later(lambda: self._resend_ends(session, resent, ends))

    def _resend_ends(self, session: str, resent: list[End], ends: dict[Key, End | GiveBack | None]) -> None:
        settled: tuple[Settled, ...] = ()
        try:
            settled = self._store.step(session, Step(ends=tuple(resent))).settled
        except StoreError as error:
            _log.debug("ends that the store forgot could not be recorded again yet: %s", error)
        with self._lock:
            answered = {(answer.id, answer.token) for answer in settled}
            for key, end in ends.items():
                if isinstance(end, End) and (end.state is not State.PENDING or key not in answered):
                    self._accepted.remember_end(key, end)
