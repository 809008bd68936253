"""The report of an audit: counts, lateness, findings.

Everything here has a bounded size, whatever the ledger holds: counts are exact, and of findings the first
``MOST_FINDINGS`` are kept with their sentences.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from cronsensus.timing.instants import format_instant

MOST_FINDINGS = 1000
MOST_JOBS = 1000
MOST_LEFT_OPEN = 10
"""Most notes of a job on what a clock that was set back leaves open."""

Kind = Literal["duplicate", "missing", "stray", "early", "overlap", "stale_write", "stuck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation of the ledger's rules.

    Attributes:
        scheduled_for: the nominal time, or the first of several; ``None``: there is none.
        until: the last nominal time, if the finding is about several.
        count: how many nominal times (or, for runs, how many runs) it is about.
        occurrences: ids to check.
        sentence: the finding in plain words.
    """

    kind: Kind
    job: str
    sentence: str
    scheduled_for: datetime | None = None
    until: datetime | None = None
    count: int = 1
    occurrences: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "job": self.job,
            "scheduled_for": None if self.scheduled_for is None else format_instant(self.scheduled_for),
            "until": None if self.until is None else format_instant(self.until),
            "count": self.count,
            "occurrences": list(self.occurrences),
            "sentence": self.sentence,
        }


class Lateness:
    """How late first runs started, in seconds: quantiles to within one percent, in a bounded amount of memory."""

    _GROWTH = math.log(1.01)
    _SMALLEST = 1e-6

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self.max = 0.0

    def add(self, seconds: float) -> None:
        """Add a lateness; a negative value counts as zero (the audit reports it as early)."""
        seconds = max(0.0, seconds)
        bucket = math.ceil(math.log(max(seconds, self._SMALLEST) / self._SMALLEST) / self._GROWTH)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1
        self.max = max(self.max, seconds)

    def merge(self, other: Lateness) -> None:
        """Add the values of ``other``."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self._total += other._total
        self.max = max(self.max, other.max)

    def quantile(self, share: float) -> float:
        """Return the lateness that ``share`` of the runs did not exceed; 0 without runs."""
        wanted, seen = math.ceil(share * self._total), 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return 0.0 if bucket <= 0 else min(self.max, self._SMALLEST * math.exp(bucket * self._GROWTH))
        return 0.0

    def to_json(self) -> dict[str, float]:
        """Return ``p50``, ``p99`` and ``max`` in seconds."""
        return {"p50": round(self.quantile(0.5), 6), "p99": round(self.quantile(0.99), 6), "max": round(self.max, 6)}


@dataclass(slots=True)
class _Counts:
    """The counts of a job's report and of the whole one.

    Attributes:
        expected: nominal times, by the triggers alone.
        ran: of these, the ones that were started at least once.
        succeeded, failed, cancelled, skipped: verdicts.
        missed: verdict missed, or no verdict at all.
        pending: not decided yet, waiting, or running.
        duplicates: nominal times with more than one verdict, and occurrences with more than one succeeded run.
        left_open: what looks wrong and may be right, because the store's clock was set back then: see the notes.
        takeovers: runs that were cut off by the death of their node and given up for another to take.
        by_hand: backfilled and retried occurrences, beside the schedule.
        others: occurrences without a nominal time (enqueued, triggered, batch items, …).
        runs: attempts of all these.
    """

    expected: int = 0
    ran: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    missed: int = 0
    pending: int = 0
    duplicates: int = 0
    strays: int = 0
    early: int = 0
    overlaps: int = 0
    stale_writes: int = 0
    stuck: int = 0
    left_open: int = 0
    takeovers: int = 0
    by_hand: int = 0
    others: int = 0
    runs: int = 0


@dataclass(slots=True)
class _Findings(_Counts):
    found: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def ok(self) -> bool:
        """Whether the ledger agrees with the triggers: there are no findings."""
        return self.found == 0

    def _counts_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _COUNTED}, "lateness": self.lateness.to_json()}


_COUNTED = tuple(item.name for item in dataclasses.fields(_Counts))
_COUNTER_OF: dict[Kind, str] = {
    "duplicate": "duplicates",
    "stray": "strays",
    "early": "early",
    "overlap": "overlaps",
    "stale_write": "stale_writes",
    "stuck": "stuck",
}


@dataclass(slots=True)
class JobReport(_Findings):
    """The findings on one job. ``notes`` list what was left out, and why."""

    job: str = ""

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it if there is room."""
        self.found += 1
        if finding.kind in _COUNTER_OF:
            name = _COUNTER_OF[finding.kind]
            setattr(self, name, getattr(self, name) + finding.count)
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def leave_open(self, finding: Finding) -> None:
        """Note a possible finding that is not certain, because the store's clock was set back at that time."""
        self.left_open += 1
        if self.left_open <= MOST_LEFT_OPEN:
            self.notes.append(f"cannot be decided, because the store's clock was set back then: {finding.sentence}")
        elif self.left_open == MOST_LEFT_OPEN + 1:
            self.notes.append("more cannot be decided, because the store's clock was set back")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the findings."""
        return {"job": self.job, **self._counts_json(), "notes": list(self.notes), "ok": self.ok}


@dataclass(slots=True)
class Report(_Findings):
    """All findings of the audit. ``jobs`` holds the first ``MOST_JOBS`` of ``jobs_audited``.

    Attributes:
        since: the beginning of the audited time; ``None``: from the beginning.
        until: the end of the audited time, by the store's clock.
        found: how many findings there are; ``findings`` holds the first ``MOST_FINDINGS``.
    """

    since: datetime | None = None
    until: datetime | None = None
    jobs_audited: int = 0
    jobs: list[JobReport] = field(default_factory=list)

    def add(self, job: JobReport) -> None:
        """Add one job's report."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(job, name))
        self.jobs_audited += 1
        self.found += job.found
        self.findings += job.findings[: MOST_FINDINGS - len(self.findings)]
        self.notes += [f"{job.job}: {note}" for note in job.notes[: max(0, MOST_FINDINGS - len(self.notes))]]
        self.lateness.merge(job.lateness)
        if len(self.jobs) < MOST_JOBS:
            self.jobs.append(job)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: the counts first, then jobs, notes and findings."""
        return {
            **self._counts_json(),
            "from": None if self.since is None else format_instant(self.since),
            "to": None if self.until is None else format_instant(self.until),
            "jobs_audited": self.jobs_audited,
            "jobs": [job.to_json() for job in self.jobs],
            "notes": list(self.notes),
            "findings": [finding.to_json() for finding in self.findings],
            "found": self.found,
            "ok": self.ok,
        }
