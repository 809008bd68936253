"""Notices when a lease can be trusted no longer, on a thread that asks no store: of sessions, locks and claims.

What asks the store may hang in it, and would notice too late.
"""

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

    def expire(self) -> float | None:
        """Be told that its time is over; return the seconds until it is to be looked at again, ``None``: never."""


class LeaseMonitor:
    """One deadline for all that is held in one place, the earliest of theirs. Safe to share between threads.

    It takes no lock, because a lock is taken and released thousands of times for each time that one is lost. What
    begins to be watched is registered first, and then the time of the next look is read. A look forgets that time
    first, and then reads what is registered. So no entry is missed, and now and then a look finds nothing.
    """

    def __init__(self, clock: Clock, timer: Timer | None = None) -> None:
        """Watch by ``clock``, with a ``timer`` that others use too, or one of its own."""
        self._clock = clock
        self._watched: dict[Trusted, float] = {}
        """Each with the time before which it is not to be told again."""
        self._looks_at = float("inf")
        self.timer = timer or Timer(clock)

    def begin(self, one: Trusted) -> None:
        """Watch this; or, if it is watched, take note that its time may be shorter now."""
        self._watched[one] = 0.0
        at = self._clock.monotonic() + one.expires_in
        if at < self._looks_at:
            self._look_at(at)

    def end(self, one: Trusted) -> None:
        """Watch this no more."""
        self._watched.pop(one, None)

    def close(self) -> None:
        """Watch nothing more."""
        self._watched.clear()
        self.timer.close()

    def _look_at(self, at: float) -> None:
        self._looks_at = at
        self.timer.after(max(SOONEST, at - self._clock.monotonic()), self._look)

    def _look(self) -> None:
        self._looks_at = next_at = float("inf")
        for one, not_before in list(self._watched.items()):
            now = self._clock.monotonic()
            at = max(now + one.expires_in, not_before)
            if at <= now and self._watched.pop(one, None) is not None:
                again = one.expire()
                if again is None:
                    continue
                at = self._watched[one] = now + again
            next_at = min(next_at, at)
        if next_at < self._looks_at:
            self._look_at(next_at)
