"""Values of the store as plain data for JSON and as cells for a table. Prints nothing."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from math import isfinite
from typing import Any

from cronsensus.cli.output import Cell, word
from cronsensus.handle import Handle
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.waiting import JUST_NOW
from cronsensus.insight.words import brief, exact, relative, shorten
from cronsensus.model.job import JobView, Policies
from cronsensus.model.ledger import TrailEntry
from cronsensus.model.occurrence import Enqueued, Occurrence, RunError, RunView
from cronsensus.model.session import SessionView
from cronsensus.model.states import ACTIVE, Origin, State

LONGEST_CELL = 60
_LONGEST_KEY = 24


def picked(one: object, names: str) -> dict[str, Any]:
    """Return some attributes of an object by name."""
    return {name: getattr(one, name) for name in names.split()}


def job_data(view: JobView, last: Occurrence | None = None) -> dict[str, Any]:
    """Return a job as data."""
    spec, paused = view.spec, None
    if view.paused_at is not None:
        paused = {"at": view.paused_at, "by": view.paused_by, "reason": view.paused_why}
    return {
        **picked(spec, "name function executor source"),
        **picked(view, "active revision watermark horizon created_at retired_at waiting_until"),
        "schedule": None if spec.trigger is None else spec.trigger.describe(),
        "trigger": None if spec.trigger is None else spec.trigger.to_json(),
        "next": None if paused else view.next_due,
        "last": None if last is None else occurrence_data(last),
        "paused": paused,
        "policies": picked(spec.policies, " ".join(item.name for item in dataclasses.fields(Policies))),
    }


def made_data(one: Enqueued | Handle) -> dict[str, Any]:
    """Return what stands under a key as data."""
    return picked(one, "id job key state created")


def job_state(view: JobView) -> Cell:
    """Return whether a job fires, and if not, why not."""
    if view.retired_at is not None and view.waiting_until is not None:
        return Cell(f"retired; what waits is kept until {exact(view.waiting_until)}", word("warn").style)
    if view.retired_at is not None:
        return word("retired")
    if view.paused_at is not None:
        by = f" (by {view.paused_by})" if view.paused_by else ""
        return Cell(f"paused: {view.paused_why or 'no reason given'}{by}", word("paused").style)
    return Cell("active", "green")


def job_next(view: JobView, now: datetime) -> tuple[str, str]:
    """Return when a job fires next: how long that is from now, and the time, in its own zone."""
    if view.retired_at is not None or view.paused_at is not None:
        return "-", ""
    if view.next_due is None:
        return "only when told to" if view.spec.trigger is None else "never again", ""
    late = now - view.next_due
    when = relative(view.next_due, now) if late < JUST_NOW else f"overdue by {brief(late)}"
    return when, exact(view.next_due, zone_of(view.spec.trigger))


def last_result(last: Occurrence | None, now: datetime) -> Cell:
    """Return how the last occurrence ended."""
    if last is None:
        return Cell("")
    text = str(last.state)
    if last.finished_at is not None:
        text += f" {relative(last.finished_at, now)}"
    if last.state is State.FAILED:
        text += f": {why_ended(last)}"
    elif last.state is not State.SUCCEEDED and last.reason:
        text += f" ({last.reason})"
    return Cell(shorten(text, LONGEST_CELL), word(last.state).style)


def error_text(error: RunError | None) -> str:
    """Return an error in one line."""
    return "" if error is None else f"{error.type}: {error.message}".splitlines()[0]


def why_ended(one: Occurrence) -> str:
    """Return the error of what failed in one line, or else the reason of its state."""
    return (error_text(one.error) if one.state is State.FAILED else "") or one.reason or ""


def occurrence_data(one: Occurrence) -> dict[str, Any]:
    """Return an occurrence as data; its arguments and result are left to ``runs show``."""
    return {
        **picked(one, "id job key origin state reason scheduled_for due_at started_at finished_at attempt crashes"),
        **picked(one, "failures token node session cancel_requested retry_of"),
        "seconds": seconds(one.started_at, one.finished_at),
        # A job may say anything, and JSON has no word for infinity.
        "progress": None if one.progress is None else [part if isfinite(part) else None for part in one.progress],
        "error": None if one.error is None else picked(one.error, "type message"),
    }


def run_data(run: RunView) -> dict[str, Any]:
    """Return an attempt as data."""
    return {
        **picked(run, "attempt token node session started_at finished_at end reason"),
        "seconds": seconds(run.started_at, run.finished_at),
        "error": None if run.error is None else dataclasses.asdict(run.error),
    }


def session_data(one: SessionView) -> dict[str, Any]:
    """Return a session as data."""
    names = "node state concurrency functions release version pid host started_at renewed_at expires_in ended_at"
    return {"session": one.id, "runs": one.holds, **picked(one, f"{names} ended_why")}


def trail_data(entry: TrailEntry) -> dict[str, Any]:
    """Return an act of an operator as data."""
    return dataclasses.asdict(entry)


def seconds(start: datetime | None, end: datetime | None) -> float | None:
    """Return the seconds between two instants, if both are there."""
    return None if start is None or end is None else (end - start).total_seconds()


def took(one: Occurrence | RunView, now: datetime) -> str:
    """Return how long something took, or takes so far."""
    if one.started_at is None:
        return ""
    if one.finished_at is not None:
        return brief(one.finished_at - one.started_at)
    running = one.state in ACTIVE if isinstance(one, Occurrence) else True
    return f"{brief(now - one.started_at)} so far" if running else ""


def what_for(one: Occurrence) -> str:
    """Return the nominal time of an occurrence, or the key it was enqueued under."""
    if one.scheduled_for is not None:
        return exact(one.scheduled_for) + ("" if one.origin is Origin.SCHEDULE else f" ({one.origin})")
    # What was triggered by hand has a random key, which tells nothing.
    return "by hand" if one.origin is Origin.MANUAL else f"{_short_key(one.key)} ({one.origin})"


def _short_key(key: str) -> str:
    """Return a key in few characters; keys of one kind differ at their ends, made ones too."""
    return key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY // 2 - 1]}…{key[-_LONGEST_KEY // 2 :]}"
