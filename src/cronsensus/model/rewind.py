"""The step that takes a job's schedule back, after its store's clock was set back."""

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
    """A job's watermark is set back, in one step, or not at all.

    If ``watermark_seen`` or ``revision`` differ by then, or the job is paused, nothing is written.

    Attributes:
        watermark: the new one, not later than the one that was seen. Above it, verdict ranges, scheduled occurrences
            that never started, and pauses are deleted; those times are decided again when they come. Occurrences that
            started stay, so their times are not run again.
        next_due: the next nominal time after it.
        eras: all eras of the job, oldest first. Only the last may begin above the new watermark, at the latest where
            the schedule goes on.
        cut: verdict ranges across the new watermark, with their new ends.
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
