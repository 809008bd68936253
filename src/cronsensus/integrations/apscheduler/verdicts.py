"""The verdict of a run, from APScheduler's event or an error of its executor."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cronsensus.integrations.results import error_text, result_text
from cronsensus.model.acquiring import NotWon
from cronsensus.model.ends import Final
from cronsensus.model.states import Reason, State
from cronsensus.outside import Answer, Refused, Won


def verdict_of_event(event: Any) -> Final:
    """Return the verdict of a run from the event that APScheduler dispatches."""
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED

    if event.code == EVENT_JOB_MISSED:
        return Final(State.SKIPPED, f"{Reason.LATE}: APScheduler's misfire_grace_time was over")
    if event.code == EVENT_JOB_ERROR:
        return Final(State.FAILED, error=error_text(event.exception, event.traceback or ""))
    return Final(State.SUCCEEDED, result=result_text(event.retval)[1])


def verdict_of_error(exc: BaseException) -> Final:
    """Return the verdict of a run whose executor raised an error."""
    return Final(State.FAILED, error=error_text(exc, ""))


def is_late(job: Any, time: datetime, now: datetime) -> bool:
    """Whether a time lies further back than the job's grace allows, by the clock of the process that keeps time."""
    grace = job.misfire_grace_time
    return grace is not None and (now - time).total_seconds() > grace


def events_of_refusals(job: Any, times: Sequence[datetime], answers: Answer) -> list[Any]:
    """Return the events for this replica's listeners: its request recorded that these times do not run."""
    from apscheduler.events import (
        EVENT_JOB_MAX_INSTANCES,
        EVENT_JOB_MISSED,
        JobExecutionEvent,
        JobSubmissionEvent,
    )

    alias = job._jobstore_alias
    full = [time for time, answer in zip(times, answers, strict=True) if _is(answer, NotWon.FULL)]
    late = [time for time, answer in zip(times, answers, strict=True) if _is(answer, NotWon.LATE)]
    refused = [JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, job.id, alias, full)] if full else []
    return [*refused, *(JobExecutionEvent(EVENT_JOB_MISSED, job.id, alias, time) for time in late)]


def _is(answer: Won | Refused, why: NotWon) -> bool:
    return isinstance(answer, Refused) and answer.why is why
