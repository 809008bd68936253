"""Take a job's schedule back to the store's now, after the store's clock was set back, or zone rules changed.

What ran while the clock was ahead keeps its row and its key, so it never runs twice for one nominal time. The verdicts
on times that did not run are withdrawn above the new watermark: these times come again, and are decided then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cronsensus.errors import InvalidTransition, StoreBusy, UnknownJob
from cronsensus.model.job import Era, JobHistory, JobView
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.rewind import AHEAD, Rewind
from cronsensus.model.states import Origin, State
from cronsensus.planning import next_due_by_zone, next_nominal, undecided_until
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence, every_range
from cronsensus.timing.instants import format_instant

MOST_TRIES = 10
_TIMES_CHECKED = 200
_MICROSECOND = timedelta(microseconds=1)


def rewind_job(store: Store, name: str, *, by: str, why: str) -> Rewind:
    """Take a job's schedule back to the store's now; return what was done.

    Raises:
        UnknownJob: no such job, or retired.
        InvalidTransition: nothing is to be taken back, or the job is paused.
        StoreBusy: the job was changed again and again meanwhile.
    """
    for _ in range(MOST_TRIES):
        view, now = store.job(name), store.now()
        if view is None:
            raise UnknownJob(f"no job is called {name!r} in the store; see: cronsensus jobs list")
        history = store.history(name)
        eras = history.eras
        _refuse_rewind(view, history, now)
        start = min(max(now, view.horizon or now), view.watermark)
        watermark = _skip_runs(store, view, start)
        crossing = [entry for entry in every_range(store, name, watermark, watermark) if entry.range.last > watermark]
        step = plan_rewind(view, eras, crossing, max(now, watermark), watermark)
        if step.next_due is None or (view.next_due is not None and step.next_due >= view.next_due):
            raise InvalidTransition(
                f"{name} has run already for each of its times until {format_instant(view.watermark)}, while the "
                f"store's clock was ahead, and no time runs twice. To run it meanwhile: cronsensus jobs trigger {name}"
            )
        if store.rewind(step, by=by, why=why):
            store.notify()
            return step
    raise StoreBusy(f"{name} was changed {MOST_TRIES} times while it was to be taken back; try again")


def plan_rewind(
    view: JobView, eras: Sequence[Era], crossing: Sequence[LedgerRange], since: datetime, watermark: datetime
) -> Rewind:
    """Return the step that takes a job back to ``watermark``. Pure.

    Args:
        view: the job.
        eras: all of its eras, oldest first.
        crossing: the ranges that reach across the new watermark.
        since: when the job's present definition begins to rule, at the latest.
        watermark: the new one.
    """
    last = eras[-1]
    kept = [era for era in eras[:-1] if era.since <= since]
    life = (*kept, replace(last, since=min(last.since, since)))
    return Rewind(
        job=view.spec.name,
        revision=view.revision,
        watermark_seen=view.watermark,
        watermark=watermark,
        next_due=next_nominal(_holding_eras(life, watermark), watermark),
        eras=life,
        cut=tuple(_cut_range(entry, life, watermark) for entry in crossing),
    )


def _cut_range(ledger_range: LedgerRange, eras: Sequence[Era], watermark: datetime) -> LedgerRange:
    """Return a range that ends at the new watermark: at the last of its times up to then."""
    before = ledger_range.range.first - _MICROSECOND
    kept = undecided_until(_holding_eras(eras, before), before, watermark)
    if kept is None:
        return ledger_range
    return replace(ledger_range, range=replace(ledger_range.range, last=kept.last, count=kept.count))


def _holding_eras(eras: Sequence[Era], at: datetime) -> tuple[Era, ...]:
    """Return the era that holds at an instant, and those after it."""
    first = max((index for index, era in enumerate(eras) if era.since <= at), default=0)
    return tuple(eras[first:])


def _refuse_rewind(view: JobView, history: JobHistory, now: datetime) -> None:
    name, eras = view.spec.name, history.eras
    if view.retired_at is not None:
        raise UnknownJob(f"the job {name!r} is retired; define it again to bring it back")
    if view.spec.trigger is None or not eras:
        raise InvalidTransition(f"{name} has no schedule of its own, so there is nothing to take back")
    if view.paused_at is not None:
        raise InvalidTransition(f"{name} is paused; resume it first: cronsensus jobs resume {name}")
    if view.watermark - now <= AHEAD and eras[-1].since - now <= AHEAD and not _is_by_zone_rules(view, history):
        raise InvalidTransition(
            f"{name} stands where its trigger says: it is decided up to {format_instant(view.watermark)}, and the "
            f"store's clock says {format_instant(now)}. Nothing is to be taken back"
        )


def _is_by_zone_rules(view: JobView, history: JobHistory) -> bool:
    """Whether the stored next due time is later than the zone rules of this machine give it.

    Only if there was no pause since the watermark: a rewind would forget it.
    """
    paused = any(pause.end is None or pause.end > view.watermark for pause in history.pauses)
    following = next_due_by_zone(view.spec.trigger, history.eras[-1].since, view.watermark, view.next_due)
    return not paused and following is not None and view.next_due is not None and following < view.next_due


def _has_begun(occurrence: Occurrence) -> bool:
    return occurrence.origin is Origin.SCHEDULE and not (occurrence.state is State.PENDING and occurrence.attempt == 0)


def _skip_runs(store: Store, view: JobView, start: datetime) -> datetime:
    """Return the latest time from ``start`` on up to which each nominal time has run already."""
    position, trigger = start, view.spec.trigger
    while trigger is not None and position < view.watermark:
        times: list[datetime] = []
        after: datetime | None = position
        while len(times) < _TIMES_CHECKED and after is not None and (after := trigger.next_after(after)) is not None:
            if after > view.watermark:
                break
            times.append(after)
        if not times:
            return position
        where = OccurrenceFilter(job=view.spec.name, scheduled_from=position + _MICROSECOND, scheduled_until=times[-1])
        have = {occurrence.scheduled_for for occurrence in every_occurrence(store, where) if _has_begun(occurrence)}
        for time in times:
            if time not in have:
                return position
            position = time
    return position
