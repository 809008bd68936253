"""Version 1: all tables, and the counter of fencing tokens.

A new store gets the tables in today's form, which is what a store of an earlier version has after the later steps.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select
from sqlalchemy.schema import CreateSequence

from cronsensus.stores.sql.migrations.additions import add_missing
from cronsensus.stores.sql.schema import counters, metadata, tokens


def upgrade(connection: Connection) -> None:
    """Create everything; on MySQL, whatever of it is not there yet."""
    if connection.dialect.name == "mysql":
        # Each CREATE commits by itself: a process may have died between any two of them.
        add_missing(connection)
    else:
        metadata.create_all(connection, checkfirst=False)
    if connection.execute(select(counters.c.value).where(counters.c.name == "token")).first() is None:
        connection.execute(insert(counters).values(name="token", value=0))
    if connection.dialect.name == "postgresql":
        connection.execute(CreateSequence(tokens))
