"""Reads on jobs and their ledger: definitions, eras, pauses, verdict ranges."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from sqlalchemy import bindparam, func, select

from cronsensus.errors import StoreCorrupt
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import JobHistory, JobView, Stretch
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import State
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import NAMES_OF_DEFINITION, find, read_era, specs_of
from cronsensus.stores.sql.occurrencerows import ACTIVE, SERIAL, instant
from cronsensus.stores.sql.schema import eras as eras_table
from cronsensus.stores.sql.schema import jobs as jobs_table
from cronsensus.stores.sql.schema import occurrences, verdicts
from cronsensus.stores.sql.schema import pauses as pauses_table
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import read_one, whole

_j, _v = jobs_table.c, verdicts.c

_ACTIVE = (
    select(func.count()).where(occurrences.c.job_id == _j.id, SERIAL, ACTIVE).correlate(jobs_table).scalar_subquery()
)
_VIEW = select(
    _j.id,
    _j.name,
    *NAMES_OF_DEFINITION,
    _j.watermark,
    _j.horizon,
    _j.next_due,
    _j.paused_at,
    _j.paused_by,
    _j.paused_why,
    _j.retired_at,
    _j.waiting_until,
    _j.created_at,
    _ACTIVE.label("active"),
).where(_j.namespace == bindparam("space"))
_ONE = _VIEW.where(_j.name == bindparam("name"))
_ALL = _VIEW.where(_j.name > bindparam("after")).order_by(_j.name).limit(bindparam("limit"))
_LIVING = _ALL.where(_j.retired_at.is_(None))
_ERAS = (
    select(eras_table.c.since, eras_table.c.revision, eras_table.c.trigger)
    .where(eras_table.c.job_id == bindparam("job"))
    .order_by(eras_table.c.id)
)
_PAUSES = (
    select(pauses_table.c.start, pauses_table.c.end)
    .where(pauses_table.c.job_id == bindparam("job"))
    .order_by(pauses_table.c.id)
)
_RANGES = (
    select(_v.id, _v.first, _v.last, _v.state, _v.reason, _v.count.label("counted"), _v.decided_at)
    .where(_v.job_id == bindparam("job"), _v.id > bindparam("after"))
    .order_by(_v.id)
    .limit(bindparam("limit"))
)


def job(tx: Transaction, name: str) -> JobView | None:
    """Return one job, retired or not."""
    row = tx.row(_ONE, space=tx.namespace, name=name)
    return None if row is None else read_one(row, lambda row: _view(tx, row), f"job {name!r}")


def jobs(tx: Transaction, after: str, limit: int, *, retired: bool) -> list[JobView]:
    """Return jobs by name, in the order of code points."""
    query = _ALL if retired else _LIVING
    found: list[JobView] = []
    while True:
        rows = tx.rows(query, space=tx.namespace, after=after, limit=limit - len(found))
        with suppress(StoreCorrupt):  # all in one statement; from here on they are known
            specs_of(tx, {row.id: row for row in rows})
        found += tx.unreadable.readable(rows, lambda row: _view(tx, row), lambda row: f"job {row.name!r}")
        # A page with what cannot be read is short, and must not be taken for the last.
        if len(found) >= limit or not rows or len(rows) == len(found):
            return found
        after = rows[-1].name


def _view(tx: Transaction, row: AnyRow) -> JobView:
    return JobView(
        id=row.id,
        spec=specs_of(tx, {row.id: row})[row.id],
        revision=whole(row.revision),
        watermark=from_micros(row.watermark),
        horizon=instant(row.horizon),
        next_due=instant(row.next_due),
        paused_at=instant(row.paused_at),
        paused_by=row.paused_by,
        paused_why=row.paused_why,
        retired_at=instant(row.retired_at),
        waiting_until=instant(row.waiting_until),
        created_at=from_micros(row.created_at),
        active=row.active,
    )


def history(tx: Transaction, job: str) -> JobHistory:
    """Return every era of a job's life and its paused stretches, oldest first."""
    row = find(tx, job)
    if row is None:
        return JobHistory()
    return JobHistory(
        tuple(read_one(era, read_era, f"an era of job {job!r}") for era in tx.rows(_ERAS, job=row.id)),
        tuple(read_one(pause, _stretch, f"a pause of job {job!r}") for pause in tx.rows(_PAUSES, job=row.id)),
    )


def _stretch(row: AnyRow) -> Stretch:
    return Stretch(from_micros(row.start), instant(row.end))


def ranges(
    tx: Transaction, name: str, *, since: datetime | None, until: datetime | None, after: int, limit: int
) -> list[LedgerRange]:
    """Return the verdict ranges that touch [since, until], by id."""
    row = find(tx, name)
    if row is None:
        return []
    query = _RANGES
    if since is not None:
        query = query.where(_v.last >= to_micros(since))
    if until is not None:
        query = query.where(_v.first <= to_micros(until))
    return tx.unreadable.readable(
        tx.rows(query, job=row.id, after=after, limit=limit),
        lambda one: LedgerRange(
            one.id,
            name,
            VerdictRange(
                from_micros(one.first),
                from_micros(one.last),
                State(one.state),
                one.reason,
                None if one.counted is None else whole(one.counted),
            ),
            from_micros(one.decided_at),
        ),
        lambda one: f"verdict {one.id} of job {name!r}",
    )
