"""What is wrong for as long as it lasts: a job that has not succeeded for too long, a run that takes too long.

Told when it begins, and when it is over; not each time that it is seen. Which of them are open, the mark remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.alerts.events import SLOW, Event
from cronsensus.durations import format_duration
from cronsensus.insight.successes import last_success
from cronsensus.instants import to_micros
from cronsensus.model.batch import HELD
from cronsensus.model.glance import Glance
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

MOST_OPEN = 1_000
"""Jobs of which it is remembered that something is wrong."""
_BATCHES = 30
"""Of a job with items: so many of its last batches may be slow."""
Success = Occurrence | Glance


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a job.

    Attributes:
        within: it succeeds at least so often; ``None``: nothing is said.
        takes: a run takes no longer.
    """

    within: timedelta | None = None
    takes: timedelta | None = None


def look_at_jobs(
    store: Store, expected: Mapping[str, Expected], begun: Mapping[str, int], now: datetime
) -> tuple[list[Event], dict[str, int]]:
    """Return what began to be wrong, and what is over; and all that is wrong now, with the time at which it began.

    Args:
        store: where it is on record.
        expected: of jobs, by name.
        begun: what was wrong at the last look: ``failed:JOB`` and ``overdue:JOB``, with microseconds.
        now: the store's clock.
    """
    events: list[Event] = []
    wrong = dict(begun)
    for name in sorted({*expected, *(key.partition(":")[2] for key in begun)}):
        last = last_success(store, name)
        for event, at in ((key.partition(":")[0], at) for key, at in begun.items() if key.partition(":")[2] == name):
            if last is not None and last.finished_at is not None and to_micros(last.finished_at) > at:
                del wrong[f"{event}:{name}"]
                events.append(_recovered(name, last, last.finished_at, event))
        within = expected.get(name, Expected()).within
        if within is not None and f"overdue:{name}" not in wrong:
            events += _overdue(store, name, last, within, now)
        if (takes := expected.get(name, Expected()).takes) is not None:
            events += _slow(store, name, takes, now)
    wrong |= {f"overdue:{one.job}": to_micros(one.at) for one in events if one.event == "overdue"}
    return events, dict(list(wrong.items())[-MOST_OPEN:])


def _recovered(job: str, last: Success, at: datetime, event: str) -> Event:
    reason = "it has succeeded again" if event == "failed" else "it has succeeded at last"
    return Event(
        key=f"recovered:{event}:{last.id}",
        event="recovered",
        at=at,
        job=job,
        run=last.id,
        scheduled_for=last.scheduled_for,
        reason=reason,
        node=last.node,
    )


def _overdue(store: Store, job: str, last: Success | None, within: timedelta, now: datetime) -> Iterator[Event]:
    if last is not None and last.finished_at is not None:
        since, number, said = last.finished_at, last.id, "its last success is older"
    elif (view := store.job(job)) is not None and view.retired_at is None:
        since, number, said = view.created_at, 0, "it has never succeeded"
    else:
        return
    if now - since > within:
        yield Event(
            key=f"overdue:{job}:{number}",
            event="overdue",
            at=now,
            job=job,
            reason=f"no success for {format_duration(within)}: {said}",
        )


def _slow(store: Store, job: str, takes: timedelta, now: datetime) -> Iterator[Event]:
    # An item of a batch speaks through its batch, which sleeps while they run: it is not running then.
    past = store.last_of([job], limit=_BATCHES).get(job)
    for batch in () if past is None else past.glances:
        listed = batch.listed is not None and batch.listed != HELD
        if listed and not batch.state.final and now - batch.created_at > takes:
            yield _too_slow(batch, takes, now)
    for one in store.occurrences(OccurrenceFilter(job=job, states=(State.RUNNING,)), limit=100):
        whole = one.parent is None and one.listed in {None, HELD}
        if whole and one.started_at is not None and now - one.started_at > takes:
            yield _too_slow(one, takes, now)


def _too_slow(one: Occurrence | Glance, takes: timedelta, now: datetime) -> Event:
    return Event(
        key=f"{SLOW}{one.id}",
        event="slow",
        at=now,
        job=one.job,
        run=one.id,
        scheduled_for=one.scheduled_for,
        reason=f"it has run for more than {format_duration(takes)}",
        node=one.node,
    )


def opened_by(events: list[Event]) -> dict[str, int]:
    """Return what these events say to be wrong from now on."""
    return {f"failed:{one.job}": to_micros(one.at) for one in events if one.event == "failed" and one.job is not None}
