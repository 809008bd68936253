"""A node's own view of its session's lease: until when it may trust the lease (the trust window).

The store decides whether a session is alive. A node cannot read that all the time, so it trusts its lease for a while
after each answer, counted from *before* the request was sent, by the monotonic clock, less a margin. Local time may
only end the trust early, never lengthen it. A process that was frozen finds its trust gone when it wakes.

Answers may overtake each other: a renewal of an idle session sets a long lease, a claim then sets a short one, and the
answer to the renewal arrives last. So a long lease counts only if no claim was answered since the renewal was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from cronsensus.timing.clock import Clock

IDLE_LEASE = timedelta(seconds=600)
"""The lease of a session that holds nothing; see ADR 4."""
UNTRUSTED_SHARE = 0.1
"""Share of a lease that is not trusted, so that a stop takes effect before another node may start."""


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A request that sets the lease: when it was sent (monotonic seconds), after how many claims."""

    at: float
    claims: int


class SessionLease:
    """A session's lease, as this node knows it. Safe to share between threads.

    ``on_lease_shortened`` is called when the lease was made shorter, by the thread that did so. Otherwise a monitor
    would check it too late.
    """

    def __init__(self, session: str, clock: Clock, on_lease_shortened: Callable[[], None] = lambda: None) -> None:
        self.session = session
        self._clock = clock
        self._on_lease_shortened = on_lease_shortened
        self._lock = threading.Lock()
        self._length = timedelta(0)
        self._trusted_until = -1.0
        self._claims = 0
        self._lost = False

    def note_request(self) -> LeaseRequest:
        """Record that a request is about to be sent."""
        with self._lock:
            return LeaseRequest(self._clock.monotonic(), self._claims)

    def confirm_renewal(self, request: LeaseRequest, lease: timedelta) -> None:
        """Record that a renewal set the lease to ``lease``."""
        until = _trusted_until(request.at, lease)
        with self._lock:
            if request.claims == self._claims:
                self._trusted_until, self._length = until, lease
            elif lease <= self._length:
                self._trusted_until = max(self._trusted_until, until)

    def confirm_claim(self, request: LeaseRequest, lease: timedelta) -> None:
        """Record that a claim set the lease to ``lease``."""
        until = _trusted_until(request.at, lease)
        with self._lock:
            self._claims += 1
            shorter = lease < self._length
            self._trusted_until = until if shorter else max(self._trusted_until, until)
            self._length = lease
        if shorter:
            self._on_lease_shortened()

    def shorten_trust(self, request: LeaseRequest, lease: timedelta) -> None:
        """Record that a claim may have set the lease to ``lease``, then or later: trust it for no longer."""
        until = _trusted_until(request.at, lease)
        with self._lock:
            self._claims += 1
            shorter = lease < self._length
            if shorter:
                self._trusted_until, self._length = min(self._trusted_until, until), lease
        if shorter:
            self._on_lease_shortened()

    def mark_lost(self) -> None:
        """Record that the session is dead for good."""
        with self._lock:
            self._lost = True

    @property
    def length(self) -> timedelta:
        """Return the length of the lease when it was last set, as far as this node knows."""
        with self._lock:
            return self._length

    @property
    def is_lost(self) -> bool:
        """Whether the store answered that the session is dead."""
        with self._lock:
            return self._lost

    @property
    def is_trusted(self) -> bool:
        """Whether runs may be started and results are expected to be accepted."""
        with self._lock:
            return not self._lost and self._clock.monotonic() < self._trusted_until

    @property
    def trusted_for(self) -> float:
        """Return the seconds of trust left; zero or less when there is none."""
        with self._lock:
            return -1.0 if self._lost else self._trusted_until - self._clock.monotonic()


def _trusted_until(sent_at: float, lease: timedelta) -> float:
    return sent_at + lease.total_seconds() * (1 - UNTRUSTED_SHARE)
