"""The step that takes a job's schedule back, after its store's clock was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.model.job import Era
from cronsensus.model.ledger import LedgerRange
from cronsensus.timing.instants import format_instant

AHEAD = timedelta(seconds=60)
"""A watermark so far above the store's now is ahead: a node decides a time at most a second before it comes."""
REWIND = "rewind"
"""What the trail calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """A step back in a job's life: carried out whole, or not at all.

    ``watermark_seen`` and ``revision`` are what it rests on; a job that is paused is left alone.

    Attributes:
        watermark: the new one, not later than the one that was seen. Above it verdicts are withdrawn on times that did
            not run, ranges and scheduled occurrences that never began: each is decided when its time comes. Pauses
            above it are forgotten. What began stays, and with it its key: a time that has one gets no other.
        next_due: the next nominal time after it.
        eras: all of the job's, oldest first; none begins above the new watermark but the last, and that at the latest
            where the schedule goes on.
        cut: ranges that reach across the new watermark, as they end now.
    """

    job: str
    revision: int
    watermark_seen: datetime
    watermark: datetime
    next_due: datetime | None
    eras: tuple[Era, ...]
    cut: tuple[LedgerRange, ...] = ()

    @property
    def details(self) -> dict[str, str]:
        """Return the stretch that was taken back, as the trail keeps it."""
        return {"from": format_instant(self.watermark), "until": format_instant(self.watermark_seen)}
