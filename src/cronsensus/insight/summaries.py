"""A job, a run or an error in a few words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.standstill import find_standstill
from cronsensus.insight.time_words import brief_duration, exact_time, relative_time, time_since
from cronsensus.insight.waiting import JUST_NOW
from cronsensus.model.batch import shown_key
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence, RunError, RunView
from cronsensus.model.states import ACTIVE, Origin, State

_LONGEST_KEY = 24


@dataclass(frozen=True, slots=True)
class JobState:
    """Whether a job fires, and if not, why not.

    Attributes:
        state: ``kept``: it is retired, and its pending runs are kept for a while.
    """

    state: Literal["active", "paused", "retired", "kept"]
    text: str


def job_state(view: JobView, zone: tzinfo = UTC) -> JobState:
    """Return whether a job fires, and if not, why not; times are in the zone of its schedule, else in ``zone``."""
    if view.retired_at is not None and view.waiting_until is not None:
        return JobState(
            "kept",
            f"retired; what waits is kept until {exact_time(view.waiting_until, zone_of(view.spec.trigger, zone))}",
        )
    if view.retired_at is not None:
        return JobState("retired", "retired")
    if view.paused_at is not None:
        by = f" (by {view.paused_by})" if view.paused_by else ""
        return JobState("paused", f"paused: {view.paused_why or 'no reason given'}{by}")
    return JobState("active", "active")


def job_next(view: JobView, now: datetime, zone: tzinfo = UTC) -> tuple[str, str]:
    """Return when a job fires next: the distance from now, and the time in its schedule's zone, else ``zone``."""
    if view.retired_at is not None or view.paused_at is not None:
        return "-", ""
    if view.spec.keeper is not None:
        return f"when {view.spec.keeper} names it", ""
    if view.next_due is None:
        return "only when told to" if view.spec.trigger is None else "never again", ""
    if find_standstill(view, now) is not None:
        return f"stands still, {relative_time(view.next_due, now)}", exact_time(
            view.next_due, zone_of(view.spec.trigger, zone)
        )
    late = now - view.next_due
    when = relative_time(view.next_due, now) if late < JUST_NOW else f"overdue by {brief_duration(late)}"
    return when, exact_time(view.next_due, zone_of(view.spec.trigger, zone))


def run_result(occurrence: Occurrence, now: datetime) -> str:
    """Return how an occurrence ended, and when; or its present state."""
    text = str(occurrence.state)
    if occurrence.finished_at is not None:
        text += f" {time_since(occurrence.finished_at, now)}"
    if occurrence.state is State.FAILED:
        text += f": {why_ended(occurrence)}"
    elif occurrence.state is not State.SUCCEEDED and occurrence.reason:
        text += f" ({occurrence.reason})"
    return text


def error_text(error: RunError | None) -> str:
    """Return an error on a line."""
    return "" if error is None else f"{error.type}: {error.message}".splitlines()[0]


def why_ended(occurrence: Occurrence) -> str:
    """Return the error of a failed run on a line, or else the reason of its state."""
    return (error_text(occurrence.error) if occurrence.state is State.FAILED else "") or occurrence.reason or ""


def run_state(occurrence: Occurrence) -> str:
    """Return the state of an occurrence with its reason and its progress."""
    text = str(occurrence.state)
    if occurrence.reason:
        text += f": {occurrence.reason}"
    if occurrence.progress is not None and occurrence.state is State.RUNNING:
        text += f", {occurrence.progress[0]:g} of {occurrence.progress[1]:g} done"
    if occurrence.cancel_requested and not occurrence.state.final:
        text += ", asked to stop"
    return text


def took(occurrence: Occurrence | RunView, now: datetime) -> str:
    """Return how long something took, or takes so far."""
    began = occurrence.begun_at if isinstance(occurrence, Occurrence) else occurrence.started_at
    if began is None:
        return ""
    if occurrence.finished_at is not None:
        return brief_duration(occurrence.finished_at - began)
    running = occurrence.state in ACTIVE if isinstance(occurrence, Occurrence) else True
    return f"{brief_duration(now - began)} so far" if running else ""


def what_for(occurrence: Occurrence, zone: tzinfo = UTC) -> str:
    """Return the nominal time of an occurrence in ``zone``, or the key it was enqueued under."""
    if occurrence.scheduled_for is not None:
        return exact_time(occurrence.scheduled_for, zone) + (
            "" if occurrence.origin is Origin.SCHEDULE else f" ({occurrence.origin})"
        )
    if occurrence.parent is not None:
        return f"{short_key(shown_key(occurrence.key))} (item of {occurrence.parent})"
    # A run that was triggered by hand has a random key, which is of no use to people.
    return "by hand" if occurrence.origin is Origin.MANUAL else f"{short_key(occurrence.key)} ({occurrence.origin})"


def short_key(key: str) -> str:
    """Return a key without its middle: keys of a kind differ at their ends, also generated keys."""
    return key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY // 2 - 1]}…{key[-_LONGEST_KEY // 2 :]}"
