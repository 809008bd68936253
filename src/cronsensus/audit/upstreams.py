"""Did anything begin, or not run, against what it comes after?

A gate reads the newest occurrence of an upstream's nominal time. When it did so is not recorded: at some moment between
the claim and the end of its run. A run is accused only if it was against its rules at each of these moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, cast

from cronsensus.audit.finding_words import Words
from cronsensus.audit.report import Finding, JobReport
from cronsensus.audit.set_backs import SetBacks
from cronsensus.model.gate import Rule, Verdict, is_against
from cronsensus.model.job import Era, JobView
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import Origin, Reason, State
from cronsensus.stores.base import Store

MOST = 100
GATE = timedelta(seconds=1)
"""How long a gate may take to be asked after the claim, and a commit may follow the time that it bears."""
_AT_THE_GATE = "upstream "
"""How reasons begin of what was skipped because of an upstream."""
_SAYS: dict[Reason, frozenset[Verdict]] = {
    Reason.UPSTREAM_FAILED: frozenset({"failed", "cancelled"}),
    Reason.UPSTREAM_SUCCEEDED: frozenset({"succeeded"}),
    Reason.UPSTREAM_SKIPPED: frozenset({"skipped"}),
}
"""What reasons say of an upstream. The others may be about a time without an occurrence, or about how long it took."""


class _Seen(NamedTuple):
    """What a gate saw of an upstream if it was asked at one moment; without an occurrence: that it is not there yet."""

    verdict: Verdict
    occurrence: Occurrence


class Upstreams:
    """Judges one job's runs by those of the jobs that it comes after, for the same nominal time.

    By the rules that its definition had both at the nominal time and when the run began (its ``eras``): a deploy in
    between accuses nobody. Of other times (``"all_in_period"``, ``"latest_before"``) it judges nothing: which they were
    said a trigger that may have changed since. Nor of times of which the upstream has no occurrence: a verdict range
    has no end of its own.
    """

    def __init__(
        self,
        store: Store,
        job: JobView,
        eras: Sequence[Era],
        words: Words,
        report: JobReport,
        *,
        set_backs: SetBacks,
        tolerance: timedelta,
    ) -> None:
        self._store = store
        self._eras = [era for era in eras if era.trigger is not None or era.after is not None]
        self._now = job.spec.after
        self._retired = job.retired_at is not None
        self._words = words
        self._report = report
        self._set_backs = set_backs
        self._tolerance = tolerance

    def judge(self, occurrence: Occurrence, runs: Sequence[RunView]) -> Iterator[Finding]:
        """Yield what is wrong. Upstreams are read after the runs: what had ended for them is known to have."""
        at = occurrence.scheduled_for
        if at is None or not any(era.after for era in self._eras):
            return
        if occurrence.is_parked and occurrence.parked_on == "upstreams":
            yield from self._of_parked(occurrence, at)
        elif _is_skipped_at_its_gate(occurrence):
            yield from self._of_skipped(occurrence, at, runs)
        elif (run := self._begun(occurrence, runs)) is not None:
            for rule in self._rules(at, run.started_at):
                yield from self._of_begun(occurrence, at, run, rule)

    def _rules(self, at: datetime, moment: datetime) -> list[Rule]:
        """Return the rules of a nominal time that stood at a moment, too."""
        planned, then = ([era.after for era in self._eras if era.since < time][-1:] for time in (at, moment))
        if not planned or not then or planned[0] is None or then[0] is None:
            return []
        return [rule for rule in planned[0].upstreams if rule.which == "same" and rule in then[0].upstreams]

    def _of_begun(self, occurrence: Occurrence, at: datetime, run: RunView, rule: Rule) -> Iterator[Finding]:
        """Judge a run of which it is known that its function was called."""
        started = run.started_at
        until = started + GATE if run.finished_at is None else min(run.finished_at, started + GATE)
        upstream = self._read(rule.job, at)
        seen = _between(upstream, started - GATE, until)
        if not seen or any(one.verdict != "wait" and not is_against(rule, one.verdict) for one in seen):
            return
        last = seen[-1]
        if last.verdict == "wait":
            finding = self._words.before_upstream(occurrence, started, last.occurrence, last.occurrence.finished_at)
        else:
            finding = self._words.against_upstream(occurrence, last.occurrence)
        yield from self._unless_swapped(finding, started, upstream)

    def _of_skipped(self, occurrence: Occurrence, at: datetime, runs: Sequence[RunView]) -> Iterator[Finding]:
        """Judge one that says that it was skipped because of an upstream."""
        said, _, job = (occurrence.reason or "").partition(": ")
        ended = occurrence.finished_at
        says = next((verdicts for reason, verdicts in _SAYS.items() if reason == said), None)
        if says is None or ended is None:
            return
        claimed = runs[-1].started_at if runs and runs[-1].end == "skipped" else occurrence.created_at
        if all(rule.job != job for rule in self._rules(at, claimed)):
            return
        upstream = self._read(job, at)
        seen = _between(upstream, claimed - GATE, ended)
        if seen and all(one.verdict not in says for one in seen):
            finding = self._words.skipped_wrongly(occurrence, seen[-1].occurrence)
            yield from self._unless_swapped(finding, ended, upstream)

    def _of_parked(self, occurrence: Occurrence, at: datetime) -> Iterator[Finding]:
        """Judge one that waits to be woken: until its upstreams have ended, and no longer."""
        rules = () if self._now is None or self._retired else self._now.upstreams
        if not rules or any(rule.which != "same" for rule in rules):
            return
        last = occurrence.created_at
        for rule in rules:
            upstream = self._read(rule.job, at)
            if not upstream or upstream[-1].finished_at is None:
                return
            last = max(last, upstream[-1].finished_at)
        ago = self._store.now() - last
        if ago > self._tolerance:
            yield self._words.parked(occurrence, "what it comes after", ago)

    def _begun(self, occurrence: Occurrence, runs: Sequence[RunView]) -> RunView | None:
        """Return the first run of which it is known that a function was called; a claim alone is none.

        A run that was cut off, given back or cancelled may have stood before its gate still.
        """
        for run in runs:
            if run.end in {"succeeded", "retry", "snoozed"}:
                return run
            if run.end == "failed" and not (run.reason or "").startswith(Reason.CRASHED):
                return run
            if run.end == "skipped" and not (run.reason or "").startswith(_AT_THE_GATE):
                return run
            if run.end is None and occurrence.state is State.RUNNING and not occurrence.reserved:
                return run if self._store.now() - run.started_at > self._tolerance else None
        return None

    def _read(self, job: str, at: datetime) -> list[Occurrence]:
        """Return what there is of an upstream's nominal time, in the order of its making."""
        where = OccurrenceFilter(job=job, scheduled_from=at, scheduled_until=at)
        return self._store.occurrences(where, limit=MOST, newest_first=False)

    def _unless_swapped(self, finding: Finding, moment: datetime, upstream: Sequence[Occurrence]) -> Iterator[Finding]:
        """Yield a finding, unless a clock that was set back leaves open what came before what."""
        times = [time for one in upstream for time in (one.created_at, one.finished_at) if time is not None]
        if any(self._set_backs.may_have_swapped(min(moment, time), max(moment, time)) for time in times):
            self._report.leave_open(finding)
        else:
            yield finding


def _between(upstream: Sequence[Occurrence], since: datetime, until: datetime) -> list[_Seen]:
    """Return what a gate may have seen between two moments, included; nothing: that cannot be known.

    A time whose first occurrence there is was not made by its schedule may have had another one before, or a range.
    """
    if not upstream:
        return []
    times = {time for one in upstream for time in (one.created_at, one.finished_at) if time is not None}
    seen = []
    for moment in sorted({since, *(time for time in times if since < time <= until)}):
        made = [one for one in upstream if one.created_at <= moment]
        if not made and not (upstream[0].origin is Origin.SCHEDULE and upstream[0].retry_of is None):
            return []
        newest = made[-1] if made else upstream[0]
        has_ended = newest.finished_at is not None and newest.finished_at <= moment
        seen.append(_Seen(cast("Verdict", str(newest.state)) if has_ended else "wait", newest))
    return seen


def _is_skipped_at_its_gate(occurrence: Occurrence) -> bool:
    """Whether its function was not called: one upstream was enough for that, and others may have gone on."""
    return occurrence.state is State.SKIPPED and (occurrence.reason or "").startswith(_AT_THE_GATE)
