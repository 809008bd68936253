"""One waiter's place: when to try again for a lock that others hold."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence

from cronsensus.clock import Clock
from cronsensus.interrupts import Event
from cronsensus.membership.liveness import is_dead
from cronsensus.model.session import LockView

SEEN_FOR = 0.5
"""Seconds for which it is not asked again who holds the lock: those who wait may be many, and tried often."""
AFTER_THE_END = 0.003
"""Seconds after a lock's end at which somebody looks: a little late rather than a little early."""
POLLS = (0.005, 0.25)
"""Least and most seconds between two looks of one who is not told."""


class Seat:
    """One waiter's place. This one is told nothing, and looks by itself.

    Attributes:
        at_most: seconds after which a waiter who is told nothing tries all the same.
        news: whether it was told something, and has not tried since.
    """

    def __init__(self, clock: Clock, *, at_most: float) -> None:
        self.at_most = at_most
        self.news = False
        self._clock = clock
        self._rung = Event()
        self._on_ring: Callable[[], None] | None = None
        self._holders: Sequence[LockView] = ()
        self._see_at = self._ends_at = float("-inf")

    def stand(self) -> None:
        """Stand in line; then the lock must be tried once more, for it may have come free before. Asks the store.

        Raises:
            StoreError: it cannot be asked.
        """

    def ring(self) -> None:
        """Wake the waiter."""
        self._rung.set()
        on_ring = self._on_ring
        if on_ring is not None:
            on_ring()

    def wait(self, seconds: float) -> bool:
        """Wait to be told; ``True``: the lock may be free."""
        told = self._rung.wait(max(0.0, seconds))
        self._rung.clear()
        return told

    async def await_(self, seconds: float) -> bool:
        """Do what ``wait`` does without blocking the event loop."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        self._on_ring = lambda: _tell(loop, told)
        try:
            if not self._rung.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), max(0.0, seconds))
            was_told = self._rung.is_set()
            self._rung.clear()
            return was_told
        finally:
            self._on_ring = None

    def leave(self) -> None:
        """Wait no more. Asks no store."""

    def give_up(self) -> None:
        """Wait no more without the lock, and let another one know what was told here. Asks no store."""
        self.leave()

    def step_out(self) -> None:
        """Wait no more, because the lock is had. May ask the store; never raises."""

    # --- who holds it -------------------------------------------------------------------------------------------------

    @property
    def wants_to_see(self) -> bool:
        """Whether it is time to look who holds the lock, or who held it is gone."""
        return self._clock.monotonic() >= min(self._see_at, self._ends_at) or self.is_abandoned()

    def see(self, holders: Sequence[LockView]) -> None:
        """Be told who holds the lock, now that it was refused; it may end before anybody looks again."""
        now = self._clock.monotonic()
        self._holders = holders
        self._see_at = now + SEEN_FOR
        ends = [max(0.0, holder.expires_in.total_seconds()) + AFTER_THE_END for holder in holders]
        self._ends_at = now + min(ends, default=float("inf"))

    @property
    def look_again(self) -> float:
        """Return after how many seconds a waiter who is told nothing tries all the same."""
        if self._holders:
            return min(self.at_most, max(0.0, self._ends_at - self._clock.monotonic()))
        return self.at_most

    def is_abandoned(self) -> bool:
        """Whether a process of this host that held the lock when it was last tried is gone. Asks no store."""
        return any(is_dead(holder) for holder in self._holders)


class PollingSeat(Seat):
    """A place of one whom the store cannot tell.

    He looks soon, and then ever less often: again after a quarter of the time that he has waited, about. So what was
    held for a moment is had a moment later, and what is held for long costs a few statements a second.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, at_most=POLLS[0])
        self._since = clock.monotonic()

    @property
    def look_again(self) -> float:
        """Return after how many seconds to look."""
        waited = self._clock.monotonic() - self._since
        # Not all at once, if many began to wait in the same moment.
        self.at_most = max(POLLS[0], min(POLLS[1], waited / 4)) * random.uniform(0.75, 1.25)
        return super().look_again


def _tell(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits on it
        loop.call_soon_threadsafe(told.set)
