"""The demo's verdict: the audit of the ledger, and the runs' own file beside it.

Two counts that know nothing of each other: the audit derives what had to happen from the triggers and reads the
ledger; the trace is what the runs themselves wrote down. They have to say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cronsensus.audit import Report, audit
from cronsensus.cli.demo.comparison import Comparison, compare
from cronsensus.cli.demo.stage import Performance
from cronsensus.cli.demo.trace import Count, count
from cronsensus.stores.base import Store


@dataclass(frozen=True, slots=True)
class Closing:
    """What was found. ``problems`` are sentences; none: everything is as promised."""

    report: Report
    trace: Count
    comparison: Comparison
    performance: Performance
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as promised."""
        return not self.problems

    @property
    def duplicates(self) -> int:
        """Nominal times or occurrences that the ledger, or the runs' own file, has twice."""
        return self.report.duplicates + len(self.comparison.twice)

    @property
    def takeover_seconds(self) -> float | None:
        """The slowest takeover; ``None``: there was none."""
        return max(self.performance.takeovers.values(), default=None)

    def to_json(self, *, nodes: int, seconds: int) -> dict[str, Any]:
        """Return plain JSON values."""
        slowest = self.takeover_seconds
        return {
            "expected": self.report.expected,
            "ran": self.report.ran,
            "succeeded": self.report.succeeded,
            "duplicates": self.duplicates,
            "missed": self.report.missed,
            "takeovers": self.report.takeovers,
            "takeover_seconds": None if slowest is None else round(slowest, 3),
            "kills": len(self.performance.killed),
            "runs_cut": len(self.performance.cut),
            "enqueued": self.report.others,
            "lateness": self.report.lateness.to_json(),
            "trace": {
                "started": self.trace.started,
                "ended": self.trace.ended,
                "cut": len(self.trace.cut),
                "unrecorded": len(self.comparison.unrecorded),
            },
            "nodes": nodes,
            "seconds": seconds,
            "problems": list(self.problems),
            "ok": self.ok,
        }


def close(store: Store, performance: Performance) -> Closing:
    """Judge a performance whose nodes are gone."""
    report = audit(store, until=performance.until)
    until = performance.until
    lines = [
        line for line in performance.lines if line.scheduled_for is None or until is None or line.scheduled_for <= until
    ]
    counted, compared = count(lines), compare(store, lines)
    problems = [finding.sentence for finding in report.findings]
    if report.expected == 0:
        problems.append("nothing was due; play for longer")
    if report.succeeded != report.expected:
        problems.append(f"{report.expected} nominal times were expected, {report.succeeded} succeeded")
    problems += compared.problems
    if not performance.cut:
        problems.append(f"no kill cut a run ({len(performance.killed)} tried)")
    else:
        lost = {line.occurrence for line in performance.cut} - performance.takeovers.keys()
        problems += [f"{job} {key} was cut off and nobody started it again" for job, key in sorted(lost)]
    if not performance.in_order:
        problems.append("a node did not leave when it was asked to, and had to be killed")
    return Closing(report, counted, compared, performance, tuple(problems))
