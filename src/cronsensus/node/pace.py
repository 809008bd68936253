"""Measure how many runs end on this node per second, to decide how many claims it reserves. Pure.

A claim takes a round trip to the store, often longer than a short run. So in a long queue a node claims more runs than
it has free slots: as many as start within ``RESERVED_FOR`` at its own pace. A later occurrence with a higher priority
waits no longer than that for a slot; neither does a run that another node could start at once.
"""

from __future__ import annotations

from typing import NamedTuple

RESERVED_FOR = 0.1
"""Seconds within which a reserved claim is expected to start, at the pace of the last runs."""
STALLED_AFTER = 2 * RESERVED_FOR
"""Seconds after which a reserved claim that has not started is released."""
MOST_RESERVED_CLAIMS = 400
GATHER_SECONDS = 0.05
"""Most seconds that results wait for each other, while enough claims are reserved for slots that become free."""
LEAST_ENDS = 10
"""Least number of ended runs from which the pace is measured."""
SHORTEST, LONGEST = 0.02, 5.0
"""Least and most seconds of a measurement."""
_NEVER = -1e9


class Queue(NamedTuple):
    """The reserved claims of a node, which wait for a free slot.

    Attributes:
        held: how many.
        few: so few are left that it is time to claim more.
        waits_for: how many seconds the first has waited; ``None``: there is none.
        ends: how many attempts have ended on this node so far.
    """

    held: int = 0
    few: bool = True
    waits_for: float | None = None
    ends: int = 0


class Pace(NamedTuple):
    """How fast runs end while all slots are taken.

    Attributes:
        rate: runs per second; 0: not known.
        since, ends: when the measurement began, and how many had ended by then.
        worked_at: when results were last sent.
    """

    rate: float = 0.0
    since: float = _NEVER
    ends: int = 0
    worked_at: float = _NEVER

    def measured_after(self, ends: int, now: float, *, full: bool) -> Pace:
        """Return the pace after ``ends`` attempts have ended; ``full``: all slots were taken meanwhile."""
        seconds, ended = now - self.since, ends - self.ends
        if not full or seconds > LONGEST:
            return self._replace(since=now, ends=ends)
        if ended < LEAST_ENDS or seconds < SHORTEST:
            return self
        rate = ended / seconds
        return self._replace(rate=(self.rate + rate) / 2 if self.rate else rate, since=now, ends=ends)

    @property
    def reserve_limit(self) -> int:
        """Return how many claims may wait here for free slots."""
        return min(MOST_RESERVED_CLAIMS, int(self.rate * RESERVED_FOR))
