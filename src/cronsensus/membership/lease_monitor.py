"""Notices when leases can be trusted no longer, on a thread that asks no store."""

from __future__ import annotations

from typing import Protocol

from cronsensus.clock import Clock
from cronsensus.membership.timer import Timer

SOONEST = 0.02


class Trusted(Protocol):
    """What is watched."""

    @property
    def expires_in(self) -> float:
        """Return the seconds until it can be trusted no longer."""

    def expire(self) -> None:
        """Be told that its time is over."""


class LeaseMonitor:
    """One deadline for all that is held in one place, the earliest of theirs. Safe to share between threads.

    It takes no lock, because a lock is taken and released thousands of times for each time that one is lost. Whoever
    begins to be watched is put down first and then looks when the next look is; a look says that there is none any
    more, and then looks who is put down. So nobody is overlooked, and now and then there is a look too many.
    """

    def __init__(self, clock: Clock) -> None:
        """LeaseMonitor by ``clock``; a thread is started when there is something to watch."""
        self._clock = clock
        self._watched: dict[Trusted, None] = {}
        self._looks_at = float("inf")
        self.timer = Timer(clock)

    def begin(self, one: Trusted) -> None:
        """LeaseMonitor this; or, if it is watched, take note that its time may be shorter now."""
        self._watched[one] = None
        at = self._clock.monotonic() + one.expires_in
        if at < self._looks_at:
            self._look_at(at)

    def end(self, one: Trusted) -> None:
        """LeaseMonitor this no more."""
        self._watched.pop(one, None)

    def close(self) -> None:
        """End the thread."""
        self.timer.close()

    def _look_at(self, at: float) -> None:
        self._looks_at = at
        self.timer.after(max(SOONEST, at - self._clock.monotonic()), self._look)

    def _look(self) -> None:
        self._looks_at = next_at = float("inf")
        for one in list(self._watched):
            left = one.expires_in
            if left > 0:
                next_at = min(next_at, self._clock.monotonic() + left)
            elif self._watched.pop(one, self) is None:
                one.expire()
        if next_at < self._looks_at:
            self._look_at(next_at)
