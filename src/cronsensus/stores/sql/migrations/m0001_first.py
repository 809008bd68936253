"""Version 1: all tables, and the counter of fencing tokens. Floor 3.

While version 1 is the newest, its tables are those of ``schema.py``. Whoever writes the second step freezes them here
first: from then on this module must no longer change with that one.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.schema import CreateSequence

from cronsensus.stores.sql.schema import counters, metadata, tokens


def upgrade(connection: Connection) -> None:
    """Create everything; on MySQL, whatever of it is not there yet."""
    if connection.dialect.name == "mysql":
        _complete(connection)
    else:
        metadata.create_all(connection, checkfirst=False)
    if connection.execute(select(counters.c.value).where(counters.c.name == "token")).first() is None:
        connection.execute(insert(counters).values(name="token", value=0))
    if connection.dialect.name == "postgresql":
        connection.execute(CreateSequence(tokens))


def _complete(connection: Connection) -> None:
    """Create what is missing: where each CREATE commits by itself, a process may have died between any two of them."""
    present = set(inspect(connection).get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in present:
            table.create(connection, checkfirst=False)
            continue
        known = {index["name"] for index in inspect(connection).get_indexes(table.name)}
        for index in table.indexes:
            if index.name not in known:
                index.create(connection, checkfirst=False)
