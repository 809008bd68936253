"""What the ledger and the audit trail return. Floor 1."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cronsensus.model.plan import VerdictRange


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """A stored ``VerdictRange`` with the job it belongs to and when it was decided."""

    id: int
    job: str
    range: VerdictRange
    decided_at: datetime


CLOCK_SET_BACK = "clock set back"
"""The action of an entry that the store itself makes, about no target in particular."""


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """One act of an operator, or of the system in an operator's place: who, what, to what, and why.

    Attributes:
        action: the store's verb: ``pause``, ``resume``, ``trigger``, ``cancel``, ``retry``, ``backfill``, ``retire``,
            ``drain``; ``define`` for ``put_jobs`` in somebody's name; or ``CLOCK_SET_BACK``.
        target: the name of the job; for ``drain`` the id of the session; empty for ``CLOCK_SET_BACK``.
        details: ``occurrence`` holds the id where the act was on one; ``from`` and ``until`` (ISO 8601) the stretch
            that may have come twice where the clock was set back.
    """

    id: int
    at: datetime
    by: str
    action: str
    target: str
    why: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Bounded counts for a front page; each stops counting at ``limit``."""

    jobs: int
    paused: int
    pending: int
    running: int
    sessions: int
    limit: int
