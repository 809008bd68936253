"""The audit of all jobs as a page: made on request, and kept for the next requests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.audit import JobReport, Report, audit
from cronsensus.insight.time_words import brief_duration
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.durations import parse_duration

SPANS = {"1h": "The last hour", "1d": "The last day", "7d": "The last 7 days", "30d": "The last 30 days"}
"""How far back an audit may go, each with its title."""
COUNT_COLUMNS = {
    "expected": "Nominal times", "succeeded": "Succeeded", "failed": "Failed", "missed": "Missed", "skipped": "Skipped",
    "cancelled": "Cancelled", "pending": "Not over", "takeovers": "Taken over", "duplicates": "Duplicates",
}  # fmt: skip
"""The counts that are shown, each with its title."""
KEPT_SECONDS = 10.0
"""Seconds for which an audit is shown again: it may take long, and people reload."""
WAIT_SECONDS = 2.0
"""Seconds that a request waits for the audit of another: reloads must not use up all threads."""
MOST_SHOWN = 200
"""Jobs that are shown, those in trouble first; all are counted."""


@dataclass(frozen=True, slots=True)
class Audited:
    """An audit of all jobs, and when it was made.

    Attributes:
        at: by the store's clock.
    """

    span: str
    report: Report
    at: datetime

    @property
    def jobs(self) -> Sequence[JobReport]:
        """The jobs that are shown: those with findings, failures and misses first, then by name."""
        worst_first = sorted(self.report.jobs, key=lambda job: (not job.found, not job.failed, not job.missed, job.job))
        return worst_first[:MOST_SHOWN]

    @property
    def late(self) -> list[str]:
        """How late attempts started: the median, the 99th percentile, and the maximum."""
        late = self.report.lateness
        return [
            brief_duration(timedelta(seconds=seconds))
            for seconds in (late.quantile(0.5), late.quantile(0.99), late.max)
        ]


class Audits:
    """The last audit. Only a single audit is made at a time."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._making = threading.Lock()
        self._last: tuple[Audited, float] | None = None

    @property
    def last(self) -> Audited | None:
        """The last audit; ``None``: none was requested yet."""
        return None if self._last is None else self._last[0]

    def make_audit(self, store: Store, span: str) -> Audited | None:
        """Return an audit of the last ``span``, one of ``SPANS``; ``None``: another audit is still being made."""
        if not self._making.acquire(timeout=WAIT_SECONDS):
            return None
        try:
            if self._last is not None:
                audited, made_at = self._last
                if audited.span == span and self._clock.monotonic() - made_at < KEPT_SECONDS:
                    return audited
            now = store.now()
            report = audit(store, since=now - parse_duration(span), until=now)
            audited = Audited(span, report, now)
            self._last = audited, self._clock.monotonic()
            return audited
        finally:
            self._making.release()
