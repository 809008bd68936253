"""The tables of a SQL store, as they are today. Floor 3.

Instants are BIGINT microseconds since 1970 in UTC. States and origins are text with a CHECK. There are no foreign keys:
rows are only ever deleted by ``prune``, which takes what belongs together in one transaction, and a parent's lock on
every insert would be paid on the hot path. How a store came to have these tables is told in ``migrations``.

::

    jobs ──┬── eras          a trigger and the moment from which it rules
           ├── pauses        stretches in which nothing fires
           ├── verdicts      ranges of nominal times that made no occurrence, and why
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
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cronsensus.model.states import Origin, State

VERSION = 1
"""The schema that this code knows; the number of the newest migration."""

metadata = MetaData()

Big = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits everywhere; SQLite hands out identities only to a column declared INTEGER, which has 64 bits there."""

_TABLE: dict[str, Any] = {
    # Names and keys are compared exactly; MySQL's default collation folds case.
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_engine": "InnoDB",
}


def _words(column: str, words: type[State | Origin]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(str(word)) for word in words)})", name=f"known_{column}")


def _partial(name: str, *columns: Any, where: str) -> Index:
    """Return an index over the few rows that matter to a hot path.

    Databases without partial indexes (MySQL) get it without the condition: larger, but the same statements use it.
    """
    condition = text(where)
    return Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


schema = Table(
    "cronsensus_schema",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", String(100), nullable=False),
    Column("applied_at", Big, nullable=False),
    **_TABLE,
)

counters = Table(
    "cronsensus_counters",
    metadata,
    Column("name", String(20), primary_key=True),
    Column("value", Big, nullable=False),
    **_TABLE,
)

releases = Table(
    "cronsensus_releases",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("release", String(200), nullable=False),
    Column("first_seen_at", Big, nullable=False),
    UniqueConstraint("namespace", "release", name="cronsensus_releases_by_name"),
    **_TABLE,
)

jobs = Table(
    "cronsensus_jobs",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("function", String(200), nullable=False),
    Column("source", String(10), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("spec", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("overlap", String(20), nullable=False),
    Column("concurrency", Integer),
    Column("keep", Big, nullable=False),
    Column("watermark", Big, nullable=False),
    Column("horizon", Big),
    Column("next_due", Big),
    # next_due while the job fires, else NULL: what due() looks for, so that paused and retired jobs cost nothing.
    Column("wake_at", Big),
    Column("paused_at", Big),
    Column("paused_by", Text),
    Column("paused_why", Text),
    # When the last ended pause ended: planning needs the pauses only while this is above the watermark.
    Column("pause_ended_at", Big),
    Column("retired_at", Big),
    Column("created_at", Big, nullable=False),
    UniqueConstraint("namespace", "name", name="cronsensus_jobs_by_name"),
    Index("cronsensus_jobs_waking", "namespace", "wake_at"),
    _partial("cronsensus_jobs_paused", "namespace", where="paused_at IS NOT NULL"),
    **_TABLE,
)

eras = Table(
    "cronsensus_eras",
    metadata,
    Column("id", Big, primary_key=True),
    Column("job_id", Big, nullable=False),
    Column("since", Big, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("trigger", Text),
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
    Column("namespace", String(200), nullable=False),
    Column("job_id", Big, nullable=False),
    Column("key", String(400), nullable=False),
    Column("origin", String(12), nullable=False),
    Column("state", String(10), nullable=False),
    # 1: subject to the job's overlap policy, so it is claimed only when it is the earliest active one of its job.
    Column("serial", SmallInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("scheduled_for", Big),
    Column("due_at", Big, nullable=False),
    Column("expires_at", Big),
    Column("attempt", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    # Of the running attempt, or of the last one.
    Column("token", Big, nullable=False),
    Column("session", String(100)),
    Column("node", String(200)),
    Column("created_at", Big, nullable=False),
    Column("started_at", Big),
    Column("finished_at", Big),
    Column("cancel_reason", Text),
    Column("retry_of", Big),
    Column("progress_done", Double),
    Column("progress_total", Double),
    Column("reason", Text),
    # JSON [args, kwargs]; NULL: none. Fixed when the occurrence is created.
    Column("payload", Text),
    Column("result", Text),
    # JSON {type, message, traceback}.
    Column("error", Text),
    _words("origin", Origin),
    _words("state", State),
    # The identity of an occurrence: at most one row for a (job, key), whoever writes it.
    UniqueConstraint("job_id", "key", name="cronsensus_occurrences_by_key"),
    Index("cronsensus_occurrences_of_job", "job_id", "id"),
    sqlite_autoincrement=True,  # an id that was pruned is never given to another occurrence
    **_TABLE,
)
_of = occurrences.c
_partial(
    # In the order of claims, with what claiming must know of an entry to pass over it without reading its row.
    "cronsensus_occurrences_pending",
    _of.namespace,
    _of.priority.desc(),
    _of.due_at,
    _of.id,
    _of.job_id,
    _of.serial,
    where="state = 'pending'",
)
_partial(
    "cronsensus_occurrences_expiring",
    _of.namespace,
    _of.expires_at,
    where="state = 'pending' AND attempt = 0 AND expires_at IS NOT NULL",
)
_partial("cronsensus_occurrences_running", _of.namespace, _of.session, _of.job_id, where="state = 'running'")
_partial(
    "cronsensus_occurrences_cancelling",
    _of.namespace,
    _of.session,
    where="state = 'running' AND cancel_reason IS NOT NULL",
)
_partial("cronsensus_occurrences_serial", _of.job_id, _of.state, _of.id, where="serial = 1 AND finished_at IS NULL")
_partial("cronsensus_occurrences_nominal", _of.job_id, _of.scheduled_for, where="scheduled_for IS NOT NULL")
_partial("cronsensus_occurrences_final", _of.job_id, _of.finished_at, where="finished_at IS NOT NULL")
_partial("cronsensus_occurrences_failed", _of.namespace, _of.id, where="state = 'failed'")

runs = Table(
    "cronsensus_runs",
    metadata,
    # Tokens never repeat, in the whole store: the token is the run.
    Column("token", Big, primary_key=True, autoincrement=False),
    Column("occurrence_id", Big, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("session", String(100), nullable=False),
    Column("node", String(200)),
    Column("started_at", Big, nullable=False),
    Column("finished_at", Big, nullable=False),
    Column("end", String(10), nullable=False),
    Column("reason", Text),
    Column("error", Text),
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
    Column("level", String(20), nullable=False),
    Column("text", Text, nullable=False),
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
    Column("state", String(10), nullable=False),
    Column("reason", Text, nullable=False),
    Column("count", Integer),
    Column("decided_at", Big, nullable=False),
    _words("state", State),
    Index("cronsensus_verdicts_of_job", "job_id", "id"),
    Index("cronsensus_verdicts_by_time", "job_id", "last"),
    **_TABLE,
)

sessions = Table(
    "cronsensus_sessions",
    metadata,
    # The order in which sessions were opened; clocks may repeat.
    Column("number", Big, primary_key=True),
    Column("id", String(100), nullable=False),
    Column("namespace", String(200), nullable=False),
    Column("node", String(200), nullable=False),
    Column("host", String(200), nullable=False),
    Column("pid", Big, nullable=False),
    Column("pid_started", Big, nullable=False),
    Column("release", String(200), nullable=False),
    Column("version", String(50), nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("functions", Integer, nullable=False),
    Column("started_at", Big, nullable=False),
    Column("renewed_at", Big, nullable=False),
    # On the lease clock of the store, which means something only within its epoch (one boot of a host).
    Column("lease_until", Big, nullable=False),
    Column("epoch", String(64), nullable=False),
    Column("draining", SmallInteger, nullable=False),
    Column("ended_at", Big),
    Column("ended_as", String(10)),
    Column("ended_why", Text),
    UniqueConstraint("namespace", "id", name="cronsensus_sessions_by_id"),
    _partial("cronsensus_sessions_open", "namespace", where="ended_at IS NULL"),
    _partial("cronsensus_sessions_ended", "namespace", "ended_at", where="ended_at IS NOT NULL"),
    **_TABLE,
)

locks = Table(
    "cronsensus_locks",
    metadata,
    Column("namespace", String(200), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("holder", String(400), nullable=False),
    Column("session", String(100)),
    Column("token", Big, nullable=False),
    Column("acquired_at", Big, nullable=False),
    Column("lease_until", Big, nullable=False),
    Column("epoch", String(64), nullable=False),
    _partial("cronsensus_locks_of_session", "namespace", "session", where="session IS NOT NULL"),
    **_TABLE,
)

trail = Table(
    "cronsensus_trail",
    metadata,
    Column("id", Big, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("at", Big, nullable=False),
    Column("by", Text, nullable=False),
    Column("action", String(40), nullable=False),
    Column("target", String(420), nullable=False),
    Column("why", Text, nullable=False),
    Column("details", Text, nullable=False),
    Index("cronsensus_trail_of_target", "namespace", "target", "id"),
    Index("cronsensus_trail_by_id", "namespace", "id"),
    **_TABLE,
)
