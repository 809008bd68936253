"""Which plans go in one step, and how many runs does a node claim with them? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.node.situation import Facts, Memory
from cronsensus.planning import plan
from cronsensus.stores.values import View

SHARED_FROM = 8
"""Occurrences fired at once from which a node leaves the others their part."""


def at_once(jobs: Sequence[JobState], memory: Memory, now: float) -> tuple[Sequence[JobState], bool]:
    """Return the jobs to plan in one step, and whether others are left; see ``decide.failed``."""
    if memory.set_aside:
        aside = {(job, revision) for job, revision, until in memory.set_aside if now < until}
        jobs = [job for job in jobs if (job.id, job.revision) not in aside]
    if memory.behind:
        jobs = sorted(jobs, key=lambda job: job.id in memory.behind)
    return jobs[: memory.most_plans], len(jobs) > memory.most_plans


def plans_of(
    jobs: Sequence[JobState], now: datetime
) -> tuple[tuple[Plan, ...], tuple[tuple[JobState, Exception], ...]]:
    """Return the plans of jobs, and those that cannot be planned."""
    plans, not_planned = [], []
    for job in jobs:
        try:
            plans.append(plan(job, now))
        except Exception as error:  # noqa: BLE001 - returned
            # One job's broken definition must not keep the others from firing; it stays due and visible.
            not_planned.append((job, error))
    return tuple(plans), tuple(not_planned)


def fair_part(planned: int, view: View, facts: Facts, memory: Memory) -> int:
    """Return how many runs to claim: all there is room for, but of many that are fired at once a fair part."""
    nodes = len(view.sessions)
    if planned < SHARED_FROM or nodes < 2 or view.backlog or memory.partition is not None:
        return facts.room
    return min(facts.room, -(-planned // nodes))
