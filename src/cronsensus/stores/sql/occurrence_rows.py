"""Make, insert and find rows of occurrences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from cronsensus.model.claim_order import level_of
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.model.states import SERIAL_ORIGINS, Origin, State
from cronsensus.payload.codec import write_payload
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import from_micros, to_micros

Key = tuple[int, str]
"""A job's id, and the key of an occurrence of it."""


class New(NamedTuple):
    """A new pending occurrence; the fields are in the order of ``insert_occurrences``."""

    namespace: str
    job_id: int
    key: str
    origin: str
    serial: int
    priority: int
    level: int
    scheduled_for: int | None
    due_at: int
    expires_at: int | None
    created_at: int
    retry_of: int | None
    payload: str | None
    fingerprint: str | None
    parent: int | None
    parked_on: str | None


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
    level: int | None = None,
    retry_of: int | None = None,
    fingerprint: str | None = None,
    parent: int | None = None,
    parked_on: str | None = None,
) -> New:
    """Return a new pending occurrence; what is left out comes from the job."""
    priority = spec.policies.priority if priority is None else priority
    return New(
        namespace=tx.namespace,
        job_id=job,
        key=key,
        origin=origin.value,
        serial=int(is_serial(spec, origin)),
        priority=priority,
        level=level_of(priority, origin, parent) if level is None else level,
        scheduled_for=scheduled_for,
        due_at=due_at,
        expires_at=expires_at,
        created_at=tx.now,
        retry_of=retry_of,
        payload=payload,
        fingerprint=fingerprint,
        parent=parent,
        parked_on=parked_on,
    )


def is_serial(spec: JobSpec, origin: Origin) -> bool:
    """Whether an occurrence is subject to overlap."""
    return origin in SERIAL_ORIGINS and spec.policies.overlap != "allow"


def payload_of(item: Item, spec: JobSpec) -> str | None:
    """Return arguments and headers of an item, as a row keeps them; arguments that are left out are the job's own.

    Raises:
        InvalidPayload: they are not JSON.
    """
    args = spec.args if item.args is None else item.args
    kwargs = spec.kwargs if item.kwargs is None else item.kwargs
    own = item.args is None and item.kwargs is None
    what = "arguments" if own else f"arguments of {item.job!r}"
    return write_payload(args, kwargs, what=what, headers=item.headers)


def insert_absent(tx: Transaction, rows: Sequence[New]) -> None:
    """Insert those of ``rows`` whose (job, key) does not exist.

    Safe when two nodes insert the same: the INSERT itself checks the unique key of (job_id, key).
    """
    tx.send_rows("insert_occurrences", rows)


class ExistingOccurrence(NamedTuple):
    """The existing occurrence with a key. Its arguments are read only if a caller chose the key."""

    id: int
    state: State
    payload: str | None = None


class Keys:
    """The existing occurrences with some keys; the queries are sent at once, and the answers read when needed."""

    def __init__(self, tx: Transaction, keys: Iterable[tuple[int | str, str]]) -> None:
        """Send the queries; ``keys``: pairs of a job, by its id or its name, and a key."""
        by_job: dict[int | str, list[str]] = {}
        for job, key in keys:
            by_job.setdefault(job, []).append(key)
        self._asked: list[Pending] = []
        for job, names in by_job.items():  # job by job: for pairs in one list, SQLite would read the whole table
            if isinstance(job, str):
                self._asked += tx.send_in("find_keys_by_name", "keys", names, job=job, space=tx.namespace)
            else:
                self._asked += tx.send_in("find_keys", "keys", names, job=job)

    def list_found(self) -> dict[Key, ExistingOccurrence]:
        """Return the existing occurrences, by the job's id and the key."""
        rows = [row for answer in self._asked for row in answer.rows]
        return {
            (row.job_id, row.key): ExistingOccurrence(row.id, State(row.state), getattr(row, "payload", None))
            for row in rows
        }


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
