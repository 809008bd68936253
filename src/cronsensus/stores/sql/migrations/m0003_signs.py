"""Version 3: a session says that it showed a sign of life."""

from __future__ import annotations

from sqlalchemy import Connection

from cronsensus.stores.sql.migrations.additions import add_missing


def upgrade(connection: Connection) -> None:
    """Add what version 2 did not have; a store of version 1 has got it with that."""
    add_missing(connection)
