"""The findings in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from cronsensus.audit.report import Finding, Kind
from cronsensus.durations import format_duration
from cronsensus.instants import format_instant
from cronsensus.model.occurrence import Occurrence, RunView
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import State


class Standing(Protocol):
    """An occurrence as far as a sentence names it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def state(self) -> State:
        """Where it stands."""

    @property
    def at(self) -> datetime:
        """Its nominal time."""


class Words:
    """Makes the findings about one job."""

    def __init__(self, job: str) -> None:
        self._job = job

    # --- verdicts -------------------------------------------------------------------------------------------------

    def two_verdicts(self, at: datetime, rows: Sequence[Standing], ranges: Sequence[VerdictRange]) -> Finding:
        """One nominal time, more than one verdict."""
        verdicts = [f"occurrence {row.id} ({row.state})" for row in rows] + [_range(one) for one in ranges]
        return Finding(
            kind="duplicate",
            job=self._job,
            scheduled_for=at,
            occurrences=tuple(row.id for row in rows),
            sentence=f"{self._at(at)} has {len(verdicts)} verdicts: {', '.join(verdicts)}",
        )

    def two_ranges(self, first: datetime, last: datetime, count: int, second: VerdictRange) -> Finding:
        """Two verdict ranges speak for the same nominal times."""
        return Finding(
            kind="duplicate",
            job=self._job,
            scheduled_for=first,
            until=last,
            count=count,
            sentence=f"{_times(count)} of {self._job!r} {_from_to(first, last)} {_have(count)} "
            f"two verdicts: one is {_range(second)}",
        )

    def backfilled_again(self, at: datetime, done: int, again: int) -> Finding:
        """A nominal time was backfilled although it had succeeded."""
        return Finding(
            kind="duplicate",
            job=self._job,
            scheduled_for=at,
            occurrences=(done, again),
            sentence=f"{self._at(at)} had succeeded as occurrence {done} and was backfilled as occurrence {again}",
        )

    def missing(self, first: datetime, last: datetime, count: int, watermark: datetime) -> Finding:
        """Nominal times at or below the watermark without a verdict."""
        where = f"at {format_instant(first)}" if count == 1 else _from_to(first, last)
        return Finding(
            kind="missing",
            job=self._job,
            scheduled_for=first,
            until=last,
            count=count,
            sentence=f"{_times(count)} of {self._job!r} {where} {_have(count)} no verdict, although the watermark "
            f"({format_instant(watermark)}) says that all up to it are decided",
        )

    def undecided(self, first: datetime, count: int, watermark: datetime) -> Finding:
        """Nominal times above the watermark that no node decided in time."""
        return Finding(
            kind="missing",
            job=self._job,
            scheduled_for=first,
            count=count,
            sentence=f"{_times(count)} of {self._job!r} since {format_instant(first)} {_have(count)} passed and nobody "
            f"decided on {'it' if count == 1 else 'them'} (the watermark is {format_instant(watermark)}): "
            "does any node run?",
        )

    def miscounted(self, verdict: VerdictRange, count: int | None) -> Finding:
        """A verdict range that says another number of nominal times than the trigger has there."""
        said = verdict.count or 0
        more = count is None or count > said
        return Finding(
            kind="missing" if more else "stray",
            job=self._job,
            scheduled_for=verdict.first,
            until=verdict.last,
            count=abs(count - said) if count is not None else 1,
            sentence=f"{_range(verdict)} of {self._job!r} says {_times(said)}, "
            f"the trigger has {'more' if count is None else count} there",
        )

    def stray_range(self, at: datetime, verdict: VerdictRange) -> Finding:
        """A verdict range that begins or ends at something that is no nominal time."""
        return Finding(
            kind="stray",
            job=self._job,
            scheduled_for=at,
            sentence=f"{format_instant(at)} is no nominal time of {self._job!r}, "
            f"but {_range(verdict)} begins or ends there",
        )

    def stray(self, row: Standing) -> Finding:
        """An occurrence of a time that is no nominal time."""
        return Finding(
            kind="stray",
            job=self._job,
            scheduled_for=row.at,
            occurrences=(row.id,),
            sentence=f"{format_instant(row.at)} is no nominal time of {self._job!r} under the trigger that held then, "
            f"but occurrence {row.id} ({row.state}) was made for it",
        )

    def paused(self, at: datetime, occurrence: int) -> Finding:
        """An occurrence that the schedule made during a pause."""
        return Finding(
            kind="stray",
            job=self._job,
            scheduled_for=at,
            occurrences=(occurrence,),
            sentence=f"{self._at(at)} was made as occurrence {occurrence} while the job was paused",
        )

    # --- runs -----------------------------------------------------------------------------------------------------

    def two_successes(self, occurrence: Occurrence, runs: Sequence[RunView]) -> Finding:
        """One occurrence, more than one succeeded run."""
        tokens = ", ".join(f"token {run.token}" for run in runs)
        return self._about(occurrence, "duplicate", f"succeeded {len(runs)} times ({tokens})")

    def stale(self, occurrence: Occurrence, what: str) -> Finding:
        """A write that fencing should have refused."""
        return self._about(occurrence, "stale_write", what)

    def early(self, occurrence: Occurrence, started: datetime, due: datetime) -> Finding:
        """A run that started before it was due."""
        ahead = format_duration(due - started)
        return self._about(occurrence, "early", f"started at {format_instant(started)}, {ahead} before it was due")

    def attempts_overlap(self, occurrence: Occurrence, first: RunView, second: RunView) -> Finding:
        """Two attempts of one occurrence at the same time."""
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
        return Finding(
            kind="overlap",
            job=self._job,
            scheduled_for=second.scheduled_for,
            occurrences=(first.occurrence, second.occurrence),
            sentence=f"{self._job!r} ran twice at a time: occurrence {second.occurrence} started at "
            f"{format_instant(second.started_at)}, but occurrence {first.occurrence} {ended}",
        )

    def stuck(self, occurrence: Occurrence, why: str, ago: timedelta) -> Finding:
        """A run of a dead node that was not taken over."""
        since = format_duration(timedelta(seconds=round(ago.total_seconds())))
        return self._about(
            occurrence, "stuck", f"runs under session {occurrence.session}, {why} {since} ago, and nobody took it over"
        )

    # --- parts ----------------------------------------------------------------------------------------------------

    def _about(self, occurrence: Occurrence, kind: Kind, what: str) -> Finding:
        at = occurrence.scheduled_for
        name = f"{self._job!r} with key {occurrence.key!r}" if at is None else self._at(at)
        return Finding(
            kind=kind,
            job=self._job,
            scheduled_for=at,
            occurrences=(occurrence.id,),
            sentence=f"{name} (occurrence {occurrence.id}) {what}",
        )

    def _at(self, at: datetime) -> str:
        return f"{self._job!r} at {format_instant(at)}"


def _range(verdict: VerdictRange) -> str:
    return f"the range {verdict.state}({verdict.reason}) {_from_to(verdict.first, verdict.last)}"


def _from_to(first: datetime, last: datetime) -> str:
    return f"from {format_instant(first)} to {format_instant(last)}"


def _times(count: int) -> str:
    return f"{count:,} nominal time{'' if count == 1 else 's'}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
