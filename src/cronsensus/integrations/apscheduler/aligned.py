"""An interval whose times all processes share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apscheduler.triggers.interval import IntervalTrigger

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Aligned(IntervalTrigger):  # type: ignore[misc]
    """Fires at the multiples of its interval since its ``start_date``, whatever fired before.

    APScheduler counts from the time before: after one run at another time (``modify_job(next_run_time=now)``) a process
    would keep times of its own for good, and each time would be run twice.
    """

    @classmethod
    def like(cls, trigger: Any, *, since: datetime) -> Aligned:
        """Return the aligned form of an interval, which counts from ``since``."""
        seconds = trigger.interval.total_seconds()
        return cls(seconds=seconds, start_date=since, end_date=trigger.end_date, timezone=trigger.timezone)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the first multiple after the previous one; without one, at or after ``now``."""
        # Times of one zone are subtracted by what its clocks show, so over a clock change only UTC is right.
        start = self.start_date.astimezone(UTC)
        if previous_fire_time is None:
            number = -(-(now.astimezone(UTC) - start) // self.interval)
        else:
            number = (previous_fire_time.astimezone(UTC) - start) // self.interval + 1
        found = (start + max(number, 0) * self.interval).astimezone(self.timezone)
        return found if self.end_date is None or found <= self.end_date else None
