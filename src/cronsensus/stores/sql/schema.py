"""The tables of a SQL store, in their current version; ``migrations`` has how a store came to have them.

Instants are BIGINT microseconds since 1970 in UTC. States and origins are text with a CHECK. There are no foreign keys:
only ``prune`` deletes rows, and it deletes related rows in one transaction. A foreign key would lock the parent at
every insert, on the hot path.

::

    jobs ──┬── eras          a trigger and the moment from which it applies
           ├── pauses        stretches in which nothing fires
           ├── verdicts      ranges of nominal times without an occurrence, and why
           └── occurrences ──┬── runs   ended attempts, by token
                             └── logs   lines that jobs wrote
    sessions   releases   locks   trail   counters   cronsensus_schema
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Sequence,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeEngine

from cronsensus.model.states import Origin, State

metadata = MetaData()

Big = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits everywhere; SQLite generates ids only for a column declared INTEGER, which has 64 bits there."""

Long = Text().with_variant(Text(4_000_000), "mysql")
"""Text of the length that arguments and results may have; MySQL's plain TEXT ends at 64 KiB."""


class _MySqlWord(String):
    """Text on MySQL, compared exactly: only one collation keeps case and trailing spaces (MariaDB names its own)."""


@compiles(_MySqlWord, "mysql")
def _mysql_word(type_: _MySqlWord, compiler: Any, **_: Any) -> str:
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    return f"VARCHAR({type_.length}) CHARACTER SET utf8mb4 COLLATE {collation}"


def _name_type(length: int) -> TypeEngine[str]:
    """Return the type of a name: compared exactly, ordered by code points, in any database."""
    kind = String(length).with_variant(String(length, collation="C"), "postgresql")
    return kind.with_variant(_MySqlWord(length), "mysql")


_TABLE: dict[str, Any] = {
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_engine": "InnoDB",
}


def _words_check(table: str, column: str, words: type[State | Origin]) -> CheckConstraint:
    # Named after the table, too: on MySQL the name of a constraint is unique in the whole database.
    literals = ", ".join(repr(str(word)) for word in words)
    return CheckConstraint(f"{column} IN ({literals})", name=f"cronsensus_{table}_known_{column}")


_LISTED = "id > 0"
"""A condition that is true for every row, for queries that use a partial index: ``{listed}``.

PostgreSQL plans by statistics. Without statistics, or with those of a quiet hour, it prefers the index of pending
occurrences to the primary key for a single row, and keeps that plan. So some indexes there are only for queries with
this condition.
"""

NAMESPACE_OF_TURNING = "(CASE WHEN ended_at IS NULL AND concurrency > 0 THEN namespace END)"
"""On PostgreSQL: the namespace of a session that is open and a node. The expression fits only one index: with the
statistics of few sessions, the planner would take the index of all open sessions, and keep that plan."""


def _other_dialects(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name != "mysql"


def _not_on_postgres(*_: Any, dialect: Dialect, **__: Any) -> bool:
    return dialect.name != "postgresql"


def _partial_index(
    name: str, *columns: Any, where: str, mysql: tuple[Any, ...] | None = None, listed: bool = False
) -> tuple[Index, ...]:
    """Return an index over the few rows that a hot path needs; ``listed``: only for queries with ``{listed}``.

    MySQL has no partial indexes. Its index has the columns in ``mysql``, with the columns of the condition first, so
    that the same statements find the rows next to each other; ``()``: another index serves as well.
    """
    condition = text(f"{where} AND {_LISTED}" if listed else where)
    partial = Index(name, *columns, sqlite_where=text(where), postgresql_where=condition)
    indexes = (partial.ddl_if(callable_=_other_dialects),)
    if mysql == ():
        return indexes
    return (*indexes, Index(name, *(mysql or columns)).ddl_if(dialect="mysql"))


schema = Table(
    "cronsensus_schema",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", _name_type(100), nullable=False),
    Column("applied_at", Big, nullable=False),
    **_TABLE,
)

tokens = Sequence("cronsensus_tokens", data_type=BigInteger())
"""Fencing tokens come from this sequence where sequences commit nothing; elsewhere from a counter, whose row
transactions lock one after the other."""

counters = Table(
    "cronsensus_counters",
    metadata,
    Column("name", _name_type(20), primary_key=True),
    Column("value", Big, nullable=False),
    **_TABLE,
)

releases = Table(
    "cronsensus_releases",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", _name_type(200), nullable=False),
    Column("release", _name_type(200), nullable=False),
    Column("first_seen_at", Big, nullable=False),
    UniqueConstraint("namespace", "release", name="cronsensus_releases_by_name"),
    **_TABLE,
)

jobs = Table(
    "cronsensus_jobs",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", _name_type(200), nullable=False),
    Column("name", _name_type(200), nullable=False),
    Column("function", _name_type(200), nullable=False),
    Column("source", _name_type(10), nullable=False),
    Column("digest", _name_type(64), nullable=False),
    # When this definition began.
    Column("defined_at", Big),
    Column("spec", Long, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("overlap", _name_type(20), nullable=False),
    Column("concurrency", Integer),
    Column("keep", Big, nullable=False),
    Column("watermark", Big, nullable=False),
    Column("horizon", Big),
    Column("next_due", Big),
    # next_due while the job fires, else NULL. look() reads it, so that paused and retired jobs cost nothing.
    Column("wake_at", Big),
    Column("paused_at", Big),
    Column("paused_by", Long),
    Column("paused_why", Long),
    # When the last ended pause ended: planning needs the pauses only while this is above the watermark.
    Column("pause_ended_at", Big),
    Column("retired_at", Big),
    Column("created_at", Big, nullable=False),
    # Until when the pending occurrences of a retired job are kept.
    Column("waiting_until", Big),
    # 1: its occurrences come after others (``after`` in ``spec``).
    Column("dependent", SmallInteger),
    UniqueConstraint("namespace", "name", name="cronsensus_jobs_by_name").ddl_if(callable_=_not_on_postgres),
    UniqueConstraint("name", "namespace", name="cronsensus_jobs_by_name").ddl_if(dialect="postgresql"),
    Index("cronsensus_jobs_waking", "namespace", "wake_at", "id", postgresql_where=text("wake_at IS NOT NULL")),
    # For define_jobs(complete=True): jobs declared in code, without those created at run time.
    *_partial_index(
        "cronsensus_jobs_declared",
        "namespace",
        "id",
        where="source = 'code' AND retired_at IS NULL",
        mysql=("namespace", "source", "retired_at", "id"),
    ),
    *_partial_index("cronsensus_jobs_waiting", "namespace", "waiting_until", where="waiting_until IS NOT NULL"),
    # Jobs that have more than one era.
    *_partial_index(
        "cronsensus_jobs_redefined", "namespace", "id", where="revision > 1", mysql=("namespace", "revision")
    ),
    *_partial_index(
        "cronsensus_jobs_dependent",
        "namespace",
        "name",
        where="dependent = 1",
        mysql=("namespace", "dependent", "name"),
    ),
    *_partial_index("cronsensus_jobs_retired", "namespace", "retired_at", where="retired_at IS NOT NULL"),
    *_partial_index(
        "cronsensus_jobs_paused", "namespace", where="paused_at IS NOT NULL", mysql=("namespace", "paused_at")
    ),
    **_TABLE,
)

eras = Table(
    "cronsensus_eras",
    metadata,
    Column("id", Big, primary_key=True),
    Column("job_id", Big, nullable=False),
    Column("since", Big, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("trigger", Long),
    # The upstreams of its occurrences in that time, as JSON; NULL: none.
    Column("after", Long),
    Index("cronsensus_eras_of_job", "job_id", "since"),
    **_TABLE,
)

pauses = Table(
    "cronsensus_pauses",
    metadata,
    Column("id", Big, primary_key=True),
    Column("job_id", Big, nullable=False),
    Column("start", Big, nullable=False),
    Column("end", Big),
    Index("cronsensus_pauses_of_job", "job_id", "start"),
    **_TABLE,
)

occurrences = Table(
    "cronsensus_occurrences",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", _name_type(200), nullable=False),
    Column("job_id", Big, nullable=False),
    Column("key", _name_type(400), nullable=False),
    Column("origin", _name_type(12), nullable=False),
    Column("state", _name_type(10), nullable=False),
    # 1: subject to the job's overlap policy, so it is claimed only when it is the earliest active one of its job.
    Column("serial", SmallInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    # Priority and class in one number (model/claim_order.py).
    Column("level", Big, nullable=False),
    Column("scheduled_for", Big),
    Column("due_at", Big, nullable=False),
    Column("expires_at", Big),
    Column("attempt", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    # Of the running attempt, or of the last one.
    Column("token", Big, nullable=False),
    Column("session", _name_type(100)),
    Column("node", _name_type(200)),
    Column("created_at", Big, nullable=False),
    Column("started_at", Big),
    Column("finished_at", Big),
    Column("cancel_reason", Long),
    # A retry and its original point to each other: a run is retried once; retry its retry to go on.
    Column("retry_of", Big),
    Column("retried_as", Big),
    Column("progress_done", Double),
    Column("progress_total", Double),
    Column("reason", Long),
    # JSON [args, kwargs]; NULL: none. Fixed when the occurrence is created.
    Column("payload", Long),
    Column("result", Long),
    # JSON {type, message, traceback}.
    Column("error", Long),
    # A hash that distinguishes payloads under the same key.
    Column("fingerprint", Long),
    # The batch that it is an item of.
    Column("parent", Big),
    # For a batch whose list is complete: how many items it had.
    Column("listed", Big),
    # What kind of thing a parked occurrence waits for, without a due time; it stays when the occurrence is closed. Any
    # word; no statement compares it with a particular one.
    Column("parked_on", _name_type(20)),
    # The note that its last snoozed attempt left for the next one.
    Column("note", Long),
    # 1: it runs, but was claimed to wait on its node for a free slot, and is not known to have started.
    Column("reserved", SmallInteger),
    _words_check("occurrences", "origin", Origin),
    _words_check("occurrences", "state", State),
    # The identity of an occurrence: at most one row for a (job, key), whichever node writes it.
    # On PostgreSQL the columns have the other order: the planner must not use this index for all occurrences of a job,
    # and for a list of names it looks up each of them only if they are the first column.
    UniqueConstraint("job_id", "key", name="cronsensus_occurrences_by_key").ddl_if(callable_=_not_on_postgres),
    UniqueConstraint("key", "job_id", name="cronsensus_occurrences_by_key").ddl_if(dialect="postgresql"),
    Index("cronsensus_occurrences_of_job", "job_id", "id", postgresql_where=text(_LISTED)),
    sqlite_autoincrement=True,  # an id that was pruned is never given to another occurrence
    **_TABLE,
)
_of = occurrences.c
_partial_index(
    # In the order of claims, with the columns by which claiming skips an entry without reading its row.
    "cronsensus_occurrences_pending",
    _of.namespace,
    _of.level.desc(),
    _of.due_at,
    _of.id,
    _of.job_id,
    _of.serial,
    where="state = 'pending'",
    listed=True,
    mysql=(_of.namespace, _of.state, _of.level, _of.due_at, _of.id, _of.job_id, _of.serial),
)
_partial_index(
    "cronsensus_occurrences_expiring",
    _of.namespace,
    _of.expires_at,
    where="state = 'pending' AND attempt = 0 AND expires_at IS NOT NULL",
    mysql=(_of.namespace, _of.state, _of.attempt, _of.expires_at),
)
_partial_index(
    "cronsensus_occurrences_running",
    _of.namespace,
    _of.session,
    _of.job_id,
    where="state = 'running'",
    listed=True,
    mysql=(_of.namespace, _of.state, _of.session, _of.job_id),
)
_partial_index(
    "cronsensus_occurrences_serial",
    _of.job_id,
    _of.state,
    _of.id,
    where="serial = 1 AND finished_at IS NULL",
    mysql=(_of.job_id, _of.serial, _of.finished_at, _of.state, _of.id),
)
_partial_index("cronsensus_occurrences_nominal", _of.job_id, _of.scheduled_for, where="scheduled_for IS NOT NULL")
_partial_index("cronsensus_occurrences_final", _of.job_id, _of.finished_at, where="finished_at IS NOT NULL")
_partial_index(
    "cronsensus_occurrences_unwell",
    _of.namespace,
    _of.finished_at,
    _of.id,
    where="state IN ('failed', 'missed', 'cancelled')",
    mysql=(_of.namespace, _of.state, _of.finished_at, _of.id),
)
_partial_index(
    "cronsensus_occurrences_items",
    _of.parent,
    _of.state,
    _of.id,
    where="parent IS NOT NULL",
)
_partial_index(
    "cronsensus_occurrences_parked",
    _of.namespace,
    _of.id,
    where="parked_on IS NOT NULL AND state = 'pending'",
    # All parked occurrences have the same due time (never), then come by id: so this index has them in page order.
    mysql=(_of.namespace, _of.state, _of.due_at),
)
_partial_index(
    "cronsensus_occurrences_failed",
    _of.namespace,
    _of.id,
    where="state = 'failed'",
    mysql=(_of.namespace, _of.state, _of.id),
)


runs = Table(
    "cronsensus_runs",
    metadata,
    # Tokens are unique in the whole store, so the token identifies the run.
    Column("token", Big, primary_key=True, autoincrement=False),
    Column("occurrence_id", Big, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("session", _name_type(100), nullable=False),
    Column("node", _name_type(200)),
    Column("started_at", Big, nullable=False),
    Column("finished_at", Big, nullable=False),
    Column("end", _name_type(10), nullable=False),
    Column("reason", Long),
    Column("error", Long),
    Index("cronsensus_runs_of_occurrence", "occurrence_id"),
    **_TABLE,
)

logs = Table(
    "cronsensus_logs",
    metadata,
    Column("occurrence_id", Big, primary_key=True, autoincrement=False),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Big, nullable=False),
    Column("level", _name_type(20), nullable=False),
    Column("text", Long, nullable=False),
    sqlite_with_rowid=False,
    **_TABLE,
)

verdicts = Table(
    "cronsensus_verdicts",
    metadata,
    Column("id", Big, primary_key=True),
    Column("job_id", Big, nullable=False),
    Column("first", Big, nullable=False),
    Column("last", Big, nullable=False),
    Column("state", _name_type(10), nullable=False),
    Column("reason", Long, nullable=False),
    Column("count", Integer),
    Column("decided_at", Big, nullable=False),
    _words_check("verdicts", "state", State),
    Index("cronsensus_verdicts_of_job", "job_id", "id"),
    Index("cronsensus_verdicts_by_time", "job_id", "last"),
    **_TABLE,
)

sessions = Table(
    "cronsensus_sessions",
    metadata,
    # The order in which sessions were opened; clocks may repeat.
    Column("number", Big, primary_key=True),
    Column("id", _name_type(100), nullable=False),
    Column("namespace", _name_type(200), nullable=False),
    Column("node", _name_type(200), nullable=False),
    Column("host", _name_type(200), nullable=False),
    Column("pid", Big, nullable=False),
    Column("pid_started", Big, nullable=False),
    Column("release", _name_type(200), nullable=False),
    Column("version", _name_type(50), nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("functions", Integer, nullable=False),
    # The function of each declared job.
    Column("declares", Long),
    # Its time zone data, and a digest of the rules of each zone that its jobs use.
    Column("tzdata", _name_type(200)),
    Column("zones", Long),
    Column("started_at", Big, nullable=False),
    Column("renewed_at", Big, nullable=False),
    # How often it was renewed.
    Column("beats", Big),
    # On the lease clock of the store, which means something only within its epoch (one boot of a host).
    Column("lease_until", Big, nullable=False),
    Column("epoch", _name_type(64), nullable=False),
    Column("draining", SmallInteger, nullable=False),
    Column("ended_at", Big),
    Column("ended_as", _name_type(10)),
    Column("ended_why", Long),
    # 1: it showed a sign of life; 0: it shows none; NULL: unknown.
    Column("shown", SmallInteger),
    UniqueConstraint("namespace", "id", name="cronsensus_sessions_by_id"),
    *_partial_index("cronsensus_sessions_open", "namespace", where="ended_at IS NULL", mysql=()),
    # The open sessions of nodes, which look() reads; other sessions cost nothing.
    Index(
        "cronsensus_sessions_turning",
        text(NAMESPACE_OF_TURNING),
        postgresql_where=text(f"{NAMESPACE_OF_TURNING} IS NOT NULL"),
    ).ddl_if(dialect="postgresql"),
    Index(
        "cronsensus_sessions_turning",
        "namespace",
        "concurrency",
        sqlite_where=text("ended_at IS NULL AND concurrency > 0"),
    ).ddl_if(dialect="sqlite"),
    Index("cronsensus_sessions_turning", "namespace", "ended_at", "concurrency").ddl_if(dialect="mysql"),
    *_partial_index("cronsensus_sessions_ended", "namespace", "ended_at", where="ended_at IS NOT NULL"),
    **_TABLE,
)

locks = Table(
    "cronsensus_locks",
    metadata,
    Column("namespace", _name_type(200), primary_key=True),
    Column("name", _name_type(200), primary_key=True),
    # A lock with a limit has that many places, counted from 0.
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("holder", _name_type(400), nullable=False),
    Column("session", _name_type(100)),
    Column("token", Big, nullable=False),
    Column("acquired_at", Big, nullable=False),
    Column("lease_until", Big, nullable=False),
    # The limit that this holder passed; NULL: the place is not granted yet.
    Column("most", Integer),
    Column("epoch", _name_type(64), nullable=False),
    *_partial_index("cronsensus_locks_of_session", "namespace", "session", where="session IS NOT NULL"),
    **_TABLE,
)

trail = Table(
    "cronsensus_trail",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", _name_type(200), nullable=False),
    Column("at", Big, nullable=False),
    Column("by", Long, nullable=False),
    Column("action", _name_type(40), nullable=False),
    Column("target", _name_type(420), nullable=False),
    Column("why", Long, nullable=False),
    Column("details", Long, nullable=False),
    Index("cronsensus_trail_of_target", "namespace", "target", "id"),
    Index("cronsensus_trail_by_id", "namespace", "id"),
    **_TABLE,
)
