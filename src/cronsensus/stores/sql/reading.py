"""Reads on occurrences, runs, logs, sessions, locks, counts and the audit trail. Bounded, by keyset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, literal_column, or_, select

from cronsensus.codec import loads, read_error, read_payload
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.ledger import Counts, TrailEntry
from cronsensus.model.occurrence import LogLine, Occurrence, OccurrenceFilter, RunView
from cronsensus.model.session import LockView, SessionView
from cronsensus.model.states import Origin, State
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import find, names_of
from cronsensus.stores.sql.locks import HELD
from cronsensus.stores.sql.looking import session_views
from cronsensus.stores.sql.occurrencerows import LISTED_PENDING, OF_JOBS, instant, is_id
from cronsensus.stores.sql.schema import along, listed
from cronsensus.stores.sql.schema import jobs as jobs_table
from cronsensus.stores.sql.schema import locks as locks_table
from cronsensus.stores.sql.schema import logs as logs_table
from cronsensus.stores.sql.schema import occurrences as occurrences_table
from cronsensus.stores.sql.schema import runs as runs_table
from cronsensus.stores.sql.schema import sessions as sessions_table
from cronsensus.stores.sql.schema import trail as trail_table
from cronsensus.stores.sql.sessions import ALIVE, HELD_BY_SESSION, OPEN
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import bounded, read_one, whole

_o, _j, _s, _t = occurrences_table.c, jobs_table.c, sessions_table.c, trail_table.c
_NEWEST = 1 << 62

_HERE = _o.namespace == bindparam("space")
_OCCURRENCES = select(occurrences_table).where(_HERE)
_ONE = _OCCURRENCES.where(_o.id == bindparam("occurrence"))
_STANDING = select(
    _o.id, _o.job_id, _o.key, _o.scheduled_for, _o.state, _o.attempt, _o.token, _o.session, _o.node, _o.started_at
).where(_HERE, _o.id.in_(bindparam("ids", expanding=True)))
_RUNS = (
    select(runs_table)
    .where(runs_table.c.occurrence_id.in_(bindparam("ids", expanding=True)))
    .order_by(runs_table.c.token)
)
_LOGS = (
    select(logs_table)
    .where(logs_table.c.occurrence_id == bindparam("occurrence"), logs_table.c.sequence > bindparam("after"))
    .order_by(logs_table.c.sequence)
    .limit(bindparam("limit"))
)
_LOCKS = (
    select(locks_table, _s.host, _s.pid, _s.pid_started)
    .select_from(
        locks_table.outerjoin(
            sessions_table, and_(_s.namespace == locks_table.c.namespace, _s.id == locks_table.c.session)
        )
    )
    .where(locks_table.c.namespace == bindparam("space"), HELD)
    .order_by(locks_table.c.name, locks_table.c.place)
    .limit(bindparam("limit"))
)
_LOCKS_OF = _LOCKS.where(locks_table.c.name == bindparam("of"))
_TRAIL = (
    select(trail_table)
    .where(_t.namespace == bindparam("space"), _t.id < bindparam("before"))
    .order_by(_t.id.desc())
    .limit(bindparam("limit"))
)
_TRAIL_OF = _TRAIL.where(_t.target == bindparam("of"))

_IDS_BY_NAME = select(_j.id, _j.name).where(
    _j.namespace == bindparam("space"), _j.name.in_(bindparam("names", expanding=True))
)
_PENDING_OF = (
    select(_o.job_id, func.count().label("waiting"))
    .where(_o.namespace == bindparam("space"), LISTED_PENDING, OF_JOBS)
    .group_by(_o.job_id)
)


def _at_most(rows: Select[Any]) -> Any:
    """Return how many ``rows`` there are, counting no further than the limit."""
    return select(func.count()).select_from(rows.limit(bindparam("limit")).subquery()).scalar_subquery()


_COUNTS = select(
    _at_most(select(_j.id).where(_j.namespace == bindparam("space"), _j.retired_at.is_(None))).label("jobs"),
    _at_most(
        select(_j.id).where(_j.namespace == bindparam("space"), _j.paused_at.is_not(None), _j.retired_at.is_(None))
    ).label("paused"),
    _at_most(select(_o.id).where(_HERE, LISTED_PENDING)).label("pending"),
    _at_most(
        select(_o.id)
        .join_from(sessions_table, occurrences_table, HELD_BY_SESSION)
        .where(_s.namespace == bindparam("space"), OPEN)
    ).label("running"),
    _at_most(select(_s.id).where(_s.namespace == bindparam("space"), ALIVE)).label("sessions"),
)


def occurrence(tx: Transaction, number: int) -> Occurrence | None:
    """Return one occurrence."""
    row = tx.row(_ONE, occurrence=number, space=tx.namespace) if is_id(number) else None
    if row is None:
        return None
    return read_one(row, lambda row: _occurrence(row, names_of(tx, [row.job_id])), f"run {number}")


def occurrences(
    tx: Transaction, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
) -> list[Occurrence]:
    """Return occurrences by id."""
    job = None if where.job is None else find(tx, where.job)
    if where.job is not None and job is None:
        return []
    query = _matching(where, None if job is None else job.id)
    found: list[Occurrence] = []
    while True:
        if newest_first:
            page = query.where(_o.id < (_NEWEST if after is None else after), listed(_o.id)).order_by(_o.id.desc())
        else:
            page = query.where(_o.id > (0 if after is None else after), listed(_o.id)).order_by(_o.id)
        rows = tx.rows(page.limit(limit - len(found)), space=tx.namespace)
        names = names_of(tx, (row.job_id for row in rows))
        found += tx.unreadable.readable(rows, lambda row: _occurrence(row, names), lambda row: f"run {row.id}")  # noqa: B023
        # A page with what cannot be read is short, and must not be taken for the last.
        if len(found) >= limit or not rows or len(rows) == len(found):
            return found
        after = rows[-1].id


def _matching(where: OccurrenceFilter, job: int | None) -> Select[Any]:
    """Return the query for what matches, ``job`` being the id of the job that is asked for."""
    query: Select[Any] = _OCCURRENCES
    if job is not None:
        query = query.where(_o.job_id == job)
    if where.states:
        # In the text of the statement, where a database sees which partial index will do.
        query = query.where(or_(*(_o.state == literal_column(f"'{state.value}'") for state in where.states)))
    if where.origin is not None:
        query = query.where(_o.origin == where.origin.value)
    if where.key is not None:
        query = query.where(_o.key == where.key)
    if where.session is not None:
        query = query.where(_o.session == where.session)
    if where.scheduled_from is not None:
        query = query.where(_o.scheduled_for >= to_micros(where.scheduled_from))
    if where.scheduled_until is not None:
        query = query.where(_o.scheduled_for <= to_micros(where.scheduled_until))
    if where.job is None and len(where.states) == 1:
        query = query.with_hint(*along("failed"))  # without a condition, on MySQL, it has every state
    elif where.job is not None and where.key is None and (where.scheduled_from or where.scheduled_until):
        query = query.with_hint(*along("nominal"))
    return query


def _occurrence(row: AnyRow, names: Mapping[int, str]) -> Occurrence:
    args, kwargs = read_payload(row.payload)
    return Occurrence(
        id=row.id,
        job=names[row.job_id],
        key=row.key,
        origin=Origin(row.origin),
        state=State(row.state),
        scheduled_for=instant(row.scheduled_for),
        due_at=from_micros(row.due_at),
        priority=whole(row.priority),
        attempt=whole(row.attempt),
        crashes=whole(row.crashes),
        failures=whole(row.failures),
        token=whole(row.token),
        session=row.session,
        node=row.node,
        reason=row.reason,
        result=row.result,
        error=read_error(row.error),
        progress=None if row.progress_done is None else (row.progress_done, row.progress_total),
        cancel_requested=row.cancel_reason is not None,
        retry_of=row.retry_of,
        args=args,
        kwargs=kwargs,
        created_at=from_micros(row.created_at),
        started_at=instant(row.started_at),
        finished_at=instant(row.finished_at),
        fingerprint=row.fingerprint,
    )


def runs(tx: Transaction, numbers: Sequence[int]) -> list[RunView]:
    """Return the attempts of occurrences, those of each together, oldest first, with the running one last."""
    found = {row.id: row for row in tx.rows_in(_STANDING, "ids", filter(is_id, numbers), space=tx.namespace)}
    names = names_of(tx, (row.job_id for row in found.values()))

    def ended(run: AnyRow) -> RunView:
        row = found[run.occurrence_id]
        return _run(
            row,
            run,
            names[row.job_id],
            finished_at=from_micros(run.finished_at),
            end=run.end,
            reason=run.reason,
            error=read_error(run.error),
        )

    rows = tx.rows_in(_RUNS, "ids", found)
    current = [row for row in found.values() if row.state == "running"]
    views = [
        *tx.unreadable.readable(rows, ended, lambda run: f"the attempt of token {run.token}"),
        *tx.unreadable.readable(
            current,
            lambda row: _run(row, row, names[row.job_id], finished_at=None, end=None),
            lambda row: f"the attempt of run {row.id}",
        ),
    ]
    place = {number: place for place, number in enumerate(numbers)}
    return sorted(views, key=lambda view: place[view.occurrence])


def _run(row: AnyRow, run: AnyRow, job: str, **ended: Any) -> RunView:
    return RunView(
        occurrence=row.id,
        job=job,
        key=row.key,
        scheduled_for=instant(row.scheduled_for),
        attempt=whole(run.attempt),
        token=whole(run.token),
        session=run.session,
        node=run.node,
        started_at=from_micros(run.started_at),
        **ended,
    )


def logs(tx: Transaction, number: int, after: int, limit: int) -> list[tuple[int, int, LogLine]]:
    """Return log lines as (sequence, attempt, line), oldest first."""
    if not is_id(number) or tx.row(_ONE, occurrence=number, space=tx.namespace) is None:
        return []
    return tx.unreadable.readable(
        tx.rows(_LOGS, occurrence=number, after=after, limit=limit),
        lambda row: (whole(row.sequence), whole(row.attempt), LogLine(from_micros(row.at), row.level, row.text)),
        lambda _: f"a log line of run {number}",
    )


def sessions(tx: Transaction, limit: int, *, ended: bool) -> list[SessionView]:
    """Return open sessions, or the ended ones too; newest first."""
    return session_views(tx, tx.send("sessions", also=() if ended else ("open",), space=tx.namespace, size=limit).rows)


def locks(tx: Transaction, name: str | None, limit: int) -> list[LockView]:
    """Return held locks by name, or the held places of one."""
    if name is None:
        rows = tx.rows(_LOCKS, space=tx.namespace, limit=limit, **tx.clocks)
    else:
        rows = tx.rows(_LOCKS_OF, space=tx.namespace, of=name, limit=limit, **tx.clocks)
    return tx.unreadable.readable(rows, lambda row: _lock(tx, row), lambda row: f"lock {row.name!r}")


def _lock(tx: Transaction, row: AnyRow) -> LockView:
    return LockView(
        name=row.name,
        holder=row.holder,
        session=row.session,
        token=whole(row.token),
        acquired_at=from_micros(row.acquired_at),
        expires_in=timedelta(microseconds=bounded(whole(row.lease_until) - tx.lease_now)),
        place=whole(row.place),
        host=row.host,
        pid=row.pid,
        pid_started=row.pid_started,
    )


def counts(tx: Transaction, limit: int) -> Counts:
    """Return bounded counts."""
    [row] = tx.rows(_COUNTS, space=tx.namespace, limit=limit, **tx.clocks)
    return Counts(
        jobs=row.jobs,
        paused=row.paused,
        pending=row.pending,
        running=row.running,
        sessions=row.sessions,
        limit=limit,
    )


def pending_of(tx: Transaction, names: Sequence[str]) -> dict[str, int]:
    """Return how many occurrences of each job are pending; one count for many jobs."""
    named = {row.id: row.name for row in tx.rows_in(_IDS_BY_NAME, "names", names, space=tx.namespace)}
    rows = tx.rows_in(_PENDING_OF, "ids", named, space=tx.namespace)
    return {named[row.job_id]: row.waiting for row in rows}


def trail(tx: Transaction, target: str | None, after: int | None, limit: int) -> list[TrailEntry]:
    """Return the audit trail, newest first."""
    bounds = {"space": tx.namespace, "before": _NEWEST if after is None else after, "limit": limit}
    rows = tx.rows(_TRAIL, **bounds) if target is None else tx.rows(_TRAIL_OF, **bounds, of=target)
    return tx.unreadable.readable(
        rows,
        lambda row: TrailEntry(
            row.id, from_micros(row.at), row.by, row.action, row.target, row.why, _details(row.details)
        ),
        lambda row: f"entry {row.id} of the audit trail",
    )


def _details(text: str) -> dict[str, Any]:
    details = loads(text)
    if not isinstance(details, dict):
        raise TypeError("its details are no object of JSON")
    return details
