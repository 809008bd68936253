"""Last night: a row for each time of jobs that ran seldom in it, and a line for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from heapq import nsmallest
from operator import attrgetter

from cronsensus.dashboard.day import verdict_of
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import is_internal
from cronsensus.model.plan import VerdictRange

EVENING, MORNING = time(18), time(8)
SELDOM = 6
"""A job with at most so many times in a night has a row for each of them."""
_MOST_ROWS = 16
_GOOD_STATES = frozenset({"succeeded", "running", "pending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NightRow:
    """A time of the night, or several times without an occurrence."""

    at: datetime
    job: str
    state: str
    count: int = 1
    reason: str = ""
    glance: Glance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The night.

    Attributes:
        rows: by time; ``more``: how many did not fit.
        often: how many jobs ran more often than ``SELDOM``; ``often_counts``: their verdicts.
        complete: ``False``: only the newest runs were read.
    """

    begin: datetime
    end: datetime
    rows: tuple[NightRow, ...]
    more: int
    often: int
    often_counts: Counter[str]
    complete: bool


def draw_night(
    now: datetime, zone: tzinfo, pasts: Mapping[str, Past], ran: Iterable[Glance], *, complete: bool
) -> Night:
    """Return the last night until 8 o'clock, or this one so far.

    Args:
        now: the store's clock.
        zone: the zone of the night.
        pasts: the newest verdicts of some jobs.
        ran: the runs of all jobs that ended in the last day.
        complete: whether these are all of them.
    """
    begin, end = find_night(now, zone)
    by_id = {glance.id: glance for past in pasts.values() for glance in past.glances} | {
        glance.id: glance for glance in ran
    }
    by_job: dict[str, list[Glance | VerdictRange]] = {}
    for glance in by_id.values():
        if glance.parent is None and begin <= (glance.scheduled_for or glance.due_at) < end:
            by_job.setdefault(glance.job, []).append(glance)
    for job, past in pasts.items():
        by_job.setdefault(job, []).extend(
            ledger_range.range for ledger_range in past.ranges if begin <= ledger_range.range.last < end
        )
    seldom: list[tuple[str, Glance | VerdictRange]] = []
    frequent, frequent_counts = 0, Counter[str]()
    for job, outcomes in by_job.items():
        if is_internal(job):
            continue
        if sum(map(_times, outcomes)) <= SELDOM:
            seldom += [(job, outcome) for outcome in outcomes]
            continue
        frequent += 1
        for outcome in outcomes:
            frequent_counts[_verdict(outcome)] += _times(outcome)
    # Trouble comes before successes.
    kept = nsmallest(_MOST_ROWS, seldom, key=lambda entry: (_verdict(entry[1]) in _GOOD_STATES, _time(entry[1])))
    rows = sorted((_night_row(job, outcome) for job, outcome in kept), key=attrgetter("at", "job"))
    return Night(
        begin=begin, end=end, rows=tuple(rows),
        more=len(seldom) - len(rows), often=frequent, often_counts=frequent_counts, complete=complete,
    )  # fmt: skip


def _times(outcome: Glance | VerdictRange) -> int:
    return 1 if isinstance(outcome, Glance) else outcome.count or 1


def _time(outcome: Glance | VerdictRange) -> datetime:
    return outcome.scheduled_for or outcome.due_at if isinstance(outcome, Glance) else outcome.last


def _verdict(outcome: Glance | VerdictRange) -> str:
    return verdict_of(outcome) if isinstance(outcome, Glance) else str(outcome.state)


def _night_row(job: str, outcome: Glance | VerdictRange) -> NightRow:
    glance = outcome if isinstance(outcome, Glance) else None
    return NightRow(
        at=_time(outcome),
        job=job,
        state=_verdict(outcome),
        count=_times(outcome),
        reason=outcome.reason or "",
        glance=glance,
    )


def find_night(now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return when the last or present night begins, and when it ends: at the latest now."""
    local = now.astimezone(zone)
    evening = datetime.combine(local.date() - timedelta(days=1), EVENING, zone)
    morning = datetime.combine(local.date(), MORNING, zone)
    return evening.astimezone(UTC), min(morning.astimezone(UTC), now)
