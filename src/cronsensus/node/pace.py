"""How many runs does this node end in a second, and how many does it therefore reserve? Pure.

A slot that is free waits for a step of the store, which takes longer than many a run. So in a long queue a node claims
more than its slots hold: what begins within ``RESERVED_FOR`` at its own pace. What comes in later with a higher
priority waits no longer than that for a slot, and a run that another node could begin at once neither.
"""

from __future__ import annotations

from typing import NamedTuple

RESERVED_FOR = 0.1
"""What is reserved begins within so many seconds, at the pace of the last runs."""
STALLED = 2 * RESERVED_FOR
"""Seconds after which what is reserved and has not begun goes back to the store."""
MOST_RESERVED_CLAIMS = 400
GATHER = 0.05
"""Most seconds that results wait for each other, as long as enough is reserved for slots that get free."""
LEAST_ENDS = 10
"""So many runs tell the pace of a node, not fewer."""
SHORTEST, LONGEST = 0.02, 5.0
"""Least and most seconds in which they end."""
_NEVER = -1e9


class Queue(NamedTuple):
    """What is reserved on a node: claims that wait for a free slot.

    Attributes:
        held: how many.
        few: so few of them are left that it is time to claim more.
        waits_for: for how many seconds the first of them has waited; ``None``: there is none.
        ends: how many attempts have ended on this node so far.
    """

    held: int = 0
    few: bool = True
    waits_for: float | None = None
    ends: int = 0


class Pace(NamedTuple):
    """How fast runs end while all slots are taken.

    Attributes:
        rate: runs a second; 0: not known.
        since, ends: when counting began, and how many had ended by then.
        worked_at: when results were last sent.
    """

    rate: float = 0.0
    since: float = _NEVER
    ends: int = 0
    worked_at: float = _NEVER

    def measured_after(self, ends: int, now: float, *, full: bool) -> Pace:
        """Return the pace now that so many have ended; ``full``: all slots were taken meanwhile."""
        seconds, ended = now - self.since, ends - self.ends
        if not full or seconds > LONGEST:
            return self._replace(since=now, ends=ends)
        if ended < LEAST_ENDS or seconds < SHORTEST:
            return self
        rate = ended / seconds
        return self._replace(rate=(self.rate + rate) / 2 if self.rate else rate, since=now, ends=ends)

    @property
    def reserve_limit(self) -> int:
        """Return how many runs are to wait here for free slots, at most."""
        return min(MOST_RESERVED_CLAIMS, int(self.rate * RESERVED_FOR))
