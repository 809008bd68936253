"""Which plans go into a step, also after steps have failed? Pure.

One plan that the store cannot take must not stop the others. So after a step that failed the next one has half as many
plans, and the job of one that fails alone is set aside for a while. If the reason passes, as a lock or an outage does,
the job only comes after the others, because nothing is to be late after an outage. After a step with results failed,
results go alone: nothing that fails each time keeps a result from the store.
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
"""Seconds for which a job is left alone whose plan the store cannot take."""


class Careful(NamedTuple):
    """Which steps failed lately.

    Attributes:
        results_alone: the next step has results and nothing else.
        most: how many plans go in one step.
        set_aside: jobs that are left alone: id, revision, and until when (monotonic seconds).
        behind: ids of jobs that come after the others.
    """

    results_alone: bool = False
    most: int = MOST_PLANS
    set_aside: tuple[tuple[int, int, float], ...] = ()
    behind: frozenset[int] = frozenset()

    def choose_jobs(self, jobs: Sequence[JobState], now: float) -> tuple[Sequence[JobState], bool]:
        """Return the jobs to plan in one step, and whether others are left."""
        if self.set_aside:
            aside = {(job, revision) for job, revision, until in self.set_aside if now < until}
            jobs = [job for job in jobs if (job.id, job.revision) not in aside]
        if self.behind:
            jobs = sorted(jobs, key=lambda job: job.id in self.behind)
        return jobs[: self.most], len(jobs) > self.most

    def after_failure(self, plans: Sequence[Plan], now: float, *, passing: bool) -> Careful:
        """Take in that a step with these plans failed; ``passing``: for a reason that passes."""
        if len(plans) != 1:
            return self._replace(most=len(plans) // 2) if plans else self
        if passing:
            return self._replace(most=1, behind=self.behind | {plans[0].job_id})
        still = tuple(one for one in self.set_aside if now < one[2])
        return self._replace(set_aside=(*still, (plans[0].job_id, plans[0].revision, now + SET_ASIDE_SECONDS)))

    def after_answer(self, plans: Iterable[Plan]) -> Careful:
        """Note that the store took plans, or that another node was faster."""
        behind = self.behind - {each.job_id for each in plans}
        return self._replace(most=min(MOST_PLANS, 2 * self.most), behind=behind)


def plans_of(
    jobs: Sequence[JobState], now: datetime
) -> tuple[tuple[Plan, ...], tuple[tuple[JobState, Exception], ...]]:
    """Return the plans of jobs, and the jobs that cannot be planned; a job due later is planned for its due time."""
    plans, not_planned = [], []
    for job in jobs:
        try:
            plans.append(plan(job, now if job.due_at is None else max(now, job.due_at)))
        except Exception as error:  # noqa: BLE001 - returned
            # One job's broken definition must not keep the others from firing; it stays due and visible.
            not_planned.append((job, error))
    return tuple(plans), tuple(not_planned)
