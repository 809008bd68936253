"""What lists and pictures show of many occurrences at once: nothing of it may be long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cronsensus.model.ledger import LedgerRange
from cronsensus.model.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """An occurrence without its arguments, result and error, which may be megabytes each.

    Attributes:
        node: who runs it, or ran it last.
        started_at: when its last attempt started.
    """

    id: int
    job: str
    state: State
    scheduled_for: datetime | None
    due_at: datetime
    crashes: int
    failures: int
    node: str | None
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Past:
    """The end of a job's ledger: its last occurrences and its last verdict ranges, each the newest first."""

    glances: tuple[Glance, ...] = ()
    ranges: tuple[LedgerRange, ...] = ()
