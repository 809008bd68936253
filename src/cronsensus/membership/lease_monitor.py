"""Notices when the lease of a session, lock or claim can no longer be trusted, on a thread that calls no store.

A thread that calls a store may hang there, and would notice too late.
"""

from __future__ import annotations

from typing import Protocol

from cronsensus.membership.timer import Timer
from cronsensus.timing.clock import Clock

SOONEST = 0.02


class Trusted(Protocol):
    """A lease that is monitored."""

    @property
    def expires_in(self) -> float:
        """Return the seconds until it can no longer be trusted."""

    def expire(self) -> float | None:
        """End the lease, which has run out; return the seconds until the next check, or ``None`` for none."""


class LeaseMonitor:
    """A single deadline for many leases, the earliest of theirs. Safe to share between threads.

    It takes no lock, because leases begin and end thousands of times for each one that is lost. ``monitor_lease``
    registers an entry first and then reads the time of the next check. A check clears that time first and then reads
    the entries. So no entry is missed; now and then a check finds nothing.

    A deadline that an earlier one has replaced still checks when it comes, because two threads may have planned at the
    same instant. But it plans no further deadline: else each run of an idle node would leave a chain of checks.
    """

    def __init__(self, clock: Clock, timer: Timer | None = None) -> None:
        """Monitor by ``clock``, with a shared ``timer`` or a new one."""
        self._clock = clock
        self._watched: dict[Trusted, float] = {}
        """Each with the time before which it is not expired again."""
        self._looks_at = float("inf")
        self.timer = Timer(clock) if timer is None else timer  # not ``or``: an empty timer is false

    def monitor_lease(self, lease: Trusted) -> None:
        """Monitor this lease, or check it anew because it may end earlier now."""
        self._watched[lease] = 0.0
        at = self._clock.monotonic() + lease.expires_in
        if at < self._looks_at:
            self._check_one(at)

    def drop_lease(self, lease: Trusted) -> None:
        """Stop monitoring this lease."""
        self._watched.pop(lease, None)

    def close(self) -> None:
        """Stop monitoring all leases."""
        self._watched.clear()
        self.timer.close()

    def _check_one(self, at: float) -> None:
        # The deadline first: a signal handler may raise in between, and a time without a deadline would never come.
        self.timer.call_after(max(SOONEST, at - self._clock.monotonic()), lambda: self._check_lease(at))
        self._looks_at = at

    def _check_lease(self, planned: float | None = None) -> None:
        if planned is None or planned == self._looks_at:
            self._looks_at = float("inf")
        next_at = float("inf")
        for lease, not_before in list(self._watched.items()):
            now = self._clock.monotonic()
            at = max(now + lease.expires_in, not_before)
            if at <= now and self._watched.pop(lease, None) is not None:
                seconds = lease.expire()
                if seconds is None:
                    continue
                at = self._watched[lease] = now + seconds
            next_at = min(next_at, at)
        if next_at < self._looks_at:
            self._check_one(next_at)
