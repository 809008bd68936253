"""A waiter for a lock decides when to try again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence

from cronsensus.membership.liveness import is_dead
from cronsensus.model.session import LockView
from cronsensus.process.interrupts import Event
from cronsensus.timing.clock import Clock

HOLDERS_VALID_FOR = 0.5
"""Seconds between two reads of a lock's holders, since waiters may be many and try often."""
AFTER_LEASE_END = 0.003
"""Seconds after a lock's end at which a waiter tries again: a little late rather than a little early."""
HOLDER_CHECK_INTERVAL = 0.1
"""Seconds between two checks whether a holder's process is dead; they ask no store."""
POLL_INTERVALS = (0.005, 0.25)
"""Least and most seconds between two tries of a waiter without notifications."""


class Waiter:
    """One waiter. This one gets no notification, and polls.

    Attributes:
        at_most: seconds without a notification after which to try all the same.
        news: whether it was notified and has not tried since.
        nap: seconds after which its wait is interrupted for a check whether a holder's process is dead.
    """

    nap = HOLDER_CHECK_INTERVAL

    def __init__(self, clock: Clock, *, at_most: float) -> None:
        self.at_most = at_most
        self.news = False
        self._clock = clock
        self._woken = Event()
        self._on_wake: Callable[[], None] | None = None
        self._holders: Sequence[LockView] = ()
        self._see_at = self._ends_at = float("-inf")

    def join_queue(self) -> None:
        """Join the lock's wait queue. Asks the store. Then try the lock once more: it may have been freed before.

        Raises:
            StoreError: it cannot be asked.
        """

    def wake(self) -> None:
        """Wake the waiter."""
        self._woken.set()
        on_wake = self._on_wake
        if on_wake is not None:
            on_wake()

    def wait(self, seconds: float) -> bool:
        """Wait for a notification; ``True``: the lock may be free."""
        woken = self._woken.wait(max(0.0, seconds))
        self._woken.clear()
        return woken

    async def await_(self, seconds: float) -> bool:
        """Do what ``wait`` does without blocking the event loop."""
        loop, notified = asyncio.get_running_loop(), asyncio.Event()
        self._on_wake = lambda: _resolve_future(loop, notified)
        try:
            if not self._woken.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(notified.wait(), max(0.0, seconds))
            woken = self._woken.is_set()
            self._woken.clear()
            return woken
        finally:
            self._on_wake = None

    def leave_queue(self) -> None:
        """Leave the queue. Asks no store."""

    def give_up(self) -> None:
        """Leave without the lock, and pass an unused notification on to another waiter. Asks no store."""
        self.leave_queue()

    def note_acquired(self) -> None:
        """Leave with the lock. May ask the store; never raises."""

    # --- the holders --------------------------------------------------------------------------------------------------

    @property
    def wants_holders(self) -> bool:
        """Whether to read the lock's holders again: the last read is old, or a holder's process is gone."""
        return self._clock.monotonic() >= min(self._see_at, self._ends_at) or self.is_abandoned()

    def note_holders(self, holders: Sequence[LockView]) -> None:
        """Note the holders of a lock that was refused, and when the first of their leases ends."""
        now = self._clock.monotonic()
        self._holders = holders
        self._see_at = now + HOLDERS_VALID_FOR
        ends = [max(0.0, holder.expires_in.total_seconds()) + AFTER_LEASE_END for holder in holders]
        self._ends_at = now + min(ends, default=float("inf"))

    @property
    def seconds_to_retry(self) -> float:
        """Return the seconds without a notification after which to try all the same."""
        if self._holders:
            return min(self.at_most, max(0.0, self._ends_at - self._clock.monotonic()))
        return self.at_most

    def is_abandoned(self) -> bool:
        """Whether a process of this host that held the lock at the last read is gone. Asks no store."""
        return any(is_dead(holder) for holder in self._holders)


class PollingWaiter(Waiter):
    """A waiter on a store without notifications: it polls with backoff, after about a quarter of the time waited.

    So a lock that is held for a moment is acquired a moment later, and a long wait costs a few statements a second.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, at_most=POLL_INTERVALS[0])
        self._since = clock.monotonic()

    @property
    def seconds_to_retry(self) -> float:
        """Return the seconds until the next try."""
        waited = self._clock.monotonic() - self._since
        # Jitter, so that waiters that began together do not poll together.
        self.at_most = max(POLL_INTERVALS[0], min(POLL_INTERVALS[1], waited / 4)) * random.uniform(0.75, 1.25)
        return super().seconds_to_retry


def _resolve_future(loop: asyncio.AbstractEventLoop, notified: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits on it
        loop.call_soon_threadsafe(notified.set)
