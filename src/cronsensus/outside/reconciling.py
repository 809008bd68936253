"""Reconcile the claims that the store lists for this process with those that calls hold.

A store that loses its last moment (a failover, a restart from a snapshot) may list a key as *running* after it had
accepted its end. As long as this process renews its session, all calls of that key would wait. So the list in the
answer to each renewal is compared, as in a node. A claim that no call holds, in two lists of which the second was asked
for after the first was compared, gets its end recorded again, or is given back if its end is not known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from cronsensus.errors import StoreError
from cronsensus.membership.lease import Asked
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
    """Compares the two. Safe to share between threads."""

    def __init__(
        self,
        clock: Clock,
        store: Store,
        held: Callable[[], Collection[Key] | None],
        *,
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        """Compare what calls hold.

        Args:
            clock: for the order of questions and answers.
            store: to tell it.
            held: gives the claims that calls hold; ``None`` while one of them asks for a key.
            later: does something on a thread that may wait for the store.
        """
        self._clock = clock
        self._store = store
        self._held = held
        self._later = later
        self._lock = threading.Lock()
        self._said = AcceptedEnds(clock)
        self._strange: set[Key] = set()
        self._looked_at = -1e9

    def note_end(self, claim: Claim, end: End, *, committed: bool) -> None:
        """Note an end that the store has accepted; ``committed``: in the transaction of the function."""
        with self._lock:
            # A store that forgot the end has also forgotten the effects committed with it, so the key is free.
            self._said.remember_end((claim.id, claim.token), GiveBack(claim=claim) if committed else end)

    def compare_listed(self, session: str, runs: Collection[Key], asked: Asked) -> None:
        """Compare what a renewal of ``session`` listed. Asks no store."""
        held = self._held()
        with self._lock:
            strange = set() if held is None else {key for key in runs if key not in held}
            forgotten = strange & self._strange if asked.at > self._looked_at else set()
            self._strange, self._looked_at = strange - forgotten, self._clock.monotonic()
            ends = {key: self._said.pop_end(key) for key in sorted(forgotten)}
        again = [end if isinstance(end, End) else uncounted_end(*key, session) for key, end in ends.items()]
        if again:
            _log.aside.warning("the store forgot how %d calls ended: it is told again", len(again))
            self._later(lambda: self._send_again(session, again, ends))

    def _send_again(self, session: str, again: list[End], ends: dict[Key, End | GiveBack | None]) -> None:
        settled: tuple[Settled, ...] = ()
        try:
            settled = self._store.step(session, Step(ends=tuple(again))).settled
        except StoreError as error:
            _log.debug("what the store forgot could not be told again yet: %s", error)
        with self._lock:
            answered = {(one.id, one.token) for one in settled}
            for key, end in ends.items():
                if isinstance(end, End) and (end.state is not State.PENDING or key not in answered):
                    self._said.remember_end(key, end)
