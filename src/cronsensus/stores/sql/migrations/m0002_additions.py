"""Version 2: columns, tables and indexes after version 1, but for one; the store's identity; functions."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, insert, select

from cronsensus.stores.sql.migrations.additions import add_missing
from cronsensus.stores.sql.schema import counters, tokens

# The block with an exception is a subtransaction: raising in it lets go of the lock, and variables and sequences keep
# what they were set to. 1668445043: the letters "cron", so that no other program uses the lock.
_TAKE_TOKENS = """
CREATE OR REPLACE FUNCTION {schema}cronsensus_take_tokens(counter regclass, wanted integer, at bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    last bigint;
BEGIN
    BEGIN
        PERFORM pg_advisory_xact_lock((1668445043::bigint << 32) | counter::oid::bigint);
        last := setval(counter, greatest(
            nextval(counter), coalesce(at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        ) + wanted - 1);
        RAISE EXCEPTION USING ERRCODE = 'CS001';
    EXCEPTION WHEN SQLSTATE 'CS001' THEN
        NULL;
    END;
    RETURN last;
END
$function$
"""

# Volatile, so it sees what others have committed by now, also where the statement that calls it began before. Whose
# session is overdue counts as a holder here: it may be renewing. ``come`` makes it wait for the caller's turn, in which
# the caller's own session (``owner``) may have been ended.
_LOCK_HAS_ROOM = """
CREATE OR REPLACE FUNCTION {schema}cronsensus_lock_has_room(
    come text, space text, lock text, wanted integer, boot text, at bigint, owner text
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $function$
BEGIN
    RETURN (
        SELECT count(*) < least(wanted, min(l.most)) FROM {schema}cronsensus_locks l
        WHERE l.namespace = space AND l.name = lock AND l.epoch = boot AND l.lease_until > at
            AND (l.session IS NULL OR EXISTS (
                SELECT FROM {schema}cronsensus_sessions o
                WHERE o.namespace = space AND o.id = l.session AND o.ended_at IS NULL AND o.epoch = boot))
    ) AND (owner IS NULL OR EXISTS (
        SELECT FROM {schema}cronsensus_sessions o
        WHERE o.namespace = space AND o.id = owner AND o.ended_at IS NULL AND o.epoch = boot AND o.lease_until > at));
END
$function$
"""


def upgrade(connection: Connection) -> None:
    """Add what version 1 did not have; a new store was made with it."""
    add_missing(connection)
    place = connection.get_execution_options().get("schema_translate_map", {}).get(tokens.schema)
    schema = "" if place is None else f'"{place}".'
    if connection.dialect.name != "mysql":  # which never had it
        # Of runs that are asked to cancel: a session reads all that it runs, and no query asks for these alone.
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {schema}cronsensus_occurrences_cancelling")
    if connection.execute(select(counters.c.value).where(counters.c.name == "identity")).first() is None:
        connection.execute(insert(counters).values(name="identity", value=secrets.randbits(62)))
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_TAKE_TOKENS.format(schema=schema))
        connection.exec_driver_sql(_LOCK_HAS_ROOM.format(schema=schema))
