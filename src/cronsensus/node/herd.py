"""How nodes share a herd: more due jobs than one look returns. Pure.

A strategy beside ``decide`` that concerns only a node's looks. Each node looks at its own partition of the jobs, so
that no two nodes plan the same job. It fires no more than it can start, and claims before it fires more: occurrences
start in the order of due times, and jobs that come due after the herd must not wait for all of it. A node that has
finished its partition looks at everything and helps, so the partition of a dead node is not lost.
"""

from __future__ import annotations

from typing import NamedTuple

from cronsensus.stores.values import Partition, View

MOST_DUE_JOBS = 200
"""Most due jobs of a look."""
LEAST_DUE_JOBS = 25
"""Least number of jobs that a node fires in a round of a partition, even with few free slots."""
SLOTS_WAIT = 0.05
"""Seconds that a node waits for free slots before it fires more of a partition than it can start."""


class Herd(NamedTuple):
    """A node's part in a herd.

    Attributes:
        partition: the partition that it looks at next; ``None``: all jobs.
        helping: it has finished its partition, and looks at all jobs although more are due than a look returns.
        fired_at: when it last fired jobs of a partition (monotonic seconds).
    """

    partition: Partition | None = None
    helping: bool = False
    fired_at: float = -1e9

    def waits_for_slots(self, free_slots: int, now: float) -> float:
        """Return how many seconds to wait before firing more."""
        return self.fired_at + SLOTS_WAIT - now if self.partition is not None and free_slots < LEAST_DUE_JOBS else 0.0

    def job_limit(self, free_slots: int) -> int:
        """Return how many jobs to look at."""
        return MOST_DUE_JOBS if self.partition is None else min(MOST_DUE_JOBS, max(LEAST_DUE_JOBS, free_slots))

    def begins_herd(self, view: View) -> bool:
        """Whether this look only found a herd: the next look reads a partition."""
        return self.partition is None and view.more and not self.helping

    def advance_herd(self, view: View, session: str, now: float, *, won: int, lost: int) -> tuple[Herd, bool]:
        """Return the node's part after a look and its firing, and whether it looks again at once."""
        if self.begins_herd(view):
            is_listed = session in view.sessions
            partition = Partition(view.sessions.index(session), len(view.sessions)) if is_listed else Partition(0, 1)
            return Herd(partition, fired_at=self.fired_at), True
        if self.partition is None:
            # If it lost more races than it won, this node is in the way of the partition's own node.
            return Herd(helping=self.helping and view.more and lost <= won), won > 0 and view.more
        if won and view.more:
            return self._replace(fired_at=now), True
        # The partition is finished, or brings nothing: the next look is at everything.
        return Herd(helping=True, fired_at=now), won > 0 or not view.jobs
