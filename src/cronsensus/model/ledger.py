"""Values of the ledger and the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cronsensus.model.plan import VerdictRange
from cronsensus.timing.instants import format_instant


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """A stored ``VerdictRange`` with the job it belongs to and when it was decided."""

    id: int
    job: str
    range: VerdictRange
    decided_at: datetime


CLOCK_SET_BACK = "clock set back"
"""The action of an entry that the store itself makes, about no target in particular."""


LOST_MOMENT = "store lost a moment"
"""The action of an entry that a node makes: the store went back to an earlier state, and what came after it is gone."""
STORE_EMPTIED = "store emptied"
"""The action of an entry that a node makes: the store that it knew is gone, and this one began since."""
PRUNE = "prune"
"""The action of an entry for a prune that goes by no ``keep``: what ended before ``until`` may be gone since."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of the store's data that a node noticed.

    Attributes:
        since: the last moment of which the node knows that the store remembers it, by the store's clock; ``None``: not
            known.
        until: when it was noticed.
        emptied: everything is gone: the store is another one now.
        why: by which sign it was noticed.
    """

    since: datetime | None
    until: datetime
    emptied: bool
    why: str

    @property
    def action(self) -> str:
        """Return what the trail calls it."""
        return STORE_EMPTIED if self.emptied else LOST_MOMENT

    @property
    def details(self) -> dict[str, str]:
        """Return the stretch, as the trail keeps it."""
        since = {} if self.since is None else {"from": format_instant(self.since)}
        return since | {"until": format_instant(self.until)}


@dataclass(frozen=True, slots=True)
class Prune:
    """A prune that goes by no job's ``keep``: what ended before a moment may be gone since."""

    before: datetime

    @property
    def action(self) -> str:
        """Return what the trail calls it."""
        return PRUNE

    @property
    def why(self) -> str:
        """Empty: a prune records no reason."""
        return ""

    @property
    def details(self) -> dict[str, str]:
        """Return the moment, as the trail keeps it."""
        return {"until": format_instant(self.before)}


@dataclass(frozen=True, slots=True)
class Identity:
    """Which store this is: made with it, and never again.

    Attributes:
        id: a random text.
        since: when the store was made; its ledger has nothing earlier. ``None``: that is lost.
    """

    id: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """One act of an operator, or of the system in its place: by which name, what, to what, and why.

    Attributes:
        action: the store's verb: ``pause``, ``resume``, ``rewind``, ``trigger``, ``cancel``, ``retry``, ``backfill``,
            ``retire``, ``drain``; ``define`` for ``define_jobs`` with ``by``; ``PRUNE``; or ``CLOCK_SET_BACK``,
            ``LOST_MOMENT``, ``STORE_EMPTIED``.
        target: the name of the job; for ``drain`` the id of the session; empty for what is about the store.
        details: ``occurrence`` holds the id where the act was on one; ``from`` and ``until`` (ISO 8601) the stretch
            that may have come twice where the clock was set back, over which a ``rewind`` took a schedule back, or in
            which the store's loss lies; ``until`` the moment before which a ``prune`` deleted what had ended.
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
