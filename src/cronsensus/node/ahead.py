"""Plan shortly before a due time what is to be fired at it. Floor 4.

Between a due time and the start of its run lie one look, one plan, and two small commits. The look and the plan need
not wait for the due time: the node whose turn it is makes them ``LEAD`` before, and when the time has come it only
fires. A plan that was made ahead is an ordinary plan: if anything that it rests on has changed meanwhile, ``fire``
refuses it and the node looks again. The same if the node was wrong about the time: the store's clock decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cronsensus.model.plan import Plan
from cronsensus.stores.base import Glance

LEAD = 0.025
"""Seconds before a due time at which its plans are made."""
REHEARSAL = 0.0025
"""Seconds before a due time at which a node tries what it will do then, where the store is in its own process.

The store says that it is too early, and that is the point: after a second of sleep nothing of the way there is in the
processor's caches, and who goes it first takes three times as long.
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Plans that wait for their due time.

    Attributes:
        instant: the due time, by the store's clock.
        due_at: the same by this node's monotonic clock.
        glance: what the node saw just before it planned.
    """

    instant: datetime
    due_at: float
    plans: Sequence[Plan]
    glance: Glance


class Ahead:
    """What a node has prepared for the next due time."""

    def __init__(self) -> None:
        self._prepared: Prepared | None = None
        self._rehearsed = False

    def prepare(self, prepared: Prepared) -> None:
        """Keep plans, instead of those before."""
        self._prepared = prepared
        self._rehearsed = False

    def is_for(self, instant: datetime) -> bool:
        """Whether the plans for ``instant`` are made."""
        return self._prepared is not None and self._prepared.instant == instant

    def rehearse(self, now: float) -> Prepared | None:
        """Return plans whose time is about to come at ``now`` (monotonic seconds), once."""
        prepared = self._prepared
        if prepared is None or self._rehearsed or not prepared.due_at - REHEARSAL <= now < prepared.due_at:
            return None
        self._rehearsed = True
        return prepared if prepared.plans else None

    def take(self, now: float) -> Prepared | None:
        """Return plans whose time has come at ``now`` (monotonic seconds), once."""
        prepared = self._prepared
        if prepared is None or now < prepared.due_at:
            return None
        self._prepared = None
        return prepared if prepared.plans else None
