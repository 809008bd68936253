"""The sentences of findings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from cronsensus.audit.report import Finding, Kind
from cronsensus.audit.rows import Row
from cronsensus.model.occurrence import Occurrence, RunView
from cronsensus.model.plan import VerdictRange
from cronsensus.timing.durations import format_duration
from cronsensus.timing.instants import format_instant


class Words:
    """Makes the findings about a job."""

    def __init__(self, job: str) -> None:
        self._job = job

    # --- verdicts -------------------------------------------------------------------------------------------------

    def two_verdicts(self, at: datetime, rows: Sequence[Row], ranges: Sequence[VerdictRange]) -> Finding:
        """A nominal time with more than one verdict."""
        verdicts = [f"occurrence {row.id} ({row.state})" for row in rows] + [
            _range(ledger_range) for ledger_range in ranges
        ]
        sentence = f"{self._at(at)} has {len(verdicts)} verdicts: {', '.join(verdicts)}"
        return self._make_finding("duplicate", at, sentence, *(row.id for row in rows))

    def two_ranges(self, first: datetime, last: datetime, count: int, second: VerdictRange) -> Finding:
        """Two verdict ranges cover the same nominal times."""
        times = f"{self._times(count)} {_from_to(first, last)} {_have(count)}"
        sentence = f"{times} two verdicts: one is {_range(second)}"
        return self._make_finding("duplicate", first, sentence, until=last, count=count)

    def backfilled_again(self, at: datetime, succeeded: int, backfilled: int) -> Finding:
        """A nominal time was backfilled although it had succeeded."""
        sentence = (
            f"{self._at(at)} had succeeded as occurrence {succeeded} and was backfilled as occurrence {backfilled}"
        )
        return self._make_finding("duplicate", at, sentence, succeeded, backfilled)

    def missing(self, first: datetime, last: datetime, count: int, watermark: datetime) -> Finding:
        """Nominal times at or below the watermark without a verdict."""
        time_text = f"at {format_instant(first)}" if count == 1 else _from_to(first, last)
        sentence = (
            f"{self._times(count)} {time_text} {_have(count)} no verdict, although the watermark "
            f"({format_instant(watermark)}) says that all up to it are decided"
        )
        return self._make_finding("missing", first, sentence, until=last, count=count)

    def undecided(self, first: datetime, count: int, watermark: datetime) -> Finding:
        """Nominal times above the watermark that no node decided in time."""
        sentence = (
            f"{self._times(count)} since {format_instant(first)} {_have(count)} passed and no node decided on "
            f"{'it' if count == 1 else 'them'} (the watermark is {format_instant(watermark)}): does any node run?"
        )
        return self._make_finding("missing", first, sentence, count=count)

    def miscounted(self, verdict: VerdictRange, count: int | None) -> Finding:
        """A verdict range whose count differs from the trigger's nominal times there."""
        recorded = verdict.count or 0
        counted = "more" if count is None else count
        sentence = f"{_range(verdict)} of {self._job!r} says {_times(recorded)}, the trigger has {counted} there"
        kind: Kind = "missing" if count is None or count > recorded else "stray"
        difference = 1 if count is None else abs(count - recorded)
        return self._make_finding(kind, verdict.first, sentence, until=verdict.last, count=difference)

    def stray_range(self, at: datetime, verdict: VerdictRange) -> Finding:
        """A verdict range that begins or ends at a time that is no nominal time."""
        sentence = f"{self._not_nominal(at)}, but {_range(verdict)} begins or ends there"
        return self._make_finding("stray", at, sentence)

    def stray(self, row: Row) -> Finding:
        """An occurrence of a time that is no nominal time."""
        sentence = (
            f"{self._not_nominal(row.at)} under the trigger that held then, but occurrence {row.id} ({row.state}) was "
            "made for it"
        )
        return self._make_finding("stray", row.at, sentence, row.id)

    def paused(self, at: datetime, occurrence: int) -> Finding:
        """An occurrence that the schedule made during a pause."""
        sentence = f"{self._at(at)} was made as occurrence {occurrence} while the job was paused"
        return self._make_finding("stray", at, sentence, occurrence)

    # --- runs -----------------------------------------------------------------------------------------------------

    def two_successes(self, occurrence: Occurrence, runs: Sequence[RunView]) -> Finding:
        """An occurrence with more than one succeeded run."""
        tokens = ", ".join(f"token {run.token}" for run in runs)
        return self._about(occurrence, "duplicate", f"succeeded {len(runs)} times ({tokens})")

    def stale(self, occurrence: Occurrence, sentence: str) -> Finding:
        """A write that fencing should have refused."""
        return self._about(occurrence, "stale_write", sentence)

    def early(self, occurrence: Occurrence, started: datetime, due: datetime) -> Finding:
        """A run that started before it was due."""
        ahead = format_duration(due - started)
        return self._about(occurrence, "early", f"started at {format_instant(started)}, {ahead} before it was due")

    def before_upstream(
        self, occurrence: Occurrence, started: datetime, upstream: Occurrence, ended: datetime | None
    ) -> Finding:
        """A run that started before its upstream had ended."""
        end = f"is {upstream.state}" if ended is None else f"ended at {format_instant(ended)}"
        return self._about(
            occurrence,
            "early",
            f"started at {format_instant(started)}, but comes after {upstream.job!r}, whose run {upstream.id} {end}",
        )

    def against_upstream(self, occurrence: Occurrence, upstream: Occurrence) -> Finding:
        """A run that started although its upstream had not ended as its rule demands."""
        sentence = f"ran, but comes after {upstream.job!r}, whose run {upstream.id} is {upstream.state}"
        return self._about(occurrence, "stray", sentence)

    def skipped_wrongly(self, occurrence: Occurrence, upstream: Occurrence) -> Finding:
        """An occurrence that was skipped because of an upstream that had not ended like that."""
        sentence = f"is skipped ({occurrence.reason}), but run {upstream.id} of {upstream.job!r} is {upstream.state}"
        return self._about(occurrence, "missing", sentence)

    def parked(self, occurrence: Occurrence, dependency: str, ago: timedelta) -> Finding:
        """A parked occurrence that waits for nothing any more."""
        duration = format_duration(timedelta(seconds=round(ago.total_seconds())))
        sentence = f"is asleep, but {dependency} ended {duration} ago, and no node woke it: does any node run?"
        return self._about(occurrence, "stuck", sentence)

    def attempts_overlap(self, occurrence: Occurrence, first: RunView, second: RunView) -> Finding:
        """Two attempts of an occurrence at the same time."""
        ended = "had not ended" if first.finished_at is None else f"ended at {format_instant(first.finished_at)}"
        return self._about(
            occurrence,
            "overlap",
            f"had two runs at a time: attempt {second.attempt} (token {second.token}) started at "
            f"{format_instant(second.started_at)}, but attempt {first.attempt} (token {first.token}) {ended}",
        )

    def runs_overlap(self, first: RunView, second: RunView) -> Finding:
        """Two occurrences of a job that forbids overlap ran at the same time."""
        ended = "has not ended" if first.finished_at is None else f"ended at {format_instant(first.finished_at)}"
        sentence = (
            f"{self._job!r} ran twice at a time: occurrence {second.occurrence} started at "
            f"{format_instant(second.started_at)}, but occurrence {first.occurrence} {ended}"
        )
        return self._make_finding("overlap", second.scheduled_for, sentence, first.occurrence, second.occurrence)

    def stuck(self, occurrence: Occurrence, cause: str, ago: timedelta) -> Finding:
        """A run of a dead node that was not taken over."""
        duration = format_duration(timedelta(seconds=round(ago.total_seconds())))
        sentence = f"runs under session {occurrence.session}, {cause} {duration} ago, and no node took it over"
        return self._about(occurrence, "stuck", sentence)

    # --- batches --------------------------------------------------------------------------------------------------

    def orphan(self, item: Occurrence, batch: int) -> Finding:
        """An item whose batch is not there, although neither is old enough to be pruned."""
        return self._about(item, "stray", f"is an item of batch {batch}, which the store does not have")

    def outlived(self, item: Occurrence, ended: datetime, batch: int, batch_ended: datetime) -> Finding:
        """An item that ended after its batch had succeeded."""
        sentence = (
            f"ended at {format_instant(ended)}, after its batch {batch} had succeeded at {format_instant(batch_ended)}"
        )
        return self._about(item, "early", sentence)

    def left_open(self, batch: Occurrence, count: int) -> Finding:
        """A batch that succeeded before its items had ended."""
        sentence = f"is a batch that succeeded, and {count:,} of its items {'is' if count == 1 else 'are'} open"
        return self._about(batch, "stuck", sentence)

    def items_missing(self, batch: Occurrence, count: int, listed: int) -> Finding:
        """A batch that succeeded without some of its items."""
        return self._about(
            batch, "missing", f"is a batch of {listed:,} items that succeeded, and has {count:,} of them"
        )

    # --- parts ----------------------------------------------------------------------------------------------------

    def _make_finding(
        self, kind: Kind, at: datetime | None, sentence: str, *occurrences: int, **fields: Any
    ) -> Finding:
        return Finding(kind=kind, job=self._job, scheduled_for=at, sentence=sentence, occurrences=occurrences, **fields)

    def _about(self, occurrence: Occurrence, kind: Kind, sentence: str) -> Finding:
        at = occurrence.scheduled_for
        name = f"{self._job!r} with key {occurrence.key!r}" if at is None else self._at(at)
        return self._make_finding(kind, at, f"{name} (occurrence {occurrence.id}) {sentence}", occurrence.id)

    def _at(self, at: datetime) -> str:
        return f"{self._job!r} at {format_instant(at)}"

    def _times(self, count: int) -> str:
        return f"{_times(count)} of {self._job!r}"

    def _not_nominal(self, at: datetime) -> str:
        return f"{format_instant(at)} is no nominal time of {self._job!r}"


def _range(verdict: VerdictRange) -> str:
    return f"the range {verdict.state}({verdict.reason}) {_from_to(verdict.first, verdict.last)}"


def _from_to(first: datetime, last: datetime) -> str:
    return f"from {format_instant(first)} to {format_instant(last)}"


def _times(count: int) -> str:
    return f"{count:,} nominal time{'' if count == 1 else 's'}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
