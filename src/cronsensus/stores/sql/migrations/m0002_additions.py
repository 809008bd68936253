"""Version 2: the columns, tables and indexes that came after version 1. Floor 3."""

from __future__ import annotations

from sqlalchemy import Connection

from cronsensus.stores.sql.migrations.additions import add_missing


def upgrade(connection: Connection) -> None:
    """Add what version 1 did not have; a new store was made with it."""
    add_missing(connection)
