"""An interval whose times all processes share."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from apscheduler.triggers.interval import IntervalTrigger


class Aligned(IntervalTrigger):  # type: ignore[misc]
    """Fires at the multiples of its interval since 1970, whenever its process started and whatever fired before."""

    @classmethod
    def like(cls, trigger: Any) -> Aligned:
        """Return the aligned form of an interval."""
        seconds = trigger.interval.total_seconds()
        return cls(seconds=seconds, end_date=trigger.end_date, timezone=trigger.timezone)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the first multiple at or after ``now``, and after the previous one."""
        step = self.interval_length
        at = math.ceil(round(now.timestamp() / step, 9)) * step
        if previous_fire_time is not None and at <= previous_fire_time.timestamp():
            at = (math.floor(round(previous_fire_time.timestamp() / step, 9)) + 1) * step
        found = datetime.fromtimestamp(at, UTC).astimezone(self.timezone)
        return found if self.end_date is None or found <= self.end_date else None
