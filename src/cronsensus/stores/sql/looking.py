"""The verb ``look``: read due jobs, pending work, and sessions that hold runs. If no job is due, one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from cronsensus.errors import StoreCorrupt
from cronsensus.model.job import Era, JobSpec, JobState, Stretch
from cronsensus.model.session import SessionView
from cronsensus.payload.codec import loads
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import definition_of, eras_after, spec_of, specs_of
from cronsensus.stores.sql.occurrence_rows import instant
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import READING_RAISES, bound_micros, instant_of, texts_by_name, whole_number
from cronsensus.stores.values import Partition, View, newest_of
from cronsensus.timing.instants import LATEST_MICROS, from_micros

_MICROSECOND = timedelta(microseconds=1)
MOST_SESSIONS_SHOWN = 64
LOOKS = 5
"""Most attempts until two statements agree; after that the next look is due at once."""

_EVERYTHING = Partition(of=1, place=0)


def read_view(tx: Transaction, limit: int, partition: Partition | None, ahead: timedelta) -> View:
    """Read which jobs are due, which occurrences wait, and which sessions hold runs."""
    ahead_micros = ahead // _MICROSECOND
    partition_values: dict[str, Any] = {"space": tx.namespace, **(partition or _EVERYTHING)._asdict()}
    for _ in range(LOOKS):
        rows = tx.send_first("look", **partition_values, most=limit + 1, ahead=ahead_micros, never=LATEST_MICROS)
        summary = rows[0]
        due_rows: Sequence[AnyRow] = ()
        if summary.listed_jobs:
            due_rows = tx.send("due_jobs", **partition_values, until=tx.now + ahead_micros, size=limit + 1).rows
        is_consistent = len(due_rows) >= summary.listed_jobs
        if is_consistent:
            break
        # Without a snapshot, a job may be fired between the two statements. Then the first read neither its next due
        # time nor its holder, and the second does not read it any more: a node that believed both would sleep through
        # its next due time.
    more = len(due_rows) > limit
    if more and (newest := newest_of(limit)):
        newest_rows = tx.send("newest_due_jobs", **partition_values, until=tx.now, size=newest).rows
        # By id: without a snapshot, a job may have been fired between the statements, and then they overlap.
        due_rows = list(
            {row.id: row for row in (*due_rows[: limit - len(newest_rows)], *reversed(newest_rows))}.values()
        )
    states = tuple(_read_states(tx, due_rows[:limit]))
    return View(
        now=from_micros(tx.now),
        jobs=states,
        more=more,
        next_job=_some_instant(summary.next_job) if is_consistent else from_micros(tx.now),
        backlog=summary.backlog is not None,
        next_pending=_some_instant(summary.next_pending),
        holders=tuple(session_views(tx, (row for row in rows if row.turns == 0))),
        sessions=tuple(
            sorted(row.id for row in rows if row.turns == 1 and _is_live_node(tx, row))[:MOST_SESSIONS_SHOWN]
        ),
        age=tx.dialect.monotonic() - tx.came_at,
        parked=summary.parked is not None,
    )


def _some_instant(micros: Any) -> datetime | None:
    """Return an instant; ``None`` for any other value, which a SQLite file may hold."""
    return from_micros(micros) if isinstance(micros, int) else None


def _read_states(tx: Transaction, rows: Sequence[AnyRow]) -> list[JobState]:
    """Return the states of due jobs. An unreadable job is left out and logged, so that the others still fire."""
    try:
        specs, eras = specs_of(tx, {row.id: row for row in rows}), eras_after(tx, rows)
        return [_read_state(tx, row, specs[row.id], eras[row.id]) for row in rows]
    except (StoreCorrupt, TypeError, ValueError, LookupError):
        pass
    # One by one, so that an unreadable job does not affect the others.
    return tx.unreadable.keep_readable(
        rows,
        lambda row: _read_state(tx, row, spec_of(tx, row), eras_after(tx, [row])[row.id]),
        lambda row: f"job {row.name!r} is due, cannot be fired, and",
    )


def _read_state(tx: Transaction, row: AnyRow, spec: JobSpec, eras: tuple[Era, ...]) -> JobState:
    stretches: tuple[Stretch, ...] = ()
    watermark = instant_of(row.watermark)
    if row.pause_ended_at is not None and instant_of(row.pause_ended_at) > watermark:
        pause_rows = tx.send("pauses_after", job=row.id, watermark=watermark).rows
        stretches = tuple(
            Stretch(from_micros(instant_of(pause.start)), from_micros(instant_of(pause.end))) for pause in pause_rows
        )
    if not eras:
        raise StoreCorrupt(f"the store holds no era of job {row.name!r}; define the job anew")
    return JobState(
        id=row.id,
        spec=spec,
        revision=whole_number(row.revision),
        watermark=from_micros(watermark),
        eras=eras,
        pauses=stretches,
        active=row.active,
        due_at=from_micros(instant_of(row.wake_at)),
        definition=definition_of(row),
    )


def is_alive(tx: Transaction, row: AnyRow) -> bool:
    """Whether the session of ``row`` is alive."""
    return row.ended_at is None and row.epoch == tx.epoch and row.lease_until > tx.lease_now


def _is_live_node(tx: Transaction, row: AnyRow) -> bool:
    """Whether the session of ``row`` is alive, and a node."""
    try:
        return bool(row.concurrency > 0 and is_alive(tx, row) and row.id.encode())
    except READING_RAISES as error:
        tx.unreadable.log_unreadable(f"session {row.id!r} takes no turn, and", error)
        return False


def session_views(tx: Transaction, rows: Iterable[AnyRow]) -> list[SessionView]:
    """Return those sessions that can be read."""
    return tx.unreadable.keep_readable(rows, lambda row: session_view(tx, row), lambda row: f"session {row.id!r}")


def session_view(tx: Transaction, row: AnyRow) -> SessionView:
    """Return a session's view, from a row of ``queries/looks.sql``."""
    ended = row.ended_at is not None
    if ended:
        lease_left, state = timedelta(0), row.ended_as
    elif row.epoch != tx.epoch:
        # Its clock ended with its boot, an unknown time ago.
        lease_left, state = -_MICROSECOND, "dead"
    else:
        lease_left = timedelta(microseconds=bound_micros(whole_number(row.lease_until) - tx.lease_now))
        state = "dead" if lease_left <= timedelta(0) else "draining" if row.draining else "alive"
    return SessionView(
        id=row.id,
        node=row.node,
        host=row.host,
        pid=whole_number(row.pid),
        pid_started=whole_number(row.pid_started),
        release=row.release,
        version=row.version,
        concurrency=whole_number(row.concurrency),
        functions=whole_number(row.functions),
        state=state,
        started_at=from_micros(row.started_at),
        renewed_at=from_micros(row.renewed_at),
        ended_at=instant(row.ended_at),
        ended_why=row.ended_why,
        expires_in=lease_left,
        holds=row.held_runs + row.held_locks,
        declares=texts_by_name(loads(text) if (text := getattr(row, "declares", None)) else None),
        tzdata=getattr(row, "tzdata", None) or "",
        zones=texts_by_name(loads(text) if (text := getattr(row, "zones", None)) else None),
    )
