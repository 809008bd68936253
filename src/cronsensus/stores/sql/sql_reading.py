"""Reads on occurrences, runs, logs, sessions, locks, counts and the audit trail. Bounded, by keyset."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from cronsensus.model.ledger import Counts, LedgerRange, TrailEntry
from cronsensus.model.occurrence import LogLine, Occurrence, OccurrenceFilter, RunView
from cronsensus.model.session import LockView, SessionView
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import loads, read_error, read_payload
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.looking import session_views
from cronsensus.stores.sql.occurrence_rows import instant, is_id, micros
from cronsensus.stores.sql.reading_jobs import ledger_range
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import bound_micros, read_one, whole_number
from cronsensus.timing.instants import from_micros, to_micros

_NEWEST = 1 << 62


def find_occurrence(tx: Transaction, number: int) -> Occurrence | None:
    """Return one occurrence."""
    rows = tx.send_last("occurrence", occurrence=number, space=tx.namespace) if is_id(number) else ()
    return read_one(rows[0], read_occurrence, f"run {number}") if rows else None


def occurrence_rows(
    tx: Transaction, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
) -> Sequence[AnyRow]:
    """Return a page of rows of occurrences, by id."""
    filter_values, also = _filter_values(where)
    name, beginning = ("newest_occurrences", _NEWEST) if newest_first else ("oldest_occurrences", 0)
    first = beginning if after is None else after
    return tx.send_last(name, also=also, space=tx.namespace, after=first, size=limit, **filter_values)


def ended_badly(tx: Transaction, since: datetime, after: int, limit: int) -> list[Occurrence]:
    """Return occurrences that failed, or were missed or cancelled, since a moment, by time."""
    rows = tx.send_last("ended_badly", space=tx.namespace, since=to_micros(since), after=after, size=limit)
    return tx.unreadable.keep_readable(rows, read_occurrence, lambda row: f"run {row.id}")


def list_decided(tx: Transaction, after: int, limit: int) -> list[LedgerRange]:
    """Return verdict ranges of all jobs, by id."""
    page_values: dict[str, Any] = {} if after < 0 else {"after": after, "size": limit}
    rows = tx.send_last("last_verdict" if after < 0 else "decided", space=tx.namespace, **page_values)
    return tx.unreadable.keep_readable(rows, lambda row: ledger_range(row.job, row), lambda row: f"verdict {row.id}")


def _filter_values(where: OccurrenceFilter) -> tuple[dict[str, Any], set[str]]:
    """Return the values of a filter, and the optional pieces of the statement that it needs."""
    values = {
        "job": where.job,
        "origin": None if where.origin is None else where.origin.value,
        "key": where.key,
        "session": where.session,
        "parent": where.parent,
        "since": micros(where.scheduled_from),
        "until": micros(where.scheduled_until),
    }
    values = {name: value for name, value in values.items() if value is not None}
    also = {*values, *(state.value for state in where.states)}
    if where.states:
        also.add("states")
    if where.parent is not None:
        pass  # along the items of the batch
    elif where.job is None and len(where.states) == 1:
        also.add("along_failed")  # without a condition, on MySQL, it has every state
    elif where.job is not None and where.key is None and not also.isdisjoint({"since", "until"}):
        also.add("along_nominal")
    return values, also


def read_occurrence(row: AnyRow) -> Occurrence:
    """Return an occurrence."""
    args, kwargs = read_payload(row.payload)
    return Occurrence(
        id=row.id,
        job=_job_of(row),
        key=row.key,
        origin=Origin(row.origin),
        state=State(row.state),
        scheduled_for=instant(row.scheduled_for),
        due_at=from_micros(row.due_at),
        priority=whole_number(row.priority),
        attempt=whole_number(row.attempt),
        crashes=whole_number(row.crashes),
        failures=whole_number(row.failures),
        token=whole_number(row.token),
        session=row.session,
        node=row.node,
        reason=row.reason,
        result=row.result,
        error=read_error(row.error),
        progress=None if row.progress_done is None else (row.progress_done, row.progress_total),
        cancel_requested=row.cancel_reason is not None,
        retry_of=row.retry_of,
        retried_as=row.retried_as,
        args=args,
        kwargs=kwargs,
        created_at=from_micros(row.created_at),
        started_at=instant(row.started_at),
        finished_at=instant(row.finished_at),
        fingerprint=row.fingerprint,
        parent=row.parent,
        listed=row.listed,
        parked_on=row.parked_on,
        note=row.note,
        reserved=bool(row.reserved),
    )


def _job_of(row: AnyRow) -> str:
    if row.job is None:
        raise LookupError(f"its job {row.job_id} is not there")
    return str(row.job)


def list_runs(tx: Transaction, numbers: Sequence[int]) -> list[RunView]:
    """Return the attempts of occurrences, those of each together, oldest first, with the running one last."""
    occurrence_answers = tx.send_in("occurrences_of_attempts", "ids", filter(is_id, numbers), space=tx.namespace)
    occurrences = {row.id: row for answer in occurrence_answers for row in answer.rows}

    def read_ended_run(run: AnyRow) -> RunView:
        row = occurrences[run.occurrence_id]
        return _read_run(
            row,
            run,
            finished_at=from_micros(run.finished_at),
            end=run.end,
            reason=run.reason,
            error=read_error(run.error),
        )

    rows = [row for answer in tx.send_in("attempts", "ids", occurrences) for row in answer.rows]
    current = [row for row in occurrences.values() if row.state == "running"]
    views = [
        *tx.unreadable.keep_readable(rows, read_ended_run, lambda run: f"the attempt of token {run.token}"),
        *tx.unreadable.keep_readable(
            current,
            lambda row: _read_run(row, row, finished_at=None, end=None),
            lambda row: f"the attempt of run {row.id}",
        ),
    ]
    place = {number: place for place, number in enumerate(numbers)}
    return sorted(views, key=lambda view: place[view.occurrence])


def _read_run(row: AnyRow, run: AnyRow, **ended: Any) -> RunView:
    return RunView(
        occurrence=row.id,
        job=_job_of(row),
        key=row.key,
        scheduled_for=instant(row.scheduled_for),
        attempt=whole_number(run.attempt),
        token=whole_number(run.token),
        session=run.session,
        node=run.node,
        started_at=from_micros(run.started_at),
        **ended,
    )


def list_logs(tx: Transaction, number: int, after: int, limit: int) -> list[tuple[int, int, LogLine]]:
    """Return log lines as (sequence, attempt, line), oldest first."""
    if not is_id(number):
        return []
    return tx.unreadable.keep_readable(
        tx.send_last("log_lines", space=tx.namespace, occurrence=number, after=after, size=limit),
        lambda row: (
            whole_number(row.sequence),
            whole_number(row.attempt),
            LogLine(from_micros(row.at), row.level, row.text),
        ),
        lambda _: f"a log line of run {number}",
    )


def list_sessions(tx: Transaction, limit: int, *, ended: bool) -> list[SessionView]:
    """Return open sessions, or the ended ones too; newest first."""
    rows = tx.send_last("sessions", also=() if ended else ("open",), space=tx.namespace, size=limit)
    return session_views(tx, rows)


def list_locks(tx: Transaction, name: str | None, limit: int) -> list[LockView]:
    """Return held locks by name, or the held places of one."""
    name_value: dict[str, Any] = {} if name is None else {"lock": name}
    clocks: dict[str, Any] = {"boot": tx.epoch, "moment": tx.moment}
    rows = tx.send_last("locks", also=name_value, space=tx.namespace, size=limit, **name_value, **clocks)
    return tx.unreadable.keep_readable(rows, lambda row: _read_lock(tx, row), lambda row: f"lock {row.name!r}")


def _read_lock(tx: Transaction, row: AnyRow) -> LockView:
    return LockView(
        name=row.name,
        holder=row.holder,
        session=row.session,
        token=whole_number(row.token),
        acquired_at=from_micros(row.acquired_at),
        expires_in=timedelta(microseconds=bound_micros(whole_number(row.lease_until) - tx.lease_now)),
        place=whole_number(row.place),
        host=row.host,
        pid=row.pid,
        pid_started=row.pid_started,
    )


def read_counts(tx: Transaction, limit: int) -> Counts:
    """Return bounded counts."""
    [row] = tx.send_last("counts", space=tx.namespace, size=limit, boot=tx.epoch, moment=tx.moment)
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
    job_answers = tx.send_in("job_ids", "names", names, space=tx.namespace)
    names_by_id = {row.id: row.name for answer in job_answers for row in answer.rows}
    count_answers = tx.send_in("count_pending", "ids", names_by_id, space=tx.namespace)
    return {names_by_id[row.job_id]: row.waiting for answer in count_answers for row in answer.rows}


def list_trail(tx: Transaction, target: str | None, after: int | None, limit: int) -> list[TrailEntry]:
    """Return the audit trail, newest first."""
    target_value: dict[str, Any] = {} if target is None else {"target": target}

    def fetch(before: int, size: int) -> Sequence[AnyRow]:
        return tx.send("trail", also=target_value, space=tx.namespace, before=before, size=size, **target_value).rows

    return tx.unreadable.read_page(
        limit,
        _NEWEST if after is None else after,
        fetch,
        lambda row: TrailEntry(
            row.id, from_micros(row.at), row.by, row.action, row.target, row.why, _read_details(row.details)
        ),
        lambda row: f"entry {row.id} of the audit trail",
    )


def _read_details(text: str) -> dict[str, Any]:
    details = loads(text)
    if not isinstance(details, dict):
        raise TypeError("its details are no object of JSON")
    return details
