"""The verb that looks: what is due, what waits, who holds runs. One statement when no job is due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Select,
    Subquery,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    true,
    union_all,
)

from cronsensus.errors import StoreCorrupt
from cronsensus.instants import from_micros
from cronsensus.model.job import JobState, Stretch
from cronsensus.model.session import SessionView
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import NAMES_OF_DEFINITION, definition_of, eras_after, specs_of
from cronsensus.stores.sql.occurrencerows import ACTIVE, LISTED_PENDING, LISTED_RUNNING, SERIAL, instant
from cronsensus.stores.sql.schema import NAMESPACE_OF_TURNING, along, jobs, locks, occurrences, pauses, sessions
from cronsensus.stores.sql.sessions import HELD_BY_SESSION, OPEN
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import READING_RAISES, bounded, instant_of, whole
from cronsensus.stores.values import Share, View, newest_of

_o, _j, _s = occurrences.c, jobs.c, sessions.c
_MICROSECOND = timedelta(microseconds=1)
MOST_SESSIONS_SHOWN = 64
LOOKS = 5
"""Times to look at most until two statements agree; then the next look is due at once."""

_HERE = and_(_o.namespace == bindparam("space"), LISTED_PENDING)


def _levels(*, grouping: bool) -> CTE:
    """Return the priorities that pending occurrences have, one seek in the index each, however many wait at each."""
    if grouping:
        # MySQL does not seek by what comes from an outer row; but it groups by seeking, with the earliest of each.
        return (
            select(_o.priority, func.min(_o.due_at).label("earliest"))
            .with_hint(*along("pending"))
            .where(_HERE)
            .group_by(_o.namespace, _o.state, _o.priority)
            .cte("levels")
        )
    highest = select(_o.priority).where(_HERE).order_by(_o.priority.desc()).limit(1).scalar_subquery()
    levels = select(highest.label("priority")).cte("levels", recursive=True)
    lower = (
        select(_o.priority)
        .where(_HERE, _o.priority < levels.c.priority)
        .order_by(_o.priority.desc())
        .limit(1)
        .scalar_subquery()
    )
    return levels.union_all(select(lower).where(levels.c.priority.is_not(None)))


LEVELS = {grouping: _levels(grouping=grouping) for grouping in (False, True)}
"""By whether the database groups by seeking."""


def due_at(levels: CTE) -> ColumnElement[bool]:
    """Return whether something is due at a level."""
    if "earliest" in levels.c:
        return levels.c.earliest <= bindparam("now")
    # Not EXISTS, which PostgreSQL turns into a join, and then walks along all that is due.
    found: Select[Any] = select(literal_column("1")).where(
        _HERE, _o.priority == levels.c.priority, _o.due_at <= bindparam("now")
    )
    return found.limit(1).correlate(levels).scalar_subquery().is_not(None)


def _next_pending(levels: CTE) -> ColumnElement[int]:
    """Return the earliest due time still to come, one seek for each level."""
    later = and_(_HERE, _o.due_at > bindparam("now"))
    if "earliest" in levels.c:
        of_each = (
            select(func.min(_o.due_at).label("next"))
            .with_hint(*along("pending"))
            .where(later)
            .group_by(_o.namespace, _o.state, _o.priority)
        )
        return select(func.min(of_each.subquery("later").c.next)).scalar_subquery()
    at_level = select(_o.due_at).where(later, _o.priority == levels.c.priority).order_by(_o.due_at).limit(1)
    return select(func.min(at_level.correlate(levels).scalar_subquery())).select_from(levels).scalar_subquery()


HELD_RUNS = (
    select(func.count())
    .select_from(occurrences)
    .with_hint(*along("running"))
    .where(HELD_BY_SESSION)
    .correlate(sessions)
    .scalar_subquery()
)
HELD_LOCKS = (
    select(func.count())
    .where(locks.c.namespace == _s.namespace, locks.c.session == _s.id)
    .correlate(sessions)
    .scalar_subquery()
)
SESSION_COLUMNS = (*_s, HELD_RUNS.label("held_runs"), HELD_LOCKS.label("held_locks"))


def _watched(*, sideways: bool) -> Subquery:
    """Return the sessions that a look is about; guests that hold no run, however many, are not read.

    A session that takes turns and holds runs is there twice: ``turns`` tells which row is which.
    """
    held = (
        select(_o.session, func.count().label("runs"))
        .with_hint(*along("running"))
        .where(_o.namespace == bindparam("space"), LISTED_RUNNING)
        .group_by(_o.session)
        .subquery("held")
    )
    none: ColumnElement[int] = literal_column("0")
    turning = select(literal_column("1").label("turns"), none.label("held_runs"), none.label("held_locks"), *_s)
    of_holder = and_(_s.namespace == bindparam("space"), _s.id == held.c.session)
    if sideways:
        # One lookup for each holder, by its key. OPEN would be another way to it, along all that are open.
        each = select(HELD_LOCKS.label("held_locks"), *_s).where(of_holder).limit(1).lateral("holder")
        holding = (
            select(none.label("turns"), held.c.runs, *each.c)
            .select_from(held.join(each, true()))
            .where(each.c.ended_at.is_(None))
        )
    else:
        holding = select(none.label("turns"), held.c.runs, HELD_LOCKS, *_s).select_from(
            held.join(sessions, and_(of_holder, OPEN))
        )
    if sideways:
        turning = turning.where(literal_column(NAMESPACE_OF_TURNING) == bindparam("space"))
    else:
        turning = turning.where(_s.namespace == bindparam("space"), OPEN, _s.concurrency > literal_column("0"))
        turning = turning.with_hint(sessions, "FORCE INDEX (cronsensus_sessions_turning)", "mysql")
    return union_all(turning, holding).subquery("watched")


_OF_SHARE = _j.id % bindparam("of") == bindparam("place")


def _view(levels: CTE, *, shared: bool, sideways: bool) -> Select[tuple[object, ...]]:
    # The first along the index, not the least of all: PostgreSQL might rather read all of a few, and keep to that.
    waking = select(_j.wake_at).where(_j.namespace == bindparam("space")).order_by(_j.wake_at).limit(1)
    soon = waking.where(_j.wake_at <= bindparam("now") + cast(bindparam("ahead"), BigInteger))
    listed = (soon.where(_OF_SHARE) if shared else soon).limit(bindparam("most")).subquery("listed")
    seen = select(
        select(func.count()).select_from(listed).scalar_subquery().label("listed_jobs"),
        waking.where(_j.wake_at > bindparam("now")).scalar_subquery().label("next_job"),
        select(literal_column("1"))
        .select_from(levels)
        .where(due_at(levels))
        .limit(1)
        .scalar_subquery()
        .label("backlog"),
        _next_pending(levels).label("next_pending"),
    ).subquery("seen")
    # One row for each session that takes turns, one for each that holds runs, and one without when there is none.
    watched = _watched(sideways=sideways)
    return select(seen, watched).select_from(seen.outerjoin(watched, true())).order_by(watched.c.number)


LOOK = {
    (grouping, sideways, shared): _view(levels, sideways=sideways, shared=shared)
    for grouping, levels in LEVELS.items()
    for sideways in (False, True)
    for shared in (False, True)
}
"""By whether the database groups by seeking, whether it must be made to look up each row of a join, and whether it is a
share that is looked at."""

_ACTIVE = (
    select(func.count())
    .select_from(occurrences)
    .with_hint(*along("serial"))
    .where(_o.job_id == _j.id, SERIAL, ACTIVE)
    .correlate(jobs)
    .scalar_subquery()
)
STATE_COLUMNS = (
    _j.id, _j.name, *NAMES_OF_DEFINITION, _j.watermark, _j.wake_at, _j.pause_ended_at, _ACTIVE.label("active"),
)  # fmt: skip
_DUE = (
    select(*STATE_COLUMNS)
    .where(_j.namespace == bindparam("space"), _j.wake_at <= bindparam("now"))
    .limit(bindparam("limit"))
)
DUE_JOBS = _DUE.order_by(_j.wake_at, _j.id)
_NEWEST = _DUE.order_by(_j.wake_at.desc(), _j.id.desc())
_DUE_OF_SHARE, _NEWEST_OF_SHARE = DUE_JOBS.where(_OF_SHARE), _NEWEST.where(_OF_SHARE)
_PAUSES = (
    select(pauses.c.start, pauses.c.end)
    .where(pauses.c.job_id == bindparam("job"), pauses.c.end > bindparam("watermark"))
    .order_by(pauses.c.id)
)


def look(tx: Transaction, limit: int, share: Share | None, ahead: timedelta) -> View:
    """Look: which jobs are due, what waits, who holds runs."""
    part = {} if share is None else share._asdict()
    further = ahead // _MICROSECOND
    for _ in range(LOOKS):
        statement = LOOK[tx.dialect.groups_by_seeking, tx.dialect.joins_sideways, bool(part)]
        rows = tx.look(statement, space=tx.namespace, most=limit + 1, ahead=further, **part)
        came_at = tx.dialect.monotonic()
        seen = rows[0]
        due_rows: Sequence[AnyRow] = ()
        if seen.listed_jobs:
            jobs_due = _DUE_OF_SHARE if part else DUE_JOBS
            due_rows = tx.rows(jobs_due, space=tx.namespace, now=tx.now + further, limit=limit + 1, **part)
        agreed = len(due_rows) >= seen.listed_jobs
        if agreed:
            break
        # Without a snapshot, a job may be fired between the two statements: then the first did not see when it is due
        # next nor who took it, and the second sees it no more. Who believed that would sleep through its next time.
    more = len(due_rows) > limit
    if more and (newest := newest_of(limit)):
        last = tx.rows(_NEWEST_OF_SHARE if part else _NEWEST, space=tx.namespace, now=tx.now, limit=newest, **part)
        # By id: without a snapshot, one may have been fired between the statements, and then they overlap.
        due_rows = list({row.id: row for row in (*due_rows[: limit - len(last)], *reversed(last))}.values())
    states = tuple(_states(tx, due_rows[:limit]))
    return View(
        now=from_micros(tx.now),
        jobs=states,
        more=more,
        next_job=_some_instant(seen.next_job) if agreed else from_micros(tx.now),
        backlog=seen.backlog is not None,
        next_pending=_some_instant(seen.next_pending),
        holders=tuple(session_views(tx, (row for row in rows if row.turns == 0))),
        sessions=tuple(
            sorted(row.id for row in rows if row.turns == 1 and _takes_turns(tx, row))[:MOST_SESSIONS_SHOWN]
        ),
        age=tx.dialect.monotonic() - came_at,
    )


def _some_instant(micros: Any) -> datetime | None:
    """Return an instant; ``None`` for what is none, which a file of SQLite may hold."""
    return from_micros(micros) if isinstance(micros, int) else None


def _states(tx: Transaction, rows: Sequence[AnyRow]) -> list[JobState]:
    """Return the states of due jobs. One that cannot be read is left out and named, so that the others still fire."""
    try:
        # All in two statements; from here on they are known.
        specs_of(tx, {row.id: row for row in rows})
        eras_after(tx, rows)
        return [_state(tx, row) for row in rows]
    except (StoreCorrupt, TypeError, ValueError, LookupError):
        pass
    # One after the other, each by itself: what belongs to another is not asked of the one that can be read.
    return tx.unreadable.readable(
        rows, lambda row: _state(tx, row), lambda row: f"job {row.name!r} is due, cannot be fired, and"
    )


def _state(tx: Transaction, row: AnyRow) -> JobState:
    stretches: tuple[Stretch, ...] = ()
    watermark = instant_of(row.watermark)
    if row.pause_ended_at is not None and instant_of(row.pause_ended_at) > watermark:
        found = tx.rows(_PAUSES, job=row.id, watermark=watermark)
        stretches = tuple(
            Stretch(from_micros(instant_of(one.start)), from_micros(instant_of(one.end))) for one in found
        )
    found_eras = eras_after(tx, [row])[row.id]
    if not found_eras:
        raise StoreCorrupt(f"the store holds no era of job {row.name!r}; define the job anew")
    return JobState(
        id=row.id,
        spec=specs_of(tx, {row.id: row})[row.id],
        revision=whole(row.revision),
        watermark=from_micros(watermark),
        eras=found_eras,
        pauses=stretches,
        active=row.active,
        due_at=from_micros(instant_of(row.wake_at)),
        definition=definition_of(row),
    )


def is_alive(tx: Transaction, row: AnyRow) -> bool:
    """Whether the session of ``row`` is alive."""
    return row.ended_at is None and row.epoch == tx.epoch and row.lease_until > tx.lease_now


def _takes_turns(tx: Transaction, row: AnyRow) -> bool:
    """Whether the session of ``row`` is alive, and no guest."""
    try:
        return bool(row.concurrency > 0 and is_alive(tx, row) and row.id.encode())
    except READING_RAISES as error:
        tx.unreadable.tell(f"session {row.id!r} takes no turn, and", error)
        return False


def session_views(tx: Transaction, rows: Iterable[AnyRow]) -> list[SessionView]:
    """Return those sessions that can be read."""
    return tx.unreadable.readable(rows, lambda row: session_view(tx, row), lambda row: f"session {row.id!r}")


def session_view(tx: Transaction, row: AnyRow) -> SessionView:
    """Return a session as reads show it, from a row of ``SESSION_COLUMNS``."""
    ended = row.ended_at is not None
    if ended:
        left, state = timedelta(0), row.ended_as
    elif row.epoch != tx.epoch:
        # Its clock ended with the boot that it belonged to: how long ago, nobody can say.
        left, state = -_MICROSECOND, "dead"
    else:
        left = timedelta(microseconds=bounded(whole(row.lease_until) - tx.lease_now))
        state = "dead" if left <= timedelta(0) else "draining" if row.draining else "alive"
    return SessionView(
        id=row.id,
        node=row.node,
        host=row.host,
        pid=whole(row.pid),
        pid_started=whole(row.pid_started),
        release=row.release,
        version=row.version,
        concurrency=whole(row.concurrency),
        functions=whole(row.functions),
        state=state,
        started_at=from_micros(row.started_at),
        renewed_at=from_micros(row.renewed_at),
        ended_at=instant(row.ended_at),
        ended_why=row.ended_why,
        expires_in=left,
        holds=row.held_runs + row.held_locks,
    )
