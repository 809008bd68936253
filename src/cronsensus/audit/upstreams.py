"""Did anything begin before what it comes after had ended? Edges are code, so it is asked where there is the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from cronsensus.audit.report import Finding, JobReport
from cronsensus.audit.set_backs import SetBacks
from cronsensus.audit.words import Words
from cronsensus.model.gate import Rule
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import Reason, State
from cronsensus.stores.base import Store

MOST = 100
_AT_THE_GATE = (
    Reason.UPSTREAM_FAILED, Reason.UPSTREAM_SUCCEEDED, Reason.UPSTREAM_SKIPPED, Reason.UPSTREAM_MISSING,
    Reason.UPSTREAM_LATE,
)  # fmt: skip


class Upstreams:
    """Judges one job's runs by those of the jobs that it comes after, for the same nominal time.

    Of other times (``"all_in_period"``, ``"latest_before"``) it judges nothing: which they were said a trigger that may
    have changed since. Nor of times of which the upstream has no occurrence: a verdict range has no end of its own. Nor
    of runs that began before the job was last defined, ``since``: they may have come after other jobs, or after none.
    """

    def __init__(
        self,
        store: Store,
        rules: Sequence[Rule],
        words: Words,
        report: JobReport,
        set_backs: SetBacks,
        *,
        since: datetime | None,
    ) -> None:
        self._store = store
        self._jobs = [rule.job for rule in rules if rule.which == "same"]
        self._words = words
        self._report = report
        self._set_backs = set_backs
        self._since = since

    def judge(self, occurrence: Occurrence, runs: Sequence[RunView]) -> Iterator[Finding]:
        """Give a finding for each upstream before whose first end the occurrence began."""
        at = occurrence.scheduled_for
        if not runs or at is None or _is_skipped_at_its_gate(occurrence):
            return
        started = runs[0].started_at
        if self._since is not None and started < self._since:
            return
        for job in self._jobs:
            where = OccurrenceFilter(job=job, scheduled_from=at, scheduled_until=at)
            # Asked after the runs were read: what had ended by then is known to have.
            found = self._store.occurrences(where, limit=MOST, newest_first=False)
            ends = [one.finished_at for one in found if one.finished_at is not None]
            ended = min(ends, default=None)
            if not found or (ended is not None and ended <= started):
                continue
            finding = self._words.before_upstream(occurrence, started, found[0], ended)
            if ended is not None and self._set_backs.may_have_swapped(started, ended):
                self._report.leave_open(finding)
            else:
                yield finding


def _is_skipped_at_its_gate(occurrence: Occurrence) -> bool:
    """Whether its function was not called: one upstream was enough for that, and others may have gone on."""
    return occurrence.state is State.SKIPPED and (occurrence.reason or "").startswith(_AT_THE_GATE)
