"""The ledger of a job's nominal times as lines. Reads the store, prints nothing.

A nominal time has its verdict in one of two places: an occurrence that was made for it, or a range of nominal times
that made none. Short ranges are expanded, so that each nominal time has its line; long ones stay one line.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from cronsensus.audit.nominal import Nominals
from cronsensus.model.job import JobView
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_range

MICROSECOND = timedelta(microseconds=1)
EXPANDED = 60
"""Nominal times up to which a range is shown as one line each."""
MOST_WALKED = 5_000
"""Nominal times that are looked at for a missing verdict; beyond that it is the audit's work."""
_MOST_RANGES = 20_000

NO_VERDICT = "no verdict"
UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One verdict: on one nominal time, or on all from ``first`` to ``last``.

    Attributes:
        state: a state of an occurrence; ``undecided`` (above the watermark) or ``no verdict`` (below it: a fault).
        count: how many nominal times; ``None``: too many to count.
    """

    first: datetime
    last: datetime
    count: int | None
    state: str
    reason: str | None = None
    occurrence: Occurrence | None = None
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A stretch of a job's ledger; ``more_before``: there are older lines, up to this nominal time."""

    lines: list[Line]
    more_before: datetime | None


def history(store: Store, view: JobView, since: datetime, until: datetime, *, now: datetime, limit: int) -> History:
    """Return the newest lines in [since, until], at most about ``limit``."""
    nominals = Nominals(store.history(view.spec.name).eras, retired=view.retired_at is not None)
    made, more = _occurrences(store, view.spec.name, since, until, limit)
    if more:
        since = min(one.scheduled_for for one in made if one.scheduled_for is not None)
    lines = [_line(one) for one in made]
    for one in islice(every_range(store, view.spec.name, since, until), _MOST_RANGES):
        lines += _expand(one, nominals, since, until)
    begin = since - MICROSECOND if view.horizon is None else max(since - MICROSECOND, view.horizon)
    lines += _without_verdict(nominals, lines, begin, min(until, now), view.watermark)
    lines.sort(key=lambda line: (line.first, line.occurrence.id if line.occurrence is not None else 0))
    if len(lines) > limit:
        lines, more = lines[-limit:], True
    return History(lines, lines[0].first - MICROSECOND if more and lines else None)


def _occurrences(store: Store, job: str, since: datetime, until: datetime, limit: int) -> tuple[list[Occurrence], bool]:
    where = OccurrenceFilter(job=job, scheduled_from=since, scheduled_until=until)
    found = store.occurrences(where, limit=limit + 1)
    return found[:limit], len(found) > limit


def _line(one: Occurrence) -> Line:
    at = one.scheduled_for or one.due_at
    return Line(
        first=at, last=at, count=1, state=one.state, reason=one.reason, occurrence=one, decided_at=one.created_at
    )


def _expand(one: LedgerRange, nominals: Nominals, since: datetime, until: datetime) -> list[Line]:
    first, last = max(one.range.first, since), min(one.range.last, until)
    state, reason = str(one.range.state), one.range.reason
    times = nominals.between(first - MICROSECOND, last, EXPANDED + 1)
    if len(times) > EXPANDED:
        whole = (first, last) == (one.range.first, one.range.last)
        count = one.range.count if whole and one.range.count is not None else nominals.count(first - MICROSECOND, last)
        return [Line(first=first, last=last, count=count, state=state, reason=reason, decided_at=one.decided_at)]
    return [Line(first=at, last=at, count=1, state=state, reason=reason, decided_at=one.decided_at) for at in times]


def _without_verdict(
    nominals: Nominals, lines: list[Line], begin: datetime, until: datetime, watermark: datetime
) -> list[Line]:
    """Return lines for undecided nominal times in (begin, until]: not yet decided, or, as a fault, never."""
    times = nominals.between(begin, until, MOST_WALKED + 1)
    if len(times) > MOST_WALKED:
        # Too many to look at each; those above the watermark still say that work waits.
        times = nominals.between(max(begin, watermark), until, MOST_WALKED)
    decided = [False] * len(times)
    for line in lines:
        for index in range(bisect_left(times, line.first), len(times)):
            if times[index] > line.last:
                break
            decided[index] = True
    found: list[Line] = []
    for at, is_decided in zip(times, decided, strict=True):
        if not is_decided:
            state = NO_VERDICT if at <= watermark else UNDECIDED
            found.append(Line(first=at, last=at, count=1, state=state))
    if len(found) <= EXPANDED:
        return found
    joined: list[Line] = []
    for state in (NO_VERDICT, UNDECIDED):
        some = [line for line in found if line.state == state]
        if some:
            joined.append(Line(first=some[0].first, last=some[-1].last, count=len(some), state=state))
    return joined
