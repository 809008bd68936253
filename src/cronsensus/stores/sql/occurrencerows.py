"""Make and read rows of occurrences: arguments, errors, and the one way in which occurrences are inserted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Column, ColumnElement, Label, and_, bindparam, func, literal_column, select

from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Enqueued
from cronsensus.model.states import SERIAL_ORIGINS, Origin, State
from cronsensus.stores.sql.schema import jobs, listed, occurrences
from cronsensus.stores.sql.transaction import Transaction

Value = TypeVar("Value")

_o = occurrences.c

# Written into the text of a statement, not bound: a database uses a partial index only where it sees the condition.
PENDING: ColumnElement[bool] = _o.state == literal_column("'pending'")
RUNNING: ColumnElement[bool] = _o.state == literal_column("'running'")
# Of all that a namespace has, along the index that lists it.
LISTED_PENDING: ColumnElement[bool] = and_(PENDING, listed(_o.id))
LISTED_RUNNING: ColumnElement[bool] = and_(RUNNING, listed(_o.id))
# Of a row that is named by its id: hidden in a function, so that no database takes the state for the better way to it.
_STATE = func.coalesce(_o.state, literal_column("''"))
STILL_PENDING: ColumnElement[bool] = literal_column("'pending'") == _STATE
STILL_RUNNING: ColumnElement[bool] = literal_column("'running'") == _STATE
ACTIVE: ColumnElement[bool] = _o.finished_at.is_(None)
SERIAL: ColumnElement[bool] = _o.serial == literal_column("1")

# job_id is hidden in a sum, so that the index of what is pending is walked, and not the whole history of the job.
OF_JOBS = (_o.job_id + literal_column("0")).in_(bindparam("ids", expanding=True))
_HERE = _o.namespace == bindparam("space")


def of_job(column: Column[Value]) -> Label[Value]:
    """Return a column of an occurrence's job, for a query that locks the occurrence alone.

    No join: MariaDB cannot be told which of two tables to lock, and would lock the job, too.
    """
    return select(column).where(jobs.c.id == _o.job_id).correlate(occurrences).scalar_subquery().label(column.name)


_UNIQUE = ("job_id", "key")
_KEYS_OF_JOB = select(_o.id, _o.key, _o.state).where(
    _o.job_id == bindparam("job"), _o.key.in_(bindparam("keys", expanding=True))
)


class Standing(NamedTuple):
    """The occurrence that stands under a key."""

    id: int
    state: State
    created: bool


def new_row(
    tx: Transaction,
    job: int,
    spec: JobSpec,
    key: str,
    origin: Origin,
    *,
    due_at: int,
    payload: str | None,
    scheduled_for: int | None = None,
    expires_at: int | None = None,
    priority: int | None = None,
    retry_of: int | None = None,
    fingerprint: str | None = None,
) -> dict[str, Any]:
    """Return a pending occurrence as the values of a row; what is left out is the job's own."""
    policies = spec.policies
    return {
        "namespace": tx.namespace,
        "job_id": job,
        "key": key,
        "origin": origin.value,
        "state": "pending",
        "serial": int(origin in SERIAL_ORIGINS and policies.overlap != "allow"),
        "priority": policies.priority if priority is None else priority,
        "scheduled_for": scheduled_for,
        "due_at": due_at,
        "expires_at": expires_at,
        "attempt": 0,
        "crashes": 0,
        "failures": 0,
        "token": 0,
        "created_at": tx.now,
        "retry_of": retry_of,
        "payload": payload,
        "fingerprint": fingerprint,
    }


def insert_absent(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert those of ``rows`` whose (job, key) is not there; return how many that were.

    Safe when two nodes insert the same: the unique key of (job_id, key), which the INSERT itself asks.
    """
    if not rows:
        return 0
    return tx.change_many(tx.dialect.insert_absent(occurrences, _UNIQUE), rows)


def find_keys(tx: Transaction, keys: Iterable[tuple[int, str]]) -> dict[tuple[int, str], tuple[int, State]]:
    """Return the id and state of occurrences by (job id, key)."""
    by_job: dict[int, list[str]] = {}
    for job, key in keys:
        by_job.setdefault(job, []).append(key)
    found: dict[tuple[int, str], tuple[int, State]] = {}
    for job, names in by_job.items():  # job by job: for pairs in one list, SQLite would read the whole table
        for row in tx.rows_in(_KEYS_OF_JOB, "keys", names, job=job):
            found[job, row.key] = (row.id, State(row.state))
    return found


def enqueued(row: Mapping[str, Any], job: str, occurrence: int) -> Enqueued:
    """Return the answer about an occurrence that was just created."""
    return Enqueued(occurrence, job, row["key"], created=True, state=State.PENDING)


def is_id(number: int) -> bool:
    """Whether an occurrence can have that id: what a person typed need not fit into a database's 64 bits."""
    return 0 < number < 1 << 63


# --- values -----------------------------------------------------------------------------------------------------------


def micros(instant: datetime | None) -> int | None:
    """Return an instant as a row keeps it."""
    return None if instant is None else to_micros(instant)


def instant(value: int | None) -> datetime | None:
    """Return an instant from a row."""
    return None if value is None else from_micros(value)
