"""Jobs, runs, sessions and acts as plain data for JSON."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from cronsensus.insight.batches import BatchView, counts_of
from cronsensus.insight.failures import FailureGroup
from cronsensus.insight.ledger import LedgerLine
from cronsensus.insight.life import Life
from cronsensus.insight.run_list import RunPage
from cronsensus.insight.summaries import error_text
from cronsensus.jobs.handle import Handle
from cronsensus.model.job import JobView, Policies
from cronsensus.model.ledger import TrailEntry
from cronsensus.model.occurrence import Enqueued, LogLine, Occurrence, RunView
from cronsensus.model.session import SessionView
from cronsensus.security.masking import mask_data
from cronsensus.timing.instants import format_instant


def pick_fields(source: object, names: str) -> dict[str, Any]:
    """Return some attributes of an object by name."""
    return {name: getattr(source, name) for name in names.split()}


def job_data(view: JobView, last: Occurrence | None = None) -> dict[str, Any]:
    """Return a job as data."""
    spec, paused = view.spec, None
    if view.paused_at is not None:
        paused = {"at": view.paused_at, "by": view.paused_by, "reason": view.paused_why}
    return {
        **pick_fields(spec, "name function executor source"),
        **pick_fields(view, "active revision watermark horizon created_at retired_at waiting_until"),
        "schedule": None if spec.trigger is None else spec.trigger.describe(),
        "trigger": None if spec.trigger is None else spec.trigger.to_json(),
        "next": None if paused else view.next_due,
        "last": None if last is None else occurrence_data(last),
        "paused": paused,
        "policies": pick_fields(spec.policies, " ".join(item.name for item in dataclasses.fields(Policies))),
    }


def made_data(made: Enqueued | Handle) -> dict[str, Any]:
    """Return what an enqueue made, or found under its key, as data."""
    return pick_fields(made, "id job key state created")


def occurrence_data(occurrence: Occurrence) -> dict[str, Any]:
    """Return an occurrence as data; its arguments and result are left to ``runs show``."""
    return {
        **pick_fields(
            occurrence, "id job key origin state reason scheduled_for due_at started_at finished_at attempt crashes"
        ),
        **pick_fields(occurrence, "failures token node session cancel_requested retry_of retried_as"),
        "parent": occurrence.parent,
        "listed": occurrence.listed,
        "parked_on": occurrence.parked_on,
        "reserved": occurrence.reserved,
        "seconds": seconds_between(occurrence.started_at, occurrence.finished_at),
        # A job may report any number as its progress, and JSON has no infinity.
        "progress": None
        if occurrence.progress is None
        else [part if isfinite(part) else None for part in occurrence.progress],
        "error": None if occurrence.error is None else pick_fields(occurrence.error, "type message"),
    }


def batch_data(batch: BatchView) -> dict[str, Any]:
    """Return the progress of a batch as data."""
    return {
        **pick_fields(batch.children, "listed pending running succeeded failed cancelled skipped"),
        "done": batch.done,
        "total": batch.children.total,
        "nodes": batch.running,
        "failed_keys": list(batch.failed.values()),
        "items_per_second": batch.rate,
        "seconds_left": None if batch.left is None else batch.left.total_seconds(),
    }


def run_data(run: RunView) -> dict[str, Any]:
    """Return an attempt as data."""
    return {
        **pick_fields(run, "attempt token node session started_at finished_at end reason"),
        "seconds": seconds_between(run.started_at, run.finished_at),
        "error": None if run.error is None else dataclasses.asdict(run.error),
    }


def session_data(session: SessionView, life: Life | None) -> dict[str, Any]:
    """Return a session as data; ``life``: what is known of it, if it has not ended."""
    names = "node state concurrency functions release version tzdata zones pid host started_at renewed_at "
    known = {} if life is None else life_data(session, life)
    return {
        "session": session.id,
        "runs": session.holds,
        **pick_fields(session, f"{names} expires_in ended_at ended_why"),
        **known,
    }


def life_data(session: SessionView, life: Life) -> dict[str, Any]:
    """Return what is known of a session that has not ended as data."""
    state = session.state if life.is_alive else life.state
    seen, sentence = life.seen.total_seconds(), str(life.sentence)
    return {"state": state, "seen_ago": seen, "known_by": life.known_by, "sentence": sentence}


def trail_data(entry: TrailEntry) -> dict[str, Any]:
    """Return an act of an operator as data."""
    return {**dataclasses.asdict(entry), "details": mask_data(entry.details)}


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    """Return the seconds between two instants, if both are there."""
    return None if start is None or end is None else (end - start).total_seconds()


def line_data(line: LedgerLine) -> dict[str, Any]:
    """Return a line of the ledger as data."""
    occurrence = line.occurrence
    data: dict[str, Any] = {
        **pick_fields(line, "count reason decided_at"),
        "scheduled_for": line.first,
        "until": line.last if line.last != line.first else None,
        "verdict": line.state,
    }
    if occurrence is not None:
        data |= {
            **pick_fields(occurrence, "origin node crashes token started_at finished_at retry_of"),
            "run": occurrence.id,
            "attempts": occurrence.attempt,
            "started_after": None if line.first_start is None else line.first_start - line.first,
            "seconds": seconds_between(occurrence.started_at, occurrence.finished_at),
            "error": error_text(occurrence.error) or None,
            "items": None if line.items is None else counts_of(line.items),
        }
    return data


def log_data(sequence: int, attempt: int, line: LogLine) -> dict[str, Any]:
    """Return a log line as data."""
    return {"sequence": sequence, "attempt": attempt, "at": line.at, "level": line.level, "text": line.text}


def failures_data(group: FailureGroup) -> dict[str, Any]:
    """Return a group of failures; ``runs`` holds their ids, the newest first."""
    return {
        "error": group.fingerprint,
        "type": group.type,
        "message": group.message,
        "place": group.place,
        "jobs": group.jobs,
        "runs": [run.id for run in group.runs],
        "last": group.runs[0].finished_at,
    }


def json_leaf(value: Any) -> Any:
    """Convert a value that JSON has no form for: instants to ISO 8601 with Z, durations to seconds."""
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def run_page_data(page: RunPage) -> dict[str, Any]:
    """Return a page of runs; ``stopped``: only ``read`` runs were read, and more may match."""
    return {
        "runs": [occurrence_data(run) for run in page.runs],
        "after": page.after,
        "read": page.read,
        "stopped": page.stopped,
    }
