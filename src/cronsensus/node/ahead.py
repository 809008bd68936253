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

    def prepare(self, prepared: Prepared) -> None:
        """Keep plans, instead of those before."""
        self._prepared = prepared

    def is_for(self, instant: datetime) -> bool:
        """Whether the plans for ``instant`` are made."""
        return self._prepared is not None and self._prepared.instant == instant

    def take(self, now: float) -> Prepared | None:
        """Return plans whose time has come at ``now`` (monotonic seconds), once."""
        prepared = self._prepared
        if prepared is None or now < prepared.due_at:
            return None
        self._prepared = None
        return prepared if prepared.plans else None
