"""How long before its due time is a run decided, and when exactly does it start? Pure.

Between a due time and the start of its run lie a plan and a commit. Neither has to wait for the due time: the node that
is first in turn order makes both shortly before, and then holds a claim whose moment comes. A claim whose node dies in
between is taken over like any other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

FIRST_LEAD = 0.010
LEADS = (0.005, 0.100)
"""Least and most seconds before a due time at which a node decides. A pause that comes later than that is too late."""
SLACK = 0.002
"""Seconds by which a node may come too soon: estimates of the store's clock differ, and another look costs more."""
RESERVE = 1.5
"""How many times what deciding took lately is allowed for it the next time."""
FADES = 0.9
"""What a slow time still counts for when the next comes."""


class ClockSample(NamedTuple):
    """The store's clock, as an answer brought it.

    Attributes:
        now: what the store's clock said.
        received_at: when this node had the answer, by its monotonic clock.
    """

    now: datetime
    received_at: float

    def time_of(self, instant: datetime) -> float:
        """Return ``instant`` by this node's monotonic clock: never early, late by at most the way of the answer."""
        return self.received_at + (instant - self.now).total_seconds()

    def is_near(self, instant: datetime) -> bool:
        """Whether the sample is recent enough to time ``instant``: two clocks may not run alike for long."""
        return instant - self.now <= timedelta(seconds=LEADS[1])


class LeadTime(NamedTuple):
    """How long before a due time to begin to decide: as long as it takes, so that a distant store is no later.

    Attributes:
        slowest: seconds that deciding took lately; a slow time fades.
    """

    slowest: float = FIRST_LEAD / RESERVE

    @property
    def seconds(self) -> float:
        """Return it."""
        return min(max(RESERVE * self.slowest, LEADS[0]), LEADS[1])

    def after(self, seconds: float) -> LeadTime:
        """Return the lead time after deciding took ``seconds``."""
        return LeadTime(max(seconds, FADES * self.slowest))
