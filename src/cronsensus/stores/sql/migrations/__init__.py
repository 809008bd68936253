"""The migrations of a SQL store: numbered steps to the current tables, forward only.

Every store walks through all steps, an empty one from the first; each is a module ``mNNNN_what`` with an
``upgrade(connection)``. The first makes today's tables, and a step that adds columns or indexes adds those that a store
does not have yet, so a new store gets nothing twice. Every step runs in a transaction under the dialect's migration
lock, in which the version is read again: of several processes that start in the same instant one does the work and the
others find it done.

To add a column, an index or a table: declare it in ``schema``, raise ``VERSION`` in ``version``, and list the step
here, ``(7, "m0007_what", additions.add_missing)``. It has a module of its own if it does more than that. Nodes of the
release before go on beside it, so it takes nothing away, and a column needs no value from them. What must be taken away
goes in the release after.

Tables are declared once, for all databases, in SQLAlchemy's words. Only a process that takes a step loads it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, insert

from cronsensus.stores.sql.migrations import additions, m0005_first
from cronsensus.stores.sql.schema import schema

Upgrade = Callable[[Connection], None]

MIGRATIONS: tuple[tuple[int, str, Upgrade], ...] = (
    (5, "m0005_first", m0005_first.upgrade),
    (6, "m0006_zone_rules", additions.add_missing),
)
"""All steps, in order, from ``FIRST`` to ``VERSION``."""


def take_next(version: int, connection: Connection, now: int) -> list[str]:
    """Take the step that follows on a version, if there is one; return its name."""
    step = next((step for step in MIGRATIONS if step[0] > version), None)
    if step is None:
        return []
    apply_step(step, connection, now)
    return [step[1]]


def apply_step(step: tuple[int, str, Upgrade], connection: Connection, now: int) -> None:
    """Carry out one step and note its version, in the caller's transaction."""
    number, name, upgrade = step
    upgrade(connection)
    connection.execute(insert(schema).values(version=number, name=name, applied_at=now))
