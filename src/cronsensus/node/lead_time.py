"""How long before its due time a run is decided, and when exactly it starts. Pure.

Between a due time and the start of its run lie a plan and a commit. Neither has to wait for the due time: the node that
is first in turn order does both shortly before, and then holds a claim until it is due. If that node dies in between,
the claim is taken over like any other.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

FIRST_LEAD = 0.010
LEAST_AND_MOST_LEAD = (0.005, 0.100)
"""Least and most seconds before a due time at which a node decides, if the store is near. A pause of the job that comes
later than that is too late for the run."""
MOST_ROUND_TRIPS = 9
"""How many round trips the lead time may last if that is longer: a look, a step of up to five, and the reserve. So a
store that is slow once gets no long lead time, and a distant store gets as much as it needs."""
LONGEST_LEAD = 0.9
"""The longest lead time of all, in seconds; no store decides further ahead than ``MOST_AHEAD``."""
EARLY_SLACK = 0.002
"""Seconds by which a node may come too early: estimates of the store's clock differ, and another look costs more."""
RESERVE_FACTOR = 1.5
"""The factor on the time that deciding took lately, as a reserve."""
FADE_FACTOR = 0.9
"""The factor on an earlier slow time at each new measurement."""
LOOKS_MEASURED = 4
"""The shortest of this many looks measures the distance of the store; a slow one does not."""


class ClockSample(NamedTuple):
    """A reading of the store's clock.

    Attributes:
        now: the store's clock.
        received_at: when this node received the answer, by its monotonic clock.
    """

    now: datetime
    received_at: float

    def time_of(self, instant: datetime) -> float:
        """Return ``instant`` by this node's monotonic clock: never early, late by at most the answer's travel time."""
        return self.received_at + (instant - self.now).total_seconds()


class LeadTime(NamedTuple):
    """How long before a due time a node starts to decide: as long as that takes, so that a distant store is on time.

    Attributes:
        slowest: seconds that a look and a step took lately; an old slow time fades.
        looks: seconds until the last looks returned the clock; each is a round trip.
    """

    slowest: float = FIRST_LEAD / RESERVE_FACTOR
    looks: tuple[float, ...] = (0.0,) * LOOKS_MEASURED

    @property
    def trip_seconds(self) -> float:
        """Return the seconds of a round trip to the store."""
        return min(self.looks)

    @property
    def longest_seconds(self) -> float:
        """Return the longest lead time at this distance from the store."""
        return min(max(LEAST_AND_MOST_LEAD[1], MOST_ROUND_TRIPS * self.trip_seconds), LONGEST_LEAD)

    @property
    def seconds(self) -> float:
        """Return the lead time."""
        # With less than a look and a step of one round trip each, a node would only ever look when the job is already
        # due, and so never measure how long deciding takes.
        return min(
            max(RESERVE_FACTOR * max(self.slowest, 2 * self.trip_seconds), LEAST_AND_MOST_LEAD[0]), self.longest_seconds
        )

    def after_look(self, seconds: float) -> LeadTime:
        """Return the lead time after a look whose first round trip took ``seconds``."""
        return self._replace(looks=(*self.looks[1:], seconds))

    def measured_after(self, seconds: float) -> LeadTime:
        """Return the lead time after a look and a step took ``seconds``."""
        return self._replace(slowest=max(seconds, FADE_FACTOR * self.slowest))
