"""The trigger ``at``: a single nominal time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cronsensus.timing.durations import Duration
from cronsensus.timing.instants import as_utc, format_instant
from cronsensus.triggers.base import Trigger
from cronsensus.triggers.bounds import (
    bounds_in_words,
    bounds_to_json,
    names_without_zone,
    read_duration,
    read_instant_default_utc,
)
from cronsensus.triggers.options import refuse_unknown_options


@dataclass(frozen=True, slots=True, kw_only=True)
class At(Trigger):
    """Gives a single instant. Made by ``at``."""

    instant: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the instant if it is still to come."""
        return self.instant if as_utc(instant) < self.instant else None

    def describe(self) -> str:
        """Return the instant in ISO 8601."""
        return f"once at {format_instant(self.instant)}{bounds_in_words(None, None, self.jitter)}"

    def to_json(self) -> dict[str, Any]:
        """Return the kind ``at``."""
        return {"kind": "at", "instant": format_instant(self.instant), **bounds_to_json(None, None, self.jitter)}


_WRITE_INSTEAD = {
    **dict.fromkeys(("run_date", "eta", "date", "when", "time"), "the instant first: at('2026-12-31T00:00:00Z')"),
    **dict.fromkeys(("timezone", "tz"), "the offset into the instant: at('2026-12-31T00:00:00+01:00')"),
}


@refuse_unknown_options(_WRITE_INSTEAD)
def at(instant: datetime | str, *, jitter: Duration = 0) -> Trigger:
    """Return a trigger for a single instant.

    Example:
        >>> at("2026-11-20T21:00:00+08:00").describe()
        'once at 2026-11-20T13:00:00Z'

    Args:
        instant: an aware datetime, or ISO 8601 text. Text without an offset is of the ``tz`` of the scheduler that
            gets the trigger, which is UTC unless it says otherwise.
        jitter: the run may be started up to this much later.

    Raises:
        InvalidTrigger: ``instant`` is naive or cannot be read.
    """
    return At(
        instant=read_instant_default_utc(instant, "instant"),
        jitter=read_duration(jitter, "jitter"),
        walls=names_without_zone(instant=instant),
    )
