"""How do nodes share out more due jobs than one look shows? Pure.

A strategy beside ``decide``, of a node's looks and of nothing else. Each node looks at its own partition of the jobs,
so that no two plan the same in vain. It fires no more than it can start, and claims before it fires more: what is
created and waits is started in the order of due times, and what comes due after the herd is not to wait for all of it.
A node that is through with its partition looks at everything and helps, so that of a dead node is not lost.
"""

from __future__ import annotations

from typing import NamedTuple

from cronsensus.stores.values import Partition, View

MOST_DUE_JOBS = 200
"""Most due jobs of a look."""
LEAST_DUE_JOBS = 25
"""Jobs that a node fires in a round of a partition, however few it could run now."""
FULL = 0.05
"""Seconds that a node waits for free slots before it fires more of a partition than it can start."""


class Herd(NamedTuple):
    """Where a node is in a herd.

    Attributes:
        partition: what it looks at next; ``None``: all jobs.
        helping: through with its partition, it looks at all jobs although more are due than are shown.
        fired_at: when it last fired some of a partition (monotonic seconds).
    """

    partition: Partition | None = None
    helping: bool = False
    fired_at: float = -1e9

    def waits_for_slots(self, free_slots: int, now: float) -> float:
        """Return for how many seconds to wait before more is fired."""
        return self.fired_at + FULL - now if self.partition is not None and free_slots < LEAST_DUE_JOBS else 0.0

    def job_limit(self, free_slots: int) -> int:
        """Return how many jobs to look at."""
        return MOST_DUE_JOBS if self.partition is None else min(MOST_DUE_JOBS, max(LEAST_DUE_JOBS, free_slots))

    def begins_herd(self, view: View) -> bool:
        """Whether this look only found a herd: the next look reads a partition."""
        return self.partition is None and view.more and not self.helping

    def advance_herd(self, view: View, session: str, now: float, *, won: int, lost: int) -> tuple[Herd, bool]:
        """Return where the node is after a look and what came of it, and whether it looks again at once."""
        if self.begins_herd(view):
            known = session in view.sessions
            part = Partition(view.sessions.index(session), len(view.sessions)) if known else Partition(0, 1)
            return Herd(part, fired_at=self.fired_at), True
        if self.partition is None:
            # After more races lost than won this node is in the way of those whose partition it is.
            return Herd(helping=self.helping and view.more and lost <= won), won > 0 and view.more
        if won and view.more:
            return self._replace(fired_at=now), True
        # Through with its partition, or it leads nowhere: the next look is at everything.
        return Herd(helping=True, fired_at=now), won > 0 or not view.jobs
