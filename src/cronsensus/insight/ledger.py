"""The ledger of a job's nominal times as lines.

A nominal time has its verdict in one of two places: an occurrence that was made for it, or a range of nominal times
that made none. Short ranges are expanded, so that each nominal time has its line; long ones stay one line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from cronsensus.audit.nominal import Nominals
from cronsensus.insight.batches import items_text
from cronsensus.insight.sentences import Clause, Sentence
from cronsensus.insight.summaries import why_ended
from cronsensus.model.batch import MOST_ITEMS, Children
from cronsensus.model.job import JobView
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import Origin, State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_range

MICROSECOND = timedelta(microseconds=1)
MOST_EXPANDED = 60
"""A range of at most so many nominal times is shown with a line for each."""
MOST_CHECKED = 5_000
"""Nominal times that are checked for a missing verdict; beyond that it is the audit's work."""
_MOST_RANGES = 20_000
_MOST_LOOKED_UP = 500
_MOST_BATCHES = 100
"""The newest batches whose items are counted."""

NO_VERDICT = "no verdict"
UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One verdict: on one nominal time, or on all from ``first`` to ``last``.

    Attributes:
        state: a state of an occurrence; ``undecided`` (above the watermark) or ``no verdict`` (below it: a fault).
        count: how many nominal times; ``None``: too many to count.
        first_start: when the first attempt of the occurrence started; ``None`` also beyond the bound of lookups.
        items: the items of a batch by state; ``None``: it is no batch.
    """

    first: datetime
    last: datetime
    count: int | None
    state: str
    reason: str | None = None
    occurrence: Occurrence | None = None
    decided_at: datetime | None = None
    first_start: datetime | None = None
    items: Children | None = None

    @property
    def text(self) -> Sentence | str:
        """The reason in a few words; empty where the state needs none."""
        occurrence = self.occurrence
        if occurrence is None:
            return Clause.NOT_FIRED_YET() if self.state == UNDECIDED else self.reason or ""
        reason = why_ended(occurrence)
        if self.items is not None and occurrence.state is not State.FAILED:  # its error has the number, and which items
            reason = items_text(self.items)
        if occurrence.origin is Origin.SCHEDULE:
            return reason
        origin = (
            Clause.OF_RUN(origin=occurrence.origin, run=occurrence.retry_of)
            if occurrence.retry_of
            else str(occurrence.origin)
        )
        return Clause.DETAILED(clause=origin, detail=reason) if reason else origin


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """A stretch of a job's ledger; ``more_before``: there are older lines, up to this nominal time."""

    lines: tuple[LedgerLine, ...]
    more_before: datetime | None


def ledger_page(
    store: Store, view: JobView, since: datetime, until: datetime, *, now: datetime, limit: int
) -> LedgerPage:
    """Return the newest lines in [since, until], at most about ``limit``."""
    nominals = Nominals(store.history(view.spec.name).eras, retired=view.retired_at is not None)
    occurrences, has_more = _occurrences(store, view.spec.name, since, until, limit)
    if has_more:
        since = min(occurrence.scheduled_for for occurrence in occurrences if occurrence.scheduled_for is not None)
    lines = [_line(occurrence) for occurrence in occurrences]
    for ledger_range in islice(every_range(store, view.spec.name, since, until), _MOST_RANGES):
        lines += _expand(ledger_range, nominals, since, until)
    decided_from = since - MICROSECOND if view.horizon is None else max(since - MICROSECOND, view.horizon)
    lines += _without_verdict(nominals, lines, decided_from, min(until, now), view.watermark)
    lines.sort(key=lambda line: (line.first, line.occurrence.id if line.occurrence is not None else 0))
    if len(lines) > limit:
        lines, has_more = lines[-limit:], True
    return LedgerPage(_with_starts(store, lines), lines[0].first - MICROSECOND if has_more and lines else None)


def _with_starts(store: Store, lines: list[LedgerLine]) -> tuple[LedgerLine, ...]:
    """Add the items of batches, and when first attempts started: an occurrence itself has only its last attempt."""
    occurrences = [line.occurrence for line in lines if line.occurrence is not None]
    restarted = [occurrence.id for occurrence in occurrences if _began_again(occurrence)]
    looked_up = {run_id: store.runs(run_id)[:1] for run_id in restarted[-_MOST_LOOKED_UP:]}
    batches = [occurrence.id for occurrence in occurrences if occurrence.is_batch and occurrence.parent is None][
        -_MOST_BATCHES:
    ]
    children = store.children(batches, limit=MOST_ITEMS) if batches else {}
    return tuple(
        replace(
            line,
            first_start=_first_start(line.occurrence, looked_up),
            items=None if line.occurrence is None else children.get(line.occurrence.id),
        )
        for line in lines
    )


def _began_again(occurrence: Occurrence) -> bool:
    """Whether its last attempt may not be its first. The attempt number of a batch does not show it."""
    return (occurrence.attempt > 1 and occurrence.started_at is not None) or occurrence.is_batch


def _first_start(occurrence: Occurrence | None, looked_up: Mapping[int, Sequence[RunView]]) -> datetime | None:
    if occurrence is None:
        return None
    if not _began_again(occurrence):
        return occurrence.started_at
    return next((run.started_at for run in looked_up.get(occurrence.id, ())), None)


def _occurrences(store: Store, job: str, since: datetime, until: datetime, limit: int) -> tuple[list[Occurrence], bool]:
    of_job = OccurrenceFilter(job=job, scheduled_from=since, scheduled_until=until)
    occurrences = store.occurrences(of_job, limit=limit + 1)
    return occurrences[:limit], len(occurrences) > limit


def _line(occurrence: Occurrence) -> LedgerLine:
    at = occurrence.scheduled_for or occurrence.due_at
    return LedgerLine(
        first=at,
        last=at,
        count=1,
        state=occurrence.state,
        reason=occurrence.reason,
        occurrence=occurrence,
        decided_at=occurrence.created_at,
    )


def _expand(ledger_range: LedgerRange, nominals: Nominals, since: datetime, until: datetime) -> list[LedgerLine]:
    begin, end = max(ledger_range.range.first, since), min(ledger_range.range.last, until)
    state, reason = str(ledger_range.range.state), ledger_range.range.reason
    times = nominals.list_times(begin - MICROSECOND, end, MOST_EXPANDED + 1)
    if len(times) > MOST_EXPANDED:
        is_whole = (begin, end) == (ledger_range.range.first, ledger_range.range.last)
        count = (
            ledger_range.range.count
            if is_whole and ledger_range.range.count is not None
            else nominals.count_times(begin - MICROSECOND, end)
        )
        return [
            LedgerLine(
                first=begin, last=end, count=count, state=state, reason=reason, decided_at=ledger_range.decided_at
            )
        ]
    return [
        LedgerLine(first=at, last=at, count=1, state=state, reason=reason, decided_at=ledger_range.decided_at)
        for at in times
    ]


def _without_verdict(
    nominals: Nominals, lines: list[LedgerLine], begin: datetime, until: datetime, watermark: datetime
) -> list[LedgerLine]:
    """Return lines for nominal times without a verdict in (begin, until]: not yet decided, or, as a fault, never."""
    times = nominals.list_times(begin, until, MOST_CHECKED + 1)
    if len(times) > MOST_CHECKED:
        # Too many to check each. Those above the watermark still show that work waits.
        times = nominals.list_times(max(begin, watermark), until, MOST_CHECKED)
    decided = [False] * len(times)
    for line in lines:
        for index in range(bisect_left(times, line.first), len(times)):
            if times[index] > line.last:
                break
            decided[index] = True
    missing: list[LedgerLine] = []
    for at, is_decided in zip(times, decided, strict=True):
        if not is_decided:
            state = NO_VERDICT if at <= watermark else UNDECIDED
            missing.append(LedgerLine(first=at, last=at, count=1, state=state))
    if len(missing) <= MOST_EXPANDED:
        return missing
    joined: list[LedgerLine] = []
    for state in (NO_VERDICT, UNDECIDED):
        lines = [line for line in missing if line.state == state]
        if lines:
            joined.append(LedgerLine(first=lines[0].first, last=lines[-1].last, count=len(lines), state=state))
    return joined
