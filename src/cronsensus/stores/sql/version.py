"""Compare the version of the schema that a store has with the one that this code knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cronsensus.errors import SchemaMismatch, SchemaMissing

if TYPE_CHECKING:
    from cronsensus.stores.sql.transaction import Transaction

FIRST = 5
"""The number of the oldest migration. No release made stores of earlier versions."""
VERSION = 6
"""The schema that this code knows; the number of the newest migration."""


def of(tx: Transaction) -> int:
    """Return the version of the schema in a store; 0: it has none of our tables."""
    if not tx.send("has_schema", place=tx.dialect.schema).rows:
        return 0
    return int(tx.send("schema_version").rows[0].version or 0)


def known(tx: Transaction, where: str) -> int:
    """Return the schema's version, as ``of`` does; raise if it is one that this code cannot know."""
    version = of(tx)
    if version > VERSION:
        raise SchemaMismatch(
            f"{where} has schema version {version}, but this cronsensus knows only {VERSION}: a newer one upgraded it; "
            "install that one here too: pip install --upgrade cronsensus"
        )
    if 0 < version < FIRST:
        raise SchemaMismatch(
            f"{where} has schema version {version}, made before cronsensus 0.1.0, and no release can upgrade it; "
            "make a new one: name an empty database and run: cronsensus --url URL db upgrade"
        )
    return version


def refuse_older(version: int, where: str) -> None:
    """Raise if a store must be upgraded first."""
    if version < VERSION:
        have = f"has schema version {version}" if version else "holds no cronsensus schema yet"
        raise SchemaMissing(f"{where} {have}, and this cronsensus needs {VERSION}; run: cronsensus db upgrade")
