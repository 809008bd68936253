"""Version 1: all tables, and the counter of fencing tokens. Floor 3.

While version 1 is the newest, its tables are those of ``schema.py``. Whoever writes the second step freezes them here
first: from then on this module must no longer change with that one.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert

from cronsensus.stores.sql.schema import counters, metadata


def upgrade(connection: Connection) -> None:
    """Create everything."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(insert(counters).values(name="token", value=0))
