"""Reads on jobs and their ledger: definitions, eras, pauses, verdict ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from cronsensus.errors import StoreCorrupt
from cronsensus.model.job import JobHistory, JobSpec, JobView, Stretch
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import State
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import read_era, specs_of
from cronsensus.stores.sql.occurrence_rows import instant, micros
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import read_one, whole_number
from cronsensus.timing.instants import from_micros

T = TypeVar("T")


def read_job(tx: Transaction, name: str) -> JobView | None:
    """Return one job, retired or not."""
    rows = tx.send("job", space=tx.namespace, job=name).rows
    return read_one(rows[0], lambda row: _read_view(tx, row), f"job {name!r}") if rows else None


def list_jobs(tx: Transaction, after: str, limit: int, *, retired: bool) -> list[JobView]:
    """Return jobs by name, in the order of code points."""
    also = () if retired else ("living",)
    return _by_name(tx, "jobs", after, limit, lambda row: _read_view(tx, row), also=also)


def list_edges(tx: Transaction, after: str, limit: int) -> list[JobSpec]:
    """Return the definitions of living jobs that come after others, by name."""
    return _by_name(tx, "edges", after, limit, lambda row: _read_spec(tx, row))


def _by_name(
    tx: Transaction, statement: str, after: str, limit: int, read: Callable[[AnyRow], T], *, also: Sequence[str] = ()
) -> list[T]:
    def fetch(after: str, size: int) -> Sequence[AnyRow]:
        rows = tx.send(statement, also=also, space=tx.namespace, after=after, size=size).rows
        with suppress(StoreCorrupt):  # all in one statement; from here on they are known
            specs_of(tx, {row.id: row for row in rows})
        return rows

    return tx.unreadable.read_page(
        limit, after, fetch, read, lambda row: f"job {row.name!r}", position=lambda row: row.name
    )


def _read_spec(tx: Transaction, row: AnyRow) -> JobSpec:
    return specs_of(tx, {row.id: row})[row.id]


def _read_view(tx: Transaction, row: AnyRow) -> JobView:
    return JobView(
        id=row.id,
        spec=_read_spec(tx, row),
        revision=whole_number(row.revision),
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


def read_history(tx: Transaction, job: str) -> JobHistory:
    """Return every era of a job's life and its paused stretches, oldest first."""
    job_values: dict[str, Any] = {"space": tx.namespace, "job": job}
    all_eras, pauses = tx.send("eras", **job_values), tx.send_last("pauses", **job_values)
    return JobHistory(
        tuple(read_one(era, read_era, f"an era of job {job!r}") for era in all_eras.rows),
        tuple(read_one(pause, _read_stretch, f"a pause of job {job!r}") for pause in pauses),
    )


def _read_stretch(row: AnyRow) -> Stretch:
    return Stretch(from_micros(row.start), instant(row.end))


def list_ranges(
    tx: Transaction, name: str, *, since: datetime | None, until: datetime | None, after: int, limit: int
) -> list[LedgerRange]:
    """Return the verdict ranges that touch [since, until], by id."""
    range_bounds = {"since": micros(since), "until": micros(until)}
    bounds: dict[str, Any] = {name: bound for name, bound in range_bounds.items() if bound is not None}

    def fetch(after: int, size: int) -> Sequence[AnyRow]:
        return tx.send("verdicts", also=bounds, space=tx.namespace, job=name, after=after, size=size, **bounds).rows

    return tx.unreadable.read_page(
        limit,
        after,
        fetch,
        lambda row: ledger_range(name, row),
        lambda row: f"verdict {row.id} of job {name!r}",
    )


def ledger_range(name: str, row: AnyRow) -> LedgerRange:
    """Return a verdict range of a job."""
    count = None if row.counted is None else whole_number(row.counted)
    verdicts = VerdictRange(from_micros(row.first), from_micros(row.last), State(row.state), row.reason, count)
    return LedgerRange(row.id, name, verdicts, from_micros(row.decided_at))
