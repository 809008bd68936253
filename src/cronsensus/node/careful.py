"""Decide which plans go into a step, especially after failed steps. Pure.

A plan that makes the store fail must not stop the others. So after a failed step the next one has half as many plans,
and if a plan fails alone, its job is set aside for a while. If the reason is temporary, such as a lock or an outage,
the job only comes after the others, so that nothing is late after an outage. After a step with results failed, results
are sent alone, so that a plan that always fails does not keep them from the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.planning import plan

MOST_PLANS = 200
SET_ASIDE_SECONDS = 60.0
"""Seconds for which a job is set aside whose plan makes the store fail."""


class Careful(NamedTuple):
    """Which steps failed lately.

    Attributes:
        results_alone: the next step has results and nothing else.
        most: how many plans go into a step.
        set_aside: jobs that are not planned for a while: id, revision, and until when (monotonic seconds).
        deferred: ids of jobs that come after the others.
    """

    results_alone: bool = False
    most: int = MOST_PLANS
    set_aside: tuple[tuple[int, int, float], ...] = ()
    deferred: frozenset[int] = frozenset()

    def choose_jobs(self, jobs: Sequence[JobState], now: float) -> tuple[Sequence[JobState], bool]:
        """Return the jobs to plan in a step, and whether others are left."""
        if self.set_aside:
            aside_keys = {(job, revision) for job, revision, until in self.set_aside if now < until}
            jobs = [job for job in jobs if (job.id, job.revision) not in aside_keys]
        if self.deferred:
            jobs = sorted(jobs, key=lambda job: job.id in self.deferred)
        return jobs[: self.most], len(jobs) > self.most

    def after_failure(self, plans: Sequence[Plan], now: float, *, temporary: bool) -> Careful:
        """Return the state after a step with these plans failed; ``temporary``: for a temporary reason."""
        if len(plans) != 1:
            return self._replace(most=len(plans) // 2) if plans else self
        if temporary:
            return self._replace(most=1, deferred=self.deferred | {plans[0].job_id})
        still_aside = tuple(entry for entry in self.set_aside if now < entry[2])
        return self._replace(set_aside=(*still_aside, (plans[0].job_id, plans[0].revision, now + SET_ASIDE_SECONDS)))

    def after_answer(self, plans: Iterable[Plan]) -> Careful:
        """Return the state after the store carried out plans, or another node was faster."""
        deferred = self.deferred - {each_plan.job_id for each_plan in plans}
        return self._replace(most=min(MOST_PLANS, 2 * self.most), deferred=deferred)


def plans_of(
    jobs: Sequence[JobState], now: datetime
) -> tuple[tuple[Plan, ...], tuple[tuple[JobState, Exception], ...]]:
    """Return the plans of jobs, and the jobs that cannot be planned; a later job is planned for its due time."""
    plans, not_planned = [], []
    for job in jobs:
        try:
            plans.append(plan(job, now if job.due_at is None else max(now, job.due_at)))
        except Exception as error:  # noqa: BLE001 - returned
            # One job's broken definition must not keep the others from firing; it stays due and visible.
            not_planned.append((job, error))
    return tuple(plans), tuple(not_planned)
