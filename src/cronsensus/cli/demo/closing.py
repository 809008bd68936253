"""The demo's verdict: the audit of the ledger, and the runs' own file beside it. Floor 7.

Two counts that know nothing of each other: the audit derives what had to happen from the triggers and reads the
ledger; the trace is what the runs themselves wrote down. They have to say the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from cronsensus.audit import Report, audit
from cronsensus.cli.demo.stage import Performance
from cronsensus.cli.demo.trace import Count, Line, count
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

PAGE = 500


@dataclass(frozen=True, slots=True)
class Closing:
    """What was found. ``problems`` are sentences; none: everything is as promised."""

    report: Report
    trace: Count
    performance: Performance
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as promised."""
        return not self.problems

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
            "duplicates": self.report.duplicates + len(self.trace.twice),
            "missed": self.report.missed,
            "takeovers": self.report.takeovers,
            "takeover_seconds": None if slowest is None else round(slowest, 3),
            "kills": len(self.performance.killed),
            "runs_cut": len(self.performance.cut),
            "enqueued": self.report.others,
            "lateness": self.report.lateness.to_json(),
            "trace": {"started": self.trace.started, "ended": self.trace.ended, "cut": len(self.trace.cut)},
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
    counted = count(lines)
    problems = [finding.sentence for finding in report.findings]
    if report.expected == 0:
        problems.append("nothing was due; play for longer")
    if report.succeeded != report.expected:
        problems.append(f"{report.expected} nominal times were expected, {report.succeeded} succeeded")
    problems += [f"{job} {key} reached its end more than once, says the runs' own file" for job, key in counted.twice]
    problems += _compare(store, lines)
    if not performance.cut:
        problems.append(f"no kill cut a run ({len(performance.killed)} tried)")
    else:
        lost = {line.occurrence for line in performance.cut} - performance.takeovers.keys()
        problems += [f"{job} {key} was cut off and nobody started it again" for job, key in sorted(lost)]
    if not performance.in_order:
        problems.append("a node did not leave when it was asked to, and had to be killed")
    return Closing(report, counted, performance, tuple(problems))


def _compare(store: Store, lines: list[Line]) -> list[str]:
    """Compare the ledger with the trace, occurrence by occurrence."""
    problems = []
    ends = Counter(line.occurrence for line in lines if line.event == "end")
    under = {line.occurrence: line.token for line in lines if line.event == "end"}
    seen = {line.occurrence for line in lines}
    after: int | None = None
    while page := store.occurrences(OccurrenceFilter(), after=after, limit=PAGE, newest_first=False):
        for one in page:
            mine = (one.job, one.key)
            if mine not in seen and one.state is not State.SUCCEEDED:
                continue
            if one.state is State.SUCCEEDED and mine in seen:
                if ends[mine] == 0:
                    problems.append(
                        f"{one.job} {one.key} is succeeded in the ledger, and never ended in the runs' own file"
                    )
                elif under[mine] != one.token:
                    problems.append(f"{one.job} {one.key} ended under token {under[mine]}, the ledger has {one.token}")
            seen.discard(mine)
        after = page[-1].id
    problems += [f"{job} {key} ran, and the ledger does not know it" for job, key in sorted(seen)]
    return problems
