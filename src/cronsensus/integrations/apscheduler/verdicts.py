"""Verdicts out of what APScheduler says of a run."""

from __future__ import annotations

from typing import Any

from cronsensus.codec import dumps
from cronsensus.errors import InvalidPayload
from cronsensus.model.occurrence import RunError
from cronsensus.model.states import Reason, State


def verdict_of_event(event: Any) -> dict[str, Any]:
    """Return how a run ended, by the event that APScheduler dispatches of it."""
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED

    if event.code == EVENT_JOB_MISSED:
        return {"state": State.SKIPPED, "reason": f"{Reason.LATE}: APScheduler's misfire_grace_time was over"}
    if event.code == EVENT_JOB_ERROR:
        return {"state": State.FAILED, "error": _error(event.exception, event.traceback)}
    return {"state": State.SUCCEEDED, "result": _result(event.retval)}


def verdict_of_error(exc: BaseException) -> dict[str, Any]:
    """Return how a run ended that the executor could not bring to an end."""
    return {"state": State.FAILED, "error": _error(exc, "")}


def _error(exc: BaseException, traceback: str) -> RunError:
    return RunError(type=type(exc).__qualname__, message=str(exc), traceback=traceback or "")


def _result(value: Any) -> str | None:
    """Return what a function returned, if the ledger can keep it: APScheduler asks nothing of it."""
    if value is None:
        return None
    try:
        return dumps(value, what="the result")
    except InvalidPayload:
        return None
