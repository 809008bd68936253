"""What does a node do that stands far back in the line?

It rests: it sleeps through due times, as ``standing`` tells, and a hint makes it look only after those who are alert
have had the time to do what there is. What it does all the same costs the store nothing: it watches the processes of
its own host, because nobody on another host can tell that one of them is dead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cronsensus.clock import Clock
from cronsensus.model.session import SessionView
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.base import Store

HINTED = (0.05, 0.1)
"""Least and most seconds between a hint and the look of a resting node."""
NEWS = 60.0
"""Seconds between two readings of who else is on this host."""


class Resting:
    """The rest of one node; it ends with a look."""

    def __init__(
        self, store: Store, clock: Clock, settings: NodeSettings, *, evidence: Callable[[SessionView], bool]
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._evidence = evidence
        self._neighbours: dict[str, SessionView] = {}
        self._read_at = -1e9
        self._look_at: float | None = None
        self._watch_at = 0.0

    def begin(self, session: str, look_at: float, watch_from: float | None) -> float:
        """Rest until ``look_at``, and watch this host from ``watch_from`` on (monotonic seconds; ``None``: no need).

        Returns how long to sleep.
        """
        now = self._clock.monotonic()
        watch_at = look_at
        if watch_from is not None and self._settings.fast_evidence:
            watch_at = max(now, watch_from) + self._settings.watch
            if now - self._read_at > NEWS and watch_at < look_at:
                self._read_at = now
                self._neighbours = {one.id: one for one in self._store.sessions() if one.id != session}
        self._look_at, self._watch_at = look_at, watch_at
        return max(0.0, min(watch_at, look_at) - now)

    def end(self) -> None:
        """Look in the next round."""
        self._look_at = None

    def goes_on(self, session: str) -> float | None:
        """Return how long to go on resting; ``None``: it is time to look.

        A turn of the crank before the time that was asked for is a hint.
        """
        if self._look_at is None:
            return None
        now = self._clock.monotonic()
        if now < min(self._watch_at, self._look_at):
            self._look_at = min(self._look_at, now + _lot(session, now))
        elif now < self._look_at:
            if self._somebody_died():
                self._look_at = None
                return None
            self._watch_at = now + self._settings.watch
        if now >= self._look_at:
            self._look_at = None
            return None
        return min(self._watch_at, self._look_at) - now

    def _somebody_died(self) -> bool:
        """Whether the process of a session of this host is gone that was there when last asked."""
        dead = [one.id for one in self._neighbours.values() if self._evidence(one)]
        for one in dead:
            del self._neighbours[one]
        return bool(dead)


def _lot(session: str, now: float) -> float:
    """Return a moment after a hint: all get it at once, and need not all ask at once."""
    least, most = HINTED
    share = int.from_bytes(hashlib.blake2b(f"{session} {now:.3f}".encode(), digest_size=4).digest()) / 2**32
    return least + share * (most - least)
