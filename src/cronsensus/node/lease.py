"""A node's own view of its session's lease: when to stop trusting it. Floor 4.

The store decides whether a session lives. A node cannot ask it all the time, so it trusts its lease for a while after
each answer, counted from *before* the question was asked and by the monotonic clock, less a margin (River's trust
window). Local time may only end the trust early, never lengthen it. A process that was frozen finds its trust gone
when it wakes.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from cronsensus.clock import Clock

IDLE_LEASE = timedelta(seconds=600)
"""The lease of a session that holds nothing; see ADR 4."""
MARGIN = 0.1
"""Share of a lease that is not trusted: room for the stop to take effect before another node may begin."""


class SessionLease:
    """One session's lease as this node sees it. Safe to share between threads.

    Attributes:
        changing: held while the lease changes between long (idle) and short (working), so that the two answers cannot
            cross.
    """

    def __init__(self, session: str, clock: Clock) -> None:
        self.session = session
        self.changing = threading.Lock()
        self._clock = clock
        self._lock = threading.Lock()
        self._trusted_until = -1.0
        self._lost = False

    def confirm(self, asked_at: float, lease: timedelta) -> None:
        """Note that a question asked at ``asked_at`` was answered: the lease is ``lease`` long from then, or longer."""
        seconds = lease.total_seconds()
        with self._lock:
            self._trusted_until = asked_at + seconds * (1 - MARGIN)

    def shorten(self, asked_at: float, lease: timedelta) -> None:
        """Note that the lease may have been set to ``lease`` at ``asked_at`` or later: trust it no longer than that."""
        with self._lock:
            self._trusted_until = min(self._trusted_until, asked_at + lease.total_seconds() * (1 - MARGIN))

    def lose(self) -> None:
        """Note that the session is dead for good."""
        with self._lock:
            self._lost = True

    @property
    def lost(self) -> bool:
        """Whether the store said that the session is dead."""
        with self._lock:
            return self._lost

    @property
    def trusted(self) -> bool:
        """Whether work may be started and results believed in."""
        with self._lock:
            return not self._lost and self._clock.monotonic() < self._trusted_until

    @property
    def trusted_for(self) -> float:
        """Return the seconds of trust left; zero or less when there is none."""
        with self._lock:
            return -1.0 if self._lost else self._trusted_until - self._clock.monotonic()
