"""Check that runs started, or were skipped, by the rules on their upstreams.

A gate reads the newest occurrence of an upstream's nominal time. The moment is not recorded: it is between the claim
and the end of the run. A run is a finding only if it was against its rules at each of these moments.
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

MOST_OCCURRENCES = 100
GATE_TIME = timedelta(seconds=1)
"""How long after the claim a gate may be evaluated, and how long after its recorded time a commit may come."""
_GATE_REASON_PREFIX = "upstream "
"""The beginning of reasons of runs that were skipped because of an upstream."""
_VERDICTS_OF_REASON: dict[Reason, frozenset[Verdict]] = {
    Reason.UPSTREAM_FAILED: frozenset({"failed", "cancelled"}),
    Reason.UPSTREAM_SUCCEEDED: frozenset({"succeeded"}),
    Reason.UPSTREAM_SKIPPED: frozenset({"skipped"}),
}
"""How an upstream ended, by reason. Other reasons may be about a time without an occurrence, or about a timeout."""


class _GateView(NamedTuple):
    """What a gate sees of an upstream if it is evaluated at a certain moment."""

    verdict: Verdict
    occurrence: Occurrence


class Upstreams:
    """Judges a job's runs by the runs of its upstreams for the same nominal time.

    It goes by the rules that the definition had both at the nominal time and when the run started (its ``eras``): a
    deploy in between is no finding. Rules on other times (``"all_in_period"``, ``"latest_before"``) are not judged,
    because the trigger that chose those times may have changed since. Nor are times without an occurrence of the
    upstream: a verdict range has no end of its own.
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
        """Yield findings. Upstreams are read after the runs, so an upstream that had ended for them has its end."""
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
        """Return the rules of a nominal time that also held at a moment."""
        planned, at_start = ([era.after for era in self._eras if era.since < time][-1:] for time in (at, moment))
        if not planned or not at_start or planned[0] is None or at_start[0] is None:
            return []
        return [rule for rule in planned[0].upstreams if rule.which == "same" and rule in at_start[0].upstreams]

    def _of_begun(self, occurrence: Occurrence, at: datetime, run: RunView, rule: Rule) -> Iterator[Finding]:
        """Judge a run whose function was certainly called."""
        started_at = run.started_at
        latest = started_at + GATE_TIME if run.finished_at is None else min(run.finished_at, started_at + GATE_TIME)
        upstream = self._read(rule.job, at)
        views = _between(upstream, started_at - GATE_TIME, latest)
        if not views or any(view.verdict != "wait" and not is_against(rule, view.verdict) for view in views):
            return
        last_view = views[-1]
        if last_view.verdict == "wait":
            finding = self._words.before_upstream(
                occurrence, started_at, last_view.occurrence, last_view.occurrence.finished_at
            )
        else:
            finding = self._words.against_upstream(occurrence, last_view.occurrence)
        yield from self._unless_swapped(finding, started_at, upstream)

    def _of_skipped(self, occurrence: Occurrence, at: datetime, runs: Sequence[RunView]) -> Iterator[Finding]:
        """Judge an occurrence whose reason is that it was skipped because of an upstream."""
        recorded_reason, _, job = (occurrence.reason or "").partition(": ")
        finished_at = occurrence.finished_at
        fitting_verdicts = next(
            (verdicts for reason, verdicts in _VERDICTS_OF_REASON.items() if reason == recorded_reason), None
        )
        if fitting_verdicts is None or finished_at is None:
            return
        claimed_at = runs[-1].started_at if runs and runs[-1].end == "skipped" else occurrence.created_at
        if all(rule.job != job for rule in self._rules(at, claimed_at)):
            return
        upstream = self._read(job, at)
        views = _between(upstream, claimed_at - GATE_TIME, finished_at)
        if views and all(view.verdict not in fitting_verdicts for view in views):
            finding = self._words.skipped_wrongly(occurrence, views[-1].occurrence)
            yield from self._unless_swapped(finding, finished_at, upstream)

    def _of_parked(self, occurrence: Occurrence, at: datetime) -> Iterator[Finding]:
        """Judge a parked occurrence: it may wait until its upstreams have ended, and no longer."""
        rules = () if self._now is None or self._retired else self._now.upstreams
        if not rules or any(rule.which != "same" for rule in rules):
            return
        last_end = occurrence.created_at
        for rule in rules:
            upstream = self._read(rule.job, at)
            if not upstream or upstream[-1].finished_at is None:
                return
            last_end = max(last_end, upstream[-1].finished_at)
        ended_for = self._store.now() - last_end
        if ended_for > self._tolerance:
            yield self._words.parked(occurrence, "what it comes after", ended_for)

    def _begun(self, occurrence: Occurrence, runs: Sequence[RunView]) -> RunView | None:
        """Return the first run whose function was certainly called; a claim alone does not prove it.

        A run that was cut off, released or cancelled may not have passed its gate.
        """
        for run in runs:
            if run.end in {"succeeded", "retry", "snoozed"}:
                return run
            if run.end == "failed" and not (run.reason or "").startswith(Reason.CRASHED):
                return run
            if run.end == "skipped" and not (run.reason or "").startswith(_GATE_REASON_PREFIX):
                return run
            if run.end is None and occurrence.state is State.RUNNING and not occurrence.reserved:
                return run if self._store.now() - run.started_at > self._tolerance else None
        return None

    def _read(self, job: str, at: datetime) -> list[Occurrence]:
        """Return an upstream's occurrences of a nominal time, in the order of creation."""
        of_time = OccurrenceFilter(job=job, scheduled_from=at, scheduled_until=at)
        return self._store.occurrences(of_time, limit=MOST_OCCURRENCES, newest_first=False)

    def _unless_swapped(self, finding: Finding, moment: datetime, upstream: Sequence[Occurrence]) -> Iterator[Finding]:
        """Yield a finding, unless the clock was set back, so that the order of events is not certain."""
        times = [time for run in upstream for time in (run.created_at, run.finished_at) if time is not None]
        if any(self._set_backs.may_have_swapped(min(moment, time), max(moment, time)) for time in times):
            self._report.leave_open(finding)
        else:
            yield finding


def _between(upstream: Sequence[Occurrence], since: datetime, until: datetime) -> list[_GateView]:
    """Return what a gate may have seen between two moments, both included; empty: that is not known.

    If the first occurrence of a time was not made by its schedule, there may have been another before, or a range.
    """
    if not upstream:
        return []
    times = {time for run in upstream for time in (run.created_at, run.finished_at) if time is not None}
    views = []
    for moment in sorted({since, *(time for time in times if since < time <= until)}):
        created = [run for run in upstream if run.created_at <= moment]
        if not created and not (upstream[0].origin is Origin.SCHEDULE and upstream[0].retry_of is None):
            return []
        newest = created[-1] if created else upstream[0]
        has_ended = newest.finished_at is not None and newest.finished_at <= moment
        views.append(_GateView(cast("Verdict", str(newest.state)) if has_ended else "wait", newest))
    return views


def _is_skipped_at_its_gate(occurrence: Occurrence) -> bool:
    """Whether its gate skipped it. A single upstream is enough for that, and others may have gone on."""
    return occurrence.state is State.SKIPPED and (occurrence.reason or "").startswith(_GATE_REASON_PREFIX)
