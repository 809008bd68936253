"""Tell of dead sessions whose runs nobody can take over, because another transaction holds their rows.

A node that stands still in a transaction of the store's own is ended by the server soon. One that is the user's own
(``run.complete_in``) is the user's: it may stand still for as long as the server lets it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cronsensus.clock import SystemClock
from cronsensus.logger import Logger

_log = Logger("cronsensus.stores")
_CLOCK = SystemClock()

TOLD_AFTER = 30.0
"""Seconds of such a state after which it is told, and …"""
TOLD_EVERY = 600.0
MOST = 1000


class HeldUp:
    """What one handle has seen of it. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, tuple[float, float]] = {}
        """When each was seen for the first time and the last time."""
        self._told: dict[str, float] = {}

    def seen(self, session: str, runs: Sequence[int]) -> None:
        """Take note that these runs of a dead session could not be locked, and tell it from time to time."""
        now = _CLOCK.monotonic()
        with self._lock:
            if len(self._since) > MOST:
                self._since.clear()
                self._told.clear()
            since, last = self._since.get(session, (now, now))
            if now - last > TOLD_AFTER:
                since = now
            self._since[session] = (since, now)
            told = self._told.get(session)
            if now - since < TOLD_AFTER or (told is not None and now - told < TOLD_EVERY):
                return
            self._told[session] = now
        _log.warning(
            "session %s is dead, and for %.0f s run %s of it cannot be taken over: a transaction that is still open "
            "holds it, such as one with run.complete_in() that was neither committed nor rolled back. End it: look for "
            "transactions that are idle in pg_stat_activity, or in information_schema.innodb_trx",
            session, now - since, ", ".join(map(str, runs[:10])),
        )  # fmt: skip
