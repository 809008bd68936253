"""``run.upstream``: the upstream occurrences of a run."""

from __future__ import annotations

from cronsensus.after.admission import CAME_AFTER
from cronsensus.after.crossing import CameAfter
from cronsensus.after.upstreams import Upstreams
from cronsensus.node.run import BaseRun


class ComesAfter(BaseRun):
    """A run that may come after others."""

    @property
    def upstream(self) -> Upstreams:
        """What this run came after: ``run.upstream[extract].result``; see ``after=`` of ``Scheduler.job``."""
        came_after: CameAfter | None = self.extras.get(CAME_AFTER)
        return Upstreams({} if came_after is None else came_after.times, of_item=self._parent is not None)
