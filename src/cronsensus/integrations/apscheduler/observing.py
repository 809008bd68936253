"""``guard(…, observe=True)``: APScheduler runs as it does without a guard, and its runs are counted.

Only listeners are added. What a guard would refuse of a job is logged when the job is added.
"""

from __future__ import annotations

from typing import Any

from cronsensus.errors import InvalidOption
from cronsensus.external.observing import Observation
from cronsensus.integrations.apscheduler.checks import check_job, job_name, needs_no_guard
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.apscheduler")


class Observer:
    """Listens to one scheduler, and notes what it ran."""

    def __init__(self, scheduler: Any, observation: Observation) -> None:
        """Add listeners to ``scheduler``."""
        from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_SCHEDULER_SHUTDOWN

        self._scheduler = scheduler
        self._observation = observation
        self._own: set[str] = set()
        self._real_add_job = scheduler._real_add_job
        scheduler._real_add_job = self._on_real_add_job
        scheduler.add_listener(self._on_run, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.add_listener(self._on_shutdown, EVENT_SCHEDULER_SHUTDOWN)

    def _on_real_add_job(self, job: Any, jobstore_alias: str, replace_existing: bool) -> Any:  # noqa: FBT001
        self._own.discard(job.id)
        try:
            check_job(self._scheduler, job, jobstore_alias, align=False)
        except InvalidOption as error:
            # Its times differ between processes, so no two runs of it would be seen to be one.
            self._own.add(job.id)
            _log.warning("not observed, and refused without observe: %s", error)
        answer = self._real_add_job(job, jobstore_alias, replace_existing)
        if needs_no_guard(self._scheduler, job):
            self._own.add(job.id)
        return answer

    def _on_run(self, event: Any) -> None:
        if event.job_id not in self._own:
            self._observation.note(job_name(event.job_id), event.scheduled_run_time)

    def _on_shutdown(self, event: Any) -> None:  # noqa: ARG002 - there is but one
        self._observation.close()
