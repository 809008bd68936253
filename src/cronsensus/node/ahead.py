"""How long before its due time is a run decided, and when exactly does it start? Pure.

Between a due time and the start of its run lie a plan and a commit. Neither has to wait for the due time: the node
whose turn it is makes both shortly before, and then holds a claim whose moment comes. A node that dies in between holds
a claim like any other, and another takes it over.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

FIRST_GUESS = 0.010
BOUNDS = (0.005, 0.100)
"""Least and most seconds before a due time at which a node decides. A pause that comes later than that is too late."""
SLACK = 0.002
"""Seconds by which a node may come too soon. By the answer of one look the moment comes a little later than by that of
another, and a round more for that would be a look more."""
RESERVE = 1.5
"""How many times what deciding took lately is allowed for it the next time."""
FORGETS = 0.9
"""What a slow time still counts for when the next comes."""


class Reading(NamedTuple):
    """The store's clock, as an answer brought it.

    Attributes:
        now: what the store's clock said.
        received_at: when this node had the answer, by its monotonic clock.
    """

    now: datetime
    received_at: float

    def begin_of(self, instant: datetime) -> float:
        """Return when ``instant`` comes by this node's monotonic clock: not before, and later by the answer's way."""
        return self.received_at + (instant - self.now).total_seconds()

    def tells_of(self, instant: datetime) -> bool:
        """Whether it is near enough to ``instant`` to tell when that comes: two clocks may not run alike for long."""
        return instant - self.now <= timedelta(seconds=BOUNDS[1])


class Lead:
    """How long before a due time to begin to decide: as long as it takes, so that a distant store is no later."""

    def __init__(self) -> None:
        self._slowest = FIRST_GUESS / RESERVE

    @property
    def seconds(self) -> float:
        """Return it."""
        return min(max(RESERVE * self._slowest, BOUNDS[0]), BOUNDS[1])

    def took(self, seconds: float) -> None:
        """Learn from one time."""
        self._slowest = max(seconds, FORGETS * self._slowest)
