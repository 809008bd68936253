"""Conditions that last: a success that is overdue, a run or a wait that is too long, a time that nobody decides.

An alert is sent when a condition begins and when it ends, not at each scan. The mark remembers the open conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile

from cronsensus.alerts.events import AGAIN, SLOW, Event
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
_LOOKED_AT = 200
_REMEMBERED = timedelta(hours=1)
_PAST = 30
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
    store: Store, expected: Mapping[str, Expected], begun: Mapping[str, int], now: datetime
) -> tuple[list[Event], dict[str, int]]:
    """Return events of conditions that began or ended, and all open conditions with the time at which they began.

    Args:
        store: where the jobs are.
        expected: what is expected of jobs, by name.
        begun: the open conditions of the last check: ``failed:JOB`` and ``overdue:JOB``, with microseconds.
        now: the store's clock.
    """
    events: list[Event] = []
    wrong = dict(begun)
    open_conditions = {key: at for key, at in begun.items() if key.partition(":")[0] in {"failed", "overdue"}}
    for name in sorted({*expected, *(key.partition(":")[2] for key in open_conditions)}):
        last = last_success(store, name)
        for event, at in (
            (key.partition(":")[0], at) for key, at in open_conditions.items() if key.partition(":")[2] == name
        ):
            # A success with a time to come was recorded before the store's clock was set back.
            ended = None if last is None else last.finished_at
            if last is not None and ended is not None and ended <= now + AHEAD and to_micros(ended) > at:
                del wrong[f"{event}:{name}"]
                events.append(_find_recovery(name, last, ended, event))
        wanted = expected.get(name, Expected())
        if wanted.overdue is not None and f"overdue:{name}" not in wrong:
            events += _find_overdue(store, name, last, wanted.overdue, now, dropped=wanted.dropped)
        if wanted.slow is not None:
            events += _find_slow(store, name, wanted.slow, now)
    wrong |= {f"overdue:{began.job}": to_micros(began.at) for began in events if began.event == "overdue"}
    return events, _bound_conditions(wrong)


def _bound_conditions(wrong: dict[str, int]) -> dict[str, int]:
    failed = [key for key in wrong if key.startswith("failed:")][-MOST_FAILED:]
    others = [key for key in wrong if not key.startswith("failed:")][-MOST_OPEN:]
    return {key: wrong[key] for key in (*failed, *others)}


def _find_recovery(job: str, last: Success, at: datetime, event: str) -> Event:
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


def _find_overdue(
    store: Store, job: str, last: Success | None, within: timedelta, now: datetime, *, dropped: bool
) -> Iterator[Event]:
    if last is not None and last.finished_at is not None:
        since, number, what = last.finished_at, last.id, "its last success is older"
    elif (view := store.job(job)) is not None and (dropped or view.retired_at is None):
        since, number, what = view.created_at, 0, "it has never succeeded"
    else:
        return
    if since - now > AHEAD and (job_view := store.job(job)) is not None:
        # The store's clock was set back, so the time of the last success does not show how long ago it was.
        stands = find_standstill(job_view, now)
        if stands is not None and stands.until - now > within:
            yield Event(key=f"overdue:{job}:{number}", event="overdue", at=now, job=job, reason=str(stands.sentence))
    elif now - since > within:
        yield Event(
            key=f"overdue:{job}:{number}",
            event="overdue",
            at=now,
            job=job,
            reason=f"no success for {format_duration(within)}: {_DROPPED if dropped else what}",
        )


def _find_slow(store: Store, job: str, takes: timedelta, now: datetime) -> Iterator[Event]:
    # An item counts with its batch, which is parked, not running, while its items run. A run that ended since the last
    # check may have been slow as well.
    for ended in store.last_of([job], limit=_PAST).get(job, Past()).glances:
        until = now if ended.is_batch and not ended.state.final else ended.finished_at
        if until is not None and ended.begun_at is not None and now - until < AGAIN and until - ended.begun_at > takes:
            yield _too_slow(ended, takes, now)
    for occurrence in store.occurrences(OccurrenceFilter(job=job, states=(State.RUNNING,)), limit=100):
        if (
            occurrence.parent is None
            and not occurrence.is_batch
            and occurrence.started_at is not None
            and now - occurrence.started_at > takes
        ):
            yield _too_slow(occurrence, takes, now)


def _too_slow(occurrence: Occurrence | Glance, takes: timedelta, now: datetime) -> Event:
    return Event(
        key=f"{SLOW}{occurrence.id}",
        event="slow",
        at=now,
        job=occurrence.job,
        run=occurrence.id,
        scheduled_for=occurrence.scheduled_for,
        reason=f"it has run for more than {format_duration(takes)}",
        node=occurrence.node,
    )


def find_waiting_conditions(
    store: Store, begun: Mapping[str, int], now: datetime, *, stalled: bool, backlog: timedelta | None
) -> tuple[list[Event], dict[str, int]]:
    """Return events of stalled jobs and backlogs, and all that are open now, as ``find_job_conditions`` does.

    Args:
        store: where the jobs are.
        begun: the open conditions of the last check: ``stalled:JOB`` and ``backlog:JOB``, with microseconds.
        now: the store's clock.
        stalled: look for jobs whose times no node decides.
        backlog: look for jobs with a run that waits longer; ``None``: do not.
    """
    waiting = dict(_find_stalled(store, now)) if stalled else {}
    waiting |= {} if backlog is None else dict(_find_backlog(store, backlog, now))
    events = [event for key, event in waiting.items() if key not in begun]
    # Conditions that it does not look for were reported by a node of another release.
    looked = {"stalled": stalled, "backlog": backlog is not None}
    over = [key for key in begun if looked.get(key.partition(":")[0]) and key not in waiting]
    for key in over:
        kind, _, job = key.partition(":")
        named = f"recovered:{key}:{begun[key]}"
        events.append(Event(key=named, event="recovered", at=now, job=job, reason=_NO_MORE[kind]))
    kept = {key: at for key, at in begun.items() if key not in over}
    wrong = kept | {key: to_micros(now) for key in waiting if key not in begun}
    return events, _bound_conditions(wrong)


def find_node_conditions(store: Store, begun: Mapping[str, int], now: datetime) -> tuple[list[Event], dict[str, int]]:
    """Return events of nodes that are gone before their lease ends, and all open conditions.

    Args:
        store: where the sessions and their signs of life are.
        begun: the open conditions of the last check; ``gone:SESSION`` for nodes, with microseconds.
        now: the store's clock.
    """
    sessions = [session for session in store.sessions() if session.is_node]
    lives = lives_of(store, sessions)
    there, late = {f"gone:{session.id}" for session in sessions}, to_micros(now - _REMEMBERED)
    # The end of its session is found later, and must not be reported again.
    wrong = {key: at for key, at in begun.items() if key in there or at > late or not key.startswith("gone:")}
    events = []
    for session in sessions:
        if lives[session.id].state == "gone" and f"gone:{session.id}" not in wrong:
            wrong[f"gone:{session.id}"] = to_micros(now)
            why = str(lives[session.id].sentence).removeprefix("gone: ")  # "node web-2 is gone: …"
            events.append(Event(key=f"node:{session.id}", event="node_lost", at=now, node=session.node, reason=why))
    return events, wrong


_NO_MORE = {"stalled": "its times are decided again", "backlog": "none of its runs waits that long any more"}


def _find_stalled(store: Store, now: datetime) -> Iterator[tuple[str, Event]]:
    for view in store.look(limit=_LOOKED_AT).jobs:
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


def _find_backlog(store: Store, most: timedelta, now: datetime) -> Iterator[tuple[str, Event]]:
    seen: set[str] = set()
    where = OccurrenceFilter(states=(State.PENDING,))
    for occurrence in store.occurrences(where, limit=_LOOKED_AT, newest_first=False):
        if now - occurrence.due_at > most and occurrence.job not in seen and not is_internal(occurrence.job):
            seen.add(occurrence.job)
            yield (
                f"backlog:{occurrence.job}",
                Event(
                    key=f"backlog:{occurrence.job}:{occurrence.id}",
                    event="backlog",
                    at=now,
                    job=occurrence.job,
                    run=occurrence.id,
                    scheduled_for=occurrence.scheduled_for,
                    reason=f"due for more than {format_duration(most)}, and not begun",
                ),
            )


def merge_failures_in_row(store: Store, found: Sequence[Event], enough: int, wrong: Mapping[str, int]) -> list[Event]:
    """Leave out failures until a job has failed ``enough`` times in a row; the event of that failure stands for all.

    Args:
        store: where the latest runs of a job are on record.
        found: the events, in order.
        enough: how many failures in a row are alerted, as one event.
        wrong: the open conditions.
    """
    if enough <= 1:
        return list(found)
    jobs = sorted({one.job for one in found if one.event == "failed" and one.job is not None})
    ended = {name: _list_ended(past) for name, past in store.last_of(jobs, limit=_LOOKED_AT).items()} if jobs else {}
    open_, kept = {key.partition(":")[2] for key in wrong if key.startswith("failed:")}, []
    for one in found:
        if one.event == "failed" and one.job is not None:
            older = dropwhile(lambda run: run.id != one.run, ended.get(one.job, []))  # noqa: B023 - called here
            row = sum(1 for _ in takewhile(lambda run: run.state is State.FAILED, older))
            if row < enough or (row > enough and one.job in open_):
                continue
            open_.add(one.job)
            one = replace(one, reason=f"{row} times in a row, last: {one.reason}")  # noqa: PLW2901 - the reason of all of them
        kept.append(one)
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
