"""Last night: a row for each time of what ran seldom in it, and one line for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from operator import attrgetter

from cronsensus.dashboard.day import verdict_of
from cronsensus.insight.clock_changes import zone_of
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobView, is_internal

EVENING, MORNING = time(18), time(8)
SELDOM = 6
"""Times in a night up to which each has a row of its own."""
_MOST_ROWS = 16
_WELL = frozenset({"succeeded", "running", "pending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NightRow:
    """A time of the night, or several of which nothing was made."""

    at: datetime
    job: str
    state: str
    count: int = 1
    reason: str = ""
    one: Glance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The night, in a zone.

    Attributes:
        rows: by time; ``more``: how many have no place.
        often: how many jobs ran more often, and ``often_counts`` what became of it.
        whole: ``False``: of what ran often only the newest was read.
    """

    begin: datetime
    end: datetime
    zone: tzinfo
    zone_name: str
    rows: tuple[NightRow, ...]
    more: int
    often: int
    often_counts: Counter[str]
    whole: bool


def draw_night(
    now: datetime, views: Sequence[JobView], pasts: Mapping[str, Past], ran: Iterable[Glance], *, whole: bool
) -> Night:
    """Return the last night until 8 o'clock, or this one so far, in the zone of most schedules.

    Args:
        now: the store's clock.
        views: jobs, with their ``pasts``.
        pasts: the newest verdicts of these.
        ran: what ended in the last day, of all jobs.
        whole: whether that is all of it.
    """
    name, zone = _common_zone(views)
    begin, end = find_night(now, zone)
    seen = {one.id: one for past in pasts.values() for one in past.glances} | {one.id: one for one in ran}
    by_job: dict[str, list[NightRow]] = {}
    for one in seen.values():
        at = one.scheduled_for or one.due_at
        if begin <= at < end and one.parent is None and not is_internal(one.job):
            row = NightRow(at=at, job=one.job, state=verdict_of(one), reason=one.reason or "", one=one)
            by_job.setdefault(one.job, []).append(row)
    for job, past in pasts.items():
        for kept in (one.range for one in past.ranges):
            if begin <= kept.last < end:
                row = NightRow(at=kept.last, job=job, state=str(kept.state), count=kept.count or 1, reason=kept.reason)
                by_job.setdefault(job, []).append(row)
    rows: list[NightRow] = []
    often, counts = 0, Counter[str]()
    for some in by_job.values():
        if sum(row.count for row in some) <= SELDOM:
            rows += some
            continue
        often += 1
        for row in some:
            counts[row.state] += row.count
    # Trouble has a place before what went well.
    shown = sorted(rows, key=lambda row: (row.state in _WELL, row.at))[:_MOST_ROWS]
    return Night(
        begin=begin, end=end, zone=zone, zone_name=name, rows=tuple(sorted(shown, key=attrgetter("at", "job"))),
        more=len(rows) - len(shown), often=often, often_counts=counts, whole=whole,
    )  # fmt: skip


def find_night(now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return when the night begins that was last, or that it is now, and when it ends: at the latest now."""
    local = now.astimezone(zone)
    evening = datetime.combine(local.date() - timedelta(days=1), EVENING, zone)
    morning = datetime.combine(local.date(), MORNING, zone)
    return evening.astimezone(UTC), min(morning.astimezone(UTC), now)


def _common_zone(views: Sequence[JobView]) -> tuple[str, tzinfo]:
    named = Counter(
        view.spec.trigger.zone for view in views if view.spec.trigger is not None and view.spec.trigger.zone is not None
    )
    if not named:
        return "UTC", UTC
    name = max(named, key=lambda one: (named[one], one))
    trigger = next(view.spec.trigger for view in views if view.spec.trigger and view.spec.trigger.zone == name)
    return name, zone_of(trigger)
