"""An occurrence as a verdict, and how verdicts are counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cronsensus.audit.report import JobReport
from cronsensus.model.occurrence import Occurrence, scheduled_key
from cronsensus.model.states import Origin, State

_COUNTERS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.SKIPPED: "skipped",
    State.MISSED: "missed",
    State.PENDING: "pending",
    State.RUNNING: "pending",
}


@dataclass(frozen=True, slots=True)
class Row:
    """The attributes of an occurrence that a verdict needs; without arguments and results, which may be large."""

    id: int
    at: datetime
    origin: Origin
    state: State
    started: bool
    under_its_key: bool
    is_retry: bool
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, occurrence: Occurrence, at: datetime) -> Row:
        """Return the row of an occurrence of the nominal time ``at``."""
        return cls(
            id=occurrence.id,
            at=at,
            origin=occurrence.origin,
            state=occurrence.state,
            started=occurrence.attempt > 0,
            under_its_key=occurrence.key == scheduled_key(at),
            is_retry=occurrence.retry_of is not None,
            created_at=occurrence.created_at,
            finished_at=occurrence.finished_at,
        )

    @property
    def scheduled(self) -> bool:
        """Whether the schedule made it."""
        return self.origin is Origin.SCHEDULE and not self.is_retry


def tally(report: JobReport, state: State, number: int) -> None:
    """Count ``number`` nominal times with the verdict ``state``."""
    report.expected += number
    name = _COUNTERS[state]
    setattr(report, name, getattr(report, name) + number)


def succeeded_before(backfill: Row, rows: list[Row]) -> Row | None:
    """Return an occurrence of the same nominal time that had succeeded when ``backfill`` was made."""
    for row in rows:
        done = row.state is State.SUCCEEDED and row.finished_at is not None and row.finished_at <= backfill.created_at
        if row.id < backfill.id and done:
            return row
    return None
