"""Conditions that last: a success that is overdue, a run or a wait that is too long, a time that nobody decides.

An alert is sent when a condition begins and when it ends, not at each scan. The mark remembers the open conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile

from cronsensus.alerts.events import SCAN_OVERLAP, SLOW_PREFIX, Event
from cronsensus.insight.life import lives_of
from cronsensus.insight.lost_jobs import find_lost_jobs, read_lost_job
from cronsensus.insight.standstill import every_standstill, find_standstill
from cronsensus.insight.successes import last_success
from cronsensus.insight.work_checks import OVERDUE
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.rewind import AHEAD
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.timing.durations import format_duration
from cronsensus.timing.instants import to_micros

MOST_FAILED = 1_000
"""Failed jobs that are remembered, to alert of their recovery: each is read at each check."""
MOST_OPEN = 10_000
"""Other open conditions that are remembered. A condition beyond that is reported again."""
MOST_DROPPED = 200
"""Remembered jobs that no release declares any more and of which a success is expected."""
_DROPPED = "no running release declares it any more"
_MOST_READ = 200
_REMEMBERED_FOR = timedelta(hours=1)
"""How long a node that is gone is remembered after its session is no longer listed."""
_RUNS_CHECKED = 30
"""The last runs of a job that are checked for being slow."""
Success = Occurrence | Glance


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a job.

    Attributes:
        overdue: the longest time without a success; ``None``: no limit is set.
        slow: the longest time of a run; ``None``: no limit is set.
        dropped: no running release declares it any more.
    """

    overdue: timedelta | None = None
    slow: timedelta | None = None
    dropped: bool = False


def find_dropped_jobs(
    store: Store, known: Collection[str], since: datetime, *, meant: Collection[str]
) -> tuple[list[Event], dict[str, Expected]]:
    """Find jobs that no running release declares any more; return events, and what is still expected of them.

    A job with ``overdue=`` is reported when it is overdue, any other job at once.

    Args:
        store: where the jobs are.
        known: jobs with ``overdue=`` that were found before.
        since: from when on other jobs were dropped, by the store's clock.
        meant: jobs that this process's code declares to be gone on purpose.
    """
    views = {view.spec.name: view for view in find_lost_jobs(store, since)}
    for name in known:
        if name not in views and (view := read_lost_job(store, name)) is not None:
            views[name] = view
    events: list[Event] = []
    expected: dict[str, Expected] = {}
    for name, view in views.items():
        if name in meant or view.retired_at is None:
            continue
        if view.spec.overdue is not None and len(expected) < MOST_DROPPED:
            expected[name] = Expected(overdue=view.spec.overdue, dropped=True)
        else:
            key = f"retired:{name}:{to_micros(view.retired_at)}"
            events.append(Event(key=key, event="retired", at=view.retired_at, job=name, reason=_DROPPED))
    return events, expected


def find_job_conditions(
    store: Store, expected: Mapping[str, Expected], open_before: Mapping[str, int], now: datetime
) -> tuple[list[Event], dict[str, int]]:
    """Return events of conditions that began or ended, and all open conditions with the time at which they began.

    Args:
        store: where the jobs are.
        expected: what is expected of jobs, by name.
        open_before: the open conditions of the last check: ``failed:JOB`` and ``overdue:JOB``, with microseconds.
        now: the store's clock.
    """
    events: list[Event] = []
    open_now = dict(open_before)
    open_conditions = {key: at for key, at in open_before.items() if key.partition(":")[0] in {"failed", "overdue"}}
    for name in sorted({*expected, *(key.partition(":")[2] for key in open_conditions)}):
        success = last_success(store, name)
        for event, at in (
            (key.partition(":")[0], at) for key, at in open_conditions.items() if key.partition(":")[2] == name
        ):
            # A success with a time to come was recorded before the store's clock was set back.
            ended = None if success is None else success.finished_at
            if success is not None and ended is not None and ended <= now + AHEAD and to_micros(ended) > at:
                del open_now[f"{event}:{name}"]
                events.append(_find_recovery(name, success, ended, event))
        expectation = expected.get(name, Expected())
        if expectation.overdue is not None and f"overdue:{name}" not in open_now:
            events += _find_overdue(store, name, success, expectation.overdue, now, dropped=expectation.dropped)
        if expectation.slow is not None:
            events += _find_slow(store, name, expectation.slow, now)
    open_now |= {f"overdue:{began.job}": to_micros(began.at) for began in events if began.event == "overdue"}
    return events, _bound_conditions(open_now)


def _bound_conditions(conditions: dict[str, int]) -> dict[str, int]:
    failed = [key for key in conditions if key.startswith("failed:")][-MOST_FAILED:]
    others = [key for key in conditions if not key.startswith("failed:")][-MOST_OPEN:]
    return {key: conditions[key] for key in (*failed, *others)}


def _find_recovery(job: str, success: Success, at: datetime, event: str) -> Event:
    reason = "it has succeeded again" if event == "failed" else "it has succeeded at last"
    return Event(
        key=f"recovered:{event}:{success.id}",
        event="recovered",
        at=at,
        job=job,
        run=success.id,
        scheduled_for=success.scheduled_for,
        reason=reason,
        node=success.node,
    )


def _find_overdue(
    store: Store, job: str, success: Success | None, limit: timedelta, now: datetime, *, dropped: bool
) -> Iterator[Event]:
    if success is not None and success.finished_at is not None:
        counted_from, run, cause = success.finished_at, success.id, "its last success is older"
    elif (view := store.job(job)) is not None and (dropped or view.retired_at is None):
        counted_from, run, cause = view.created_at, 0, "it has never succeeded"
    else:
        return
    if counted_from - now > AHEAD and (job_view := store.job(job)) is not None:
        # The store's clock was set back, so the time of the last success does not show how long ago it was.
        standstill = find_standstill(job_view, now)
        if standstill is not None and standstill.until - now > limit:
            yield Event(key=f"overdue:{job}:{run}", event="overdue", at=now, job=job, reason=str(standstill.sentence))
    elif now - counted_from > limit:
        yield Event(
            key=f"overdue:{job}:{run}",
            event="overdue",
            at=now,
            job=job,
            reason=f"no success for {format_duration(limit)}: {_DROPPED if dropped else cause}",
        )


def _find_slow(store: Store, job: str, limit: timedelta, now: datetime) -> Iterator[Event]:
    # An item counts with its batch, which is parked, not running, while its items run. A run that ended since the last
    # check may have been slow as well.
    for ended in store.last_of([job], limit=_RUNS_CHECKED).get(job, Past()).glances:
        until = now if ended.is_batch and not ended.state.final else ended.finished_at
        if (
            until is not None
            and ended.begun_at is not None
            and now - until < SCAN_OVERLAP
            and until - ended.begun_at > limit
        ):
            yield _too_slow(ended, limit, now)
    for occurrence in store.occurrences(OccurrenceFilter(job=job, states=(State.RUNNING,)), limit=100):
        if (
            occurrence.parent is None
            and not occurrence.is_batch
            and occurrence.started_at is not None
            and now - occurrence.started_at > limit
        ):
            yield _too_slow(occurrence, limit, now)


def _too_slow(occurrence: Occurrence | Glance, limit: timedelta, now: datetime) -> Event:
    return Event(
        key=f"{SLOW_PREFIX}{occurrence.id}",
        event="slow",
        at=now,
        job=occurrence.job,
        run=occurrence.id,
        scheduled_for=occurrence.scheduled_for,
        reason=f"it has run for more than {format_duration(limit)}",
        node=occurrence.node,
    )


def find_waiting_conditions(
    store: Store, open_before: Mapping[str, int], now: datetime, *, stalled: bool, backlog: timedelta | None
) -> tuple[list[Event], dict[str, int]]:
    """Return events of stalled jobs and backlogs, and all that are open now, as ``find_job_conditions`` does.

    Args:
        store: where the jobs are.
        open_before: the open conditions of the last check: ``stalled:JOB`` and ``backlog:JOB``, with microseconds.
        now: the store's clock.
        stalled: look for jobs whose times no node decides.
        backlog: look for jobs with a run that waits longer; ``None``: do not.
    """
    waiting = dict(_find_stalled(store, now)) if stalled else {}
    waiting |= {} if backlog is None else dict(_find_backlog(store, backlog, now))
    events = [event for key, event in waiting.items() if key not in open_before]
    # Conditions that it does not look for were reported by a node of another release.
    is_checked = {"stalled": stalled, "backlog": backlog is not None}
    ended_keys = [key for key in open_before if is_checked.get(key.partition(":")[0]) and key not in waiting]
    for key in ended_keys:
        kind, _, job = key.partition(":")
        event_key = f"recovered:{key}:{open_before[key]}"
        events.append(Event(key=event_key, event="recovered", at=now, job=job, reason=_RECOVERY_REASONS[kind]))
    still_open = {key: at for key, at in open_before.items() if key not in ended_keys}
    open_now = still_open | {key: to_micros(now) for key in waiting if key not in open_before}
    return events, _bound_conditions(open_now)


def find_node_conditions(
    store: Store, open_before: Mapping[str, int], now: datetime
) -> tuple[list[Event], dict[str, int]]:
    """Return events of nodes that are gone before their lease ends, and all open conditions.

    Args:
        store: where the sessions and their signs of life are.
        open_before: the open conditions of the last check; ``gone:SESSION`` for nodes, with microseconds.
        now: the store's clock.
    """
    sessions = [session for session in store.sessions() if session.is_node]
    lives = lives_of(store, sessions)
    present, remembered_since = {f"gone:{session.id}" for session in sessions}, to_micros(now - _REMEMBERED_FOR)
    # The end of its session is found later, and must not be reported again.
    open_now = {
        key: at
        for key, at in open_before.items()
        if key in present or at > remembered_since or not key.startswith("gone:")
    }
    events = []
    for session in sessions:
        if lives[session.id].state == "gone" and f"gone:{session.id}" not in open_now:
            open_now[f"gone:{session.id}"] = to_micros(now)
            reason = str(lives[session.id].sentence).removeprefix("gone: ")  # "node web-2 is gone: …"
            events.append(Event(key=f"node:{session.id}", event="node_lost", at=now, node=session.node, reason=reason))
    return events, open_now


_RECOVERY_REASONS = {"stalled": "its times are decided again", "backlog": "none of its runs waits that long any more"}


def _find_stalled(store: Store, now: datetime) -> Iterator[tuple[str, Event]]:
    for view in store.look(limit=_MOST_READ).jobs:
        job, due = view.spec.name, view.due_at
        if due is not None and now - due >= OVERDUE and not is_internal(job):
            reason = "its time passed a minute ago, and no node has decided what becomes of it"
            yield (
                f"stalled:{job}",
                Event(
                    key=f"stalled:{job}:{to_micros(due)}",
                    event="stalled",
                    at=now,
                    job=job,
                    scheduled_for=due,
                    reason=reason,
                ),
            )
    for standstill in every_standstill(store):
        if not is_internal(job := standstill.view.spec.name):
            yield (
                f"stalled:{job}",
                Event(
                    key=f"stalled:{job}:{to_micros(standstill.until)}",
                    event="stalled",
                    at=now,
                    job=job,
                    scheduled_for=standstill.expected,
                    reason=str(standstill.sentence),
                ),
            )


def _find_backlog(store: Store, limit: timedelta, now: datetime) -> Iterator[tuple[str, Event]]:
    reported_jobs: set[str] = set()
    pending = OccurrenceFilter(states=(State.PENDING,))
    for occurrence in store.occurrences(pending, limit=_MOST_READ, newest_first=False):
        if now - occurrence.due_at > limit and occurrence.job not in reported_jobs and not is_internal(occurrence.job):
            reported_jobs.add(occurrence.job)
            yield (
                f"backlog:{occurrence.job}",
                Event(
                    key=f"backlog:{occurrence.job}:{occurrence.id}",
                    event="backlog",
                    at=now,
                    job=occurrence.job,
                    run=occurrence.id,
                    scheduled_for=occurrence.scheduled_for,
                    reason=f"due for more than {format_duration(limit)}, and not begun",
                ),
            )


def merge_failures_in_row(
    store: Store, events: Sequence[Event], enough: int, open_conditions: Mapping[str, int]
) -> list[Event]:
    """Leave out failures until a job has failed ``enough`` times in a row; that failure is reported for all of them.

    Args:
        store: where the latest runs of a job are on record.
        events: the events, in order.
        enough: how many failures in a row are alerted, as one event.
        open_conditions: the conditions that are open, of which ``failed:JOB`` counts here.
    """
    if enough <= 1:
        return list(events)
    jobs = sorted({event.job for event in events if event.event == "failed" and event.job is not None})
    ended_runs = (
        {name: _list_ended(past) for name, past in store.last_of(jobs, limit=_MOST_READ).items()} if jobs else {}
    )
    failing_jobs, kept = {key.partition(":")[2] for key in open_conditions if key.startswith("failed:")}, []
    for event in events:
        if event.event == "failed" and event.job is not None:
            this_and_older = dropwhile(lambda run: run.id != event.run, ended_runs.get(event.job, []))  # noqa: B023 - called here
            row = sum(1 for _ in takewhile(lambda run: run.state is State.FAILED, this_and_older))
            if row < enough or (row > enough and event.job in failing_jobs):
                continue
            failing_jobs.add(event.job)
            event = replace(event, reason=f"{row} times in a row, last: {event.reason}")  # noqa: PLW2901 - the reason of all of them
        kept.append(event)
    return kept


def _list_ended(past: Past) -> list[Glance]:
    return [glance for glance in past.glances if glance.state in {State.SUCCEEDED, State.FAILED}]


def conditions_opened_by(events: list[Event]) -> dict[str, int]:
    """Return the conditions that these events open, each with its beginning."""
    return {
        f"failed:{event.job}": to_micros(event.at)
        for event in events
        if event.event == "failed" and event.job is not None
    }
