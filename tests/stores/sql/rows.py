"""One row of each kind, and how a statement of ``queries/*.sql`` is tried where there are only these."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, Table, TextClause, bindparam, insert, text
from sqlalchemy.sql.elements import BindParameter

from cronsensus.stores.sql import schema as tables
from cronsensus.stores.sql.queries import LIST, queries_of, with_pieces
from cronsensus.timing.instants import LATEST_MICROS

NOW = 1000
Row = dict[str, Any]

ASKED: Row = {
    "space": "ours", "now": NOW, "lease_now": NOW, "boot": "epoch", "session": "s1", "owner": "s1", "holders": ["s1"],
    "presumed": ["gone"], "occurrence": 1, "ids": [1], "token": 7, "claim_token": 7, "tokens": [7], "job": 5,
    "name": "name", "wanted_key": "name", "time": NOW, "seen": 10, "seen_watermark": 10, "seen_revision": 3,
    "new_watermark": NOW,
    "lock": "lock", "place": 0, "holder": "me", "until": NOW, "level": 4, "size": 9, "after_due": 10, "after_id": 1,
    "full": [90], "blocked": [5], "heads": [3], "new_state": "failed", "moment": NOW, "revised": 3, "before": 7,
    "seen_token": 7, "names": ["name"], "keys": ["name"],
    "key": "name", "times": [NOW], "pause": 4, "ended": NOW, "passed": NOW, "mine": "name", "ruled": 0,
    "moved": NOW, "least": 0, "most": NOW, "waiting_since": None, "needed_from": None,
    "sessions": ["s1"], "wanted": "name", "batch": 8, "never": LATEST_MICROS,
}  # fmt: skip
"""What each parameter is; those that are not here are values to be written."""

SESSION: Row = {
    "number": 1, "id": "s1", "namespace": "ours", "node": "n", "host": "h", "pid": 1, "pid_started": 1,
    "release": "r", "version": "v", "concurrency": 1, "functions": 1, "started_at": 1, "renewed_at": 1, "beats": 0,
    "lease_until": NOW + 1, "epoch": "epoch", "draining": 0,
}  # fmt: skip
OVERDUE: Row = {**SESSION, "lease_until": NOW}
LONG_OVERDUE: Row = {"lease_until": NOW - 1}
PENDING: Row = {
    "id": 1, "namespace": "ours", "job_id": 5, "key": "name", "origin": "schedule", "state": "pending", "serial": 1,
    "priority": 4, "level": 4, "due_at": NOW, "expires_at": None, "attempt": 0, "crashes": 0, "failures": 0, "token": 7,
    "session": "s1", "created_at": 1,
}  # fmt: skip
RUNNING: Row = {**PENDING, "state": "running"}
BATCH: Row = {**PENDING, "id": 8, "key": "batch"}
PARKED: Row = {**BATCH, "parked_on": "items", "listed": 2, "due_at": LATEST_MICROS}
ITEM: Row = {"parent": 8}
NOT_BY_NAME: list[Row] = [{"name": "other"}, {"namespace": "theirs"}]
IDS: Row = {"ids": [5]}
NAMED: Row = {"job": "name"}
TAKEN: list[tuple[Table, Row]] = [(tables.counters, {"name": "token", "value": 6})]
JOB: Row = {
    "id": 5, "namespace": "ours", "name": "name", "function": "f", "source": "code", "digest": "", "spec": "",
    "defined_at": 1, "revision": 3, "overlap": "skip", "keep": 1, "watermark": 10, "created_at": 1,
}  # fmt: skip
DUE: Row = {**JOB, "wake_at": NOW}
PAUSED: Row = {**JOB, "paused_at": 1}
PAUSE: Row = {"id": 4, "job_id": 5, "start": 1}
ENDED_PAUSE: Row = {**PAUSE, "end": 2}
LINE: Row = {"occurrence_id": 1, "sequence": 1, "attempt": 1, "at": 1, "level": "INFO", "text": ""}
ERA: Row = {"job_id": 5, "since": NOW - 1, "revision": 1}
RELEASE: Row = {"id": 1, "namespace": "ours", "release": "name", "first_seen_at": 1}
LOCK: Row = {
    "namespace": "ours", "name": "lock", "place": 0, "holder": "me", "session": "s1", "token": 7, "acquired_at": 1,
    "lease_until": NOW + 1, "epoch": "epoch",
}  # fmt: skip
FREE_STANDING: Row = {**LOCK, "session": None}
ENDED_RUN: Row = {
    "token": 7, "occurrence_id": 1, "attempt": 1, "session": "s1", "started_at": 1, "finished_at": 2,
    "end": "failed",
}  # fmt: skip

RANGE: Row = {
    "id": 1, "job_id": 5, "first": 1, "last": 2, "state": "missed", "reason": "", "decided_at": 1,
}  # fmt: skip
ENTRY: Row = {
    "id": 1, "namespace": "ours", "at": 1, "by": "", "action": "", "target": "", "why": "", "details": "",
}  # fmt: skip
OLD: Row = {**PENDING, "state": "succeeded", "finished_at": 1, "scheduled_for": 10}
OLD_OF_A_JOB: list[Row] = [OLD, {**OLD, "scheduled_for": None}, {**OLD, "scheduled_for": NOW}]
NOT_OLD: list[Row] = [{"job_id": 6}, {"finished_at": None}, {"finished_at": NOW}]
NOT_OUR_JOB: list[Row] = [{"id": 6}, {"namespace": "theirs"}]
NOT_OLD_RANGE: list[Row] = [{"job_id": 6}, {"last": NOW}]
OPEN: Row = {"ended_at": None}
RETIRED: Row = {**JOB, "retired_at": 1}
WAITING: Row = {**RETIRED, "waiting_until": NOW}
NOT_WAITING: list[Row] = [{"namespace": "theirs"}, {"waiting_until": None}, {"waiting_until": NOW + 1}]
REPLACED: Row = {**RELEASE, "id": 4, "release": "r4"}
RAN_OUT: list[Row] = [{**LOCK, "session": None, "lease_until": NOW}, {**LOCK, "session": None, "epoch": "other"}]
HELD_STILL: Row = {"lease_until": NOW + 1}
BEFORE: Row = {"before": NOW}
PRUNED: Row = {"pruned": NOW}
OF_REVISION: Row = {"seen_revision": 3}
AS_READ: Row = {**OF_REVISION, "seen_watermark": 10}
NOT_MINE: list[Row] = [{"id": "s2"}, {"namespace": "theirs"}]
ENDED: Row = {"ended_at": 1}
FINISHED: Row = {"finished_at": 1}
NOT_ALIVE: list[Row] = [ENDED, {"epoch": "other"}, {"lease_until": NOW}]
NOT_CURRENT: list[Row] = [{"id": 2}, {"token": 8}, {"state": "pending"}]
NOT_HELD: list[Row] = [{"namespace": "theirs"}, {"session": "s2"}, {"state": "pending"}]
NOT_THE_LOCK: list[Row] = [{"namespace": "theirs"}, {"name": "other"}]
NOT_GRANTED: list[Row] = [*NOT_THE_LOCK, {"place": 1}, {"token": 8}, {"holder": "you"}, {"session": None}]
RUN_OUT: list[Row] = [{"lease_until": NOW}, {"epoch": "other"}]
LATER_PAGE = {"due_at": 11, "serial": 0}


class Case(NamedTuple):
    """A statement by its name, the rows that it finds, what each row that it must not find differs in, and its lock."""

    name: str
    statement: str
    table: Table
    finds: list[Row]
    not_if: list[Row]
    locks: str | None = None
    beside: list[tuple[Table, Row]] = []  # noqa: RUF012 - nothing changes it
    asked: Row = {}  # noqa: RUF012 - nothing changes it


def by_name(name: str) -> TextClause:
    """Return a statement of ``queries/*.sql`` as SQLite gets it."""
    query = with_pieces(queries_of("sqlite")[name], frozenset())
    lists: list[BindParameter[Any]] = [bindparam(one, expanding=True) for one in LIST.findall(query.text)]
    return text(query.text).bindparams(*lists)


def ran(database: Connection, name: str, rows: list[tuple[Table, Row]], more: Row) -> CursorResult[Any]:
    """Run a statement where there are only these rows."""
    statement = by_name(name)
    for table, one in rows:
        database.execute(insert(table), one)
    bound = statement.compile().binds
    asked = {name: {**ASKED, **more}.get(name, 0) for name, one in bound.items() if one.required}
    found = database.execute(statement, asked)
    assert isinstance(found, CursorResult)
    return found


def touched(database: Connection, case: Case, row: Row) -> int:
    """Return how many rows a statement finds, or changes, where there is this one."""
    try:
        found = ran(database, case.statement, [*case.beside, (case.table, row)], case.asked)
        return len(found.all()) if found.returns_rows else found.rowcount
    finally:
        database.rollback()


def answered(database: Connection, name: str, *rows: tuple[Table, Row], **more: Any) -> Row:
    """Return the one row that a query answers with, where there are only these."""
    try:
        return dict(ran(database, name, list(rows), more).mappings().one())
    finally:
        database.rollback()
