"""Which plans go in one step, and how many runs does a node claim with them? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.planning import plan
from cronsensus.stores.values import View

SHARED_FROM = 8
"""Occurrences fired at once from which a node leaves the others their part."""


def plans_of(
    jobs: Sequence[JobState], now: datetime
) -> tuple[tuple[Plan, ...], tuple[tuple[JobState, Exception], ...]]:
    """Return the plans of jobs, and those that cannot be planned; what is not due yet is planned for its due time."""
    plans, not_planned = [], []
    for job in jobs:
        try:
            plans.append(plan(job, now if job.due_at is None else max(now, job.due_at)))
        except Exception as error:  # noqa: BLE001 - returned
            # One job's broken definition must not keep the others from firing; it stays due and visible.
            not_planned.append((job, error))
    return tuple(plans), tuple(not_planned)


def fair_part(planned: int, view: View, room: int) -> int:
    """Return how many runs to claim: all there is room for, but of many that are fired at once a fair part."""
    nodes = len(view.sessions)
    if planned < SHARED_FROM or nodes < 2 or view.backlog:
        return room
    return min(room, -(-planned // nodes))
