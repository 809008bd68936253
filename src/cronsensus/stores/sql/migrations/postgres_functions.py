"""The functions of a PostgreSQL server, which are made with the tables.

A step that changes one later gives it another name: nodes of the release before still call the old one.
"""

from __future__ import annotations

from sqlalchemy import Connection

# The block with an exception is a subtransaction: raising in it lets go of the lock, and variables and sequences keep
# what they were set to. 1668445043: the letters "cron", so that no other program uses the lock.
_TAKE_TOKENS = """
CREATE FUNCTION {schema}cronsensus_take_tokens(counter regclass, wanted integer, at bigint DEFAULT NULL)
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
_LOCK_HAS_PLACE = """
CREATE FUNCTION {schema}cronsensus_lock_has_place(
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


def create_functions(connection: Connection, place: str | None) -> None:
    """Create the functions in the schema ``place``."""
    schema = "" if place is None else f'"{place}".'
    for text in (_TAKE_TOKENS, _LOCK_HAS_PLACE):
        connection.exec_driver_sql(text.format(schema=schema))
