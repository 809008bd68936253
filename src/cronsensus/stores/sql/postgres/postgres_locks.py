"""Lock verbs in one statement each, for locks that are taken and freed thousands of times.

A single statement does what the verbs of ``sql_locks.py`` do in a transaction, in the ordinary case. In any other
case it says so, and the transaction decides.

Callers that want a lock of one name take turns by an advisory lock, which ends with the statement. The token is taken
under it, so a later token is also a later place. Without it a process that stalled between its token and its row could
come back with an old token after others had held the lock and freed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import psycopg

from cronsensus.stores.sql.postgres.postgres_presence import key_of
from cronsensus.stores.sql.postgres.postgres_values import as_text
from cronsensus.stores.sql.postgres.tokens import token_expression

_SERVER_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_HELD = """
l.epoch = {epoch} AND l.lease_until > {clock} AND (l.session IS NULL OR EXISTS (
    SELECT FROM {schema}.cronsensus_sessions o
    WHERE o.namespace = l.namespace AND o.id = l.session
        AND o.ended_at IS NULL AND o.epoch = {epoch} AND o.lease_until > {clock}))
"""
# The statement sees the holders as of its beginning, which may have been before others had their turn. So a function
# that sees the current rows (migrations.postgres_functions) checks them again when the turn has come, and that the
# session is alive.
# An overdue row is replaced only if its own time is over, by its latest version. If its session's time is over instead,
# the statement takes nothing: that session may be renewing its lease right now.
_TAKE = """
WITH me AS (
    SELECT 1 AS alive FROM {schema}.cronsensus_sessions
    WHERE namespace = $1::text AND id = $4::text AND ended_at IS NULL AND epoch = {epoch} AND lease_until > {clock}
), held AS (
    SELECT l.place, l.most FROM {schema}.cronsensus_locks l
    WHERE l.namespace = $1::text AND l.name = $2::text AND {held}
), free AS (
    SELECT min(n) AS place FROM generate_series(0, $6::int - 1) n
    WHERE n NOT IN (SELECT place FROM held)
        AND (SELECT count(*) FROM held) < least($6::int, (SELECT min(most) FROM held))
), turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock($7::bigint)::text AS come FROM free
    WHERE free.place IS NOT NULL AND ($4::text IS NULL OR EXISTS (SELECT FROM me))
), taken AS (
    INSERT INTO {schema}.cronsensus_locks AS l
        (namespace, name, place, holder, session, token, acquired_at, lease_until, most, epoch)
    SELECT $1::text, $2::text, free.place, $3::text, $4::text, {token},
        {clock}, {clock} + $5::bigint, $6::int, {epoch}
    FROM turn, free
    WHERE {schema}.cronsensus_lock_has_place(turn.come, $1::text, $2::text, $6::int, {epoch}, {clock}, $4::text)
    ON CONFLICT (namespace, name, place) DO UPDATE SET
        holder = excluded.holder, session = excluded.session, token = excluded.token,
        acquired_at = excluded.acquired_at, lease_until = excluded.lease_until, most = excluded.most,
        epoch = excluded.epoch
    WHERE l.epoch <> excluded.epoch OR l.lease_until <= {clock}
    RETURNING token, place
)
SELECT EXISTS (SELECT FROM me), free.place IS NOT NULL, taken.token, taken.place FROM free LEFT JOIN taken ON true
"""
_GRANTED = """
l.namespace = $1::text AND l.name = $2::text AND l.place = $3::int AND l.token = $4::bigint
    AND l.holder = $5::text AND coalesce(l.session, '') = $6::text
"""
_FREE = "DELETE FROM {schema}.cronsensus_locks l WHERE {granted} AND {held}"
_EXTEND = "UPDATE {schema}.cronsensus_locks l SET lease_until = {clock} + $7::bigint WHERE {granted} AND {held}"


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for one schema. Their last arguments are the epoch and, where it is injected, the clock.

    Attributes:
        take: namespace, name, holder, session, TTL, limit, turn; answers whether the session lives, whether a place
            seemed free, and the token and the place that were taken.
        free: namespace, name, place, token, holder, session or the empty text.
        extend: the same, and TTL.
    """

    take: str
    free: str
    extend: str


@cache
def statements_of(schema: str, *, injected: bool) -> Statements:
    """Return the statements for one schema; ``injected``: the clock is an argument."""

    def written(text: str, arguments: int) -> str:
        parts = {
            "schema": f'"{schema}"',
            "epoch": f"${arguments + 1}::text",
            "clock": f"${arguments + 2}::bigint" if injected else _SERVER_CLOCK,
            "token": token_expression(schema, "1", f"${arguments + 2}::bigint" if injected else "NULL"),
            "granted": _GRANTED,
        }
        return text.format(held=_HELD.format(**parts), **parts)

    return Statements(written(_TAKE, 7), written(_FREE, 6), written(_EXTEND, 7))


def run_statement(driver: psycopg.Connection[Any], text: str, *values: Any) -> psycopg.RawCursor[Any]:
    """Run one of the statements."""
    return psycopg.RawCursor(driver).execute(cast("Any", text), [as_text(value) for value in values])


def turn_of(schema: str, namespace: str, name: str) -> int:
    """Return the key of the advisory lock by which callers that want one lock take turns."""
    return key_of("lock", schema, namespace, name)
