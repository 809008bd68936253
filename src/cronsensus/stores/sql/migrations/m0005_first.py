"""Version 5: all tables, their two counters, and what a server of PostgreSQL has beside them.

It is the first version that was released. A new store gets the tables in today's form, which is what a store of an
earlier version has after the later steps.
"""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, insert, select
from sqlalchemy.schema import CreateSequence

from cronsensus.stores.sql.migrations import postgres_functions
from cronsensus.stores.sql.migrations.additions import add_missing
from cronsensus.stores.sql.schema import counters, tokens


def upgrade(connection: Connection) -> None:
    """Create everything; on MySQL, where a process may have died in the middle, whatever is not there yet."""
    add_missing(connection)
    for name, value in (("token", 0), ("identity", secrets.randbits(62))):
        if connection.execute(select(counters.c.value).where(counters.c.name == name)).first() is None:
            connection.execute(insert(counters).values(name=name, value=value))
    if connection.dialect.name == "postgresql":
        connection.execute(CreateSequence(tokens))
        places = connection.get_execution_options().get("schema_translate_map", {})
        postgres_functions.create_functions(connection, places.get(tokens.schema))
