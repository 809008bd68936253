"""How a store comes to have today's tables: numbered steps, forward only.

Every store walks through all steps, an empty one from the first; each is a module ``mNNNN_what`` with an
``upgrade(connection)``. The first makes today's tables, and a step that adds columns or indexes adds those that a store
does not have yet, so a new store gets nothing twice. Every step runs in a transaction under the
dialect's migration lock, in which the version is read again: of several processes that start in the same instant one
does the work and the others find it done.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, func, insert, inspect, select

from cronsensus.errors import SchemaMismatch
from cronsensus.stores.sql.migrations import m0001_first, m0002_additions, m0003_signs
from cronsensus.stores.sql.schema import schema
from cronsensus.stores.sql.version import VERSION

Upgrade = Callable[[Connection], None]

MIGRATIONS: tuple[tuple[int, str, Upgrade], ...] = (
    (1, "m0001_first", m0001_first.upgrade),
    (2, "m0002_additions", m0002_additions.upgrade),
    (3, "m0003_signs", m0003_signs.upgrade),
)
"""All steps, in order. The last number is ``VERSION``."""


def version_of(connection: Connection) -> int:
    """Return the schema's version in a store; 0: it has none of our tables."""
    places = connection.get_execution_options().get("schema_translate_map", {})
    if not inspect(connection).has_table(schema.name, schema=places.get(None)):
        return 0
    return int(connection.execute(select(func.max(schema.c.version))).scalar() or 0)


def next_step(connection: Connection, where: str) -> tuple[int, str, Upgrade] | None:
    """Return the next step that a store needs; ``None``: it is up to date.

    Raises:
        SchemaMismatch: its schema is newer than this code.
    """
    version = version_of(connection)
    refuse_newer(version, where)
    return next((step for step in MIGRATIONS if step[0] > version), None)


def take(step: tuple[int, str, Upgrade], connection: Connection, now: int) -> None:
    """Carry out one step and note its version, in the caller's transaction."""
    number, name, upgrade = step
    upgrade(connection)
    connection.execute(insert(schema).values(version=number, name=name, applied_at=now))


def refuse_newer(version: int, where: str) -> None:
    """Raise if ``version`` is one that this code cannot know."""
    if version > VERSION:
        raise SchemaMismatch(
            f"{where} has schema version {version}, but this cronsensus knows only {VERSION}: a newer one upgraded it; "
            "install that one here too: pip install --upgrade cronsensus"
        )


def refuse_older(version: int, where: str) -> None:
    """Raise if a store must be upgraded first."""
    if version < VERSION:
        have = f"has schema version {version}" if version else "holds no cronsensus schema yet"
        raise SchemaMismatch(f"{where} {have}, and this cronsensus needs {VERSION}; run: cronsensus db upgrade")
