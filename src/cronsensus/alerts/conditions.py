"""What is wrong for as long as it lasts: a job that has not succeeded for too long, a run that takes too long.

Told when it begins, and when it is over; not each time that it is seen. Which of them are open, the mark remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.alerts.events import Event
from cronsensus.durations import format_duration
from cronsensus.instants import to_micros
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

MOST_OPEN = 1_000
"""Jobs of which it is remembered that something is wrong."""


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
        last = _last_success(store, name)
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


def _last_success(store: Store, job: str) -> Occurrence | None:
    done = store.occurrences(OccurrenceFilter(job=job, states=(State.SUCCEEDED,)), limit=1)
    return done[0] if done else None


def _recovered(job: str, last: Occurrence, at: datetime, event: str) -> Event:
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


def _overdue(store: Store, job: str, last: Occurrence | None, within: timedelta, now: datetime) -> Iterator[Event]:
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
    for one in store.occurrences(OccurrenceFilter(job=job, states=(State.RUNNING,)), limit=100):
        if one.started_at is not None and now - one.started_at > takes:
            yield Event(
                key=f"slow:{one.token}",
                event="slow",
                at=now,
                job=job,
                run=one.id,
                scheduled_for=one.scheduled_for,
                reason=f"it has run for more than {format_duration(takes)}",
                node=one.node,
            )


def opened_by(events: list[Event]) -> dict[str, int]:
    """Return what these events say to be wrong from now on."""
    return {f"failed:{one.job}": to_micros(one.at) for one in events if one.event == "failed" and one.job is not None}
