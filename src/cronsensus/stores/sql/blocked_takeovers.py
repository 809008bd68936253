"""Report dead sessions whose runs cannot be taken over, because an open transaction has locked their rows.

The server soon ends a stalled transaction of the store itself. A transaction of the user (``run.complete_in``) is not
ended by the store: it may stay open for as long as the server allows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.stores")
_CLOCK = SystemClock()

REPORT_AFTER = 30.0
"""Seconds for which a takeover is blocked before the first report."""
REPORT_EVERY = 600.0
MOST = 1000


class BlockedTakeovers:
    """The blocked takeovers that one handle has met. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, tuple[float, float]] = {}
        """When each session was met for the first time and for the last time."""
        self._reported: dict[str, float] = {}

    def report_blocked(self, session: str, runs: Sequence[int]) -> None:
        """Note that these runs of a dead session could not be locked; log it now and then while that lasts."""
        now = _CLOCK.monotonic()
        with self._lock:
            if len(self._since) > MOST:
                self._since.clear()
                self._reported.clear()
            since, last = self._since.get(session, (now, now))
            if now - last > REPORT_AFTER:
                since = now
            self._since[session] = (since, now)
            reported = self._reported.get(session)
            if now - since < REPORT_AFTER or (reported is not None and now - reported < REPORT_EVERY):
                return
            self._reported[session] = now
        _log.warning(
            "session %s is dead, and for %.0f s run %s of it cannot be taken over: a transaction that is still open "
            "holds it, such as one with run.complete_in() that was neither committed nor rolled back. End it: look for "
            "transactions that are idle in pg_stat_activity, or in information_schema.innodb_trx",
            session, now - since, ", ".join(map(str, runs[:10])),
        )  # fmt: skip
