"""The audit trail: who did what, to what, and why."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert

from cronsensus.codec import clean, dumps
from cronsensus.stores.sql.schema import trail
from cronsensus.stores.sql.transaction import Transaction

_INSERT = insert(trail)


def record(tx: Transaction, by: str, action: str, target: str, why: str, **details: Any) -> None:
    """Write one entry, in the same transaction as what it tells of."""
    record_all(tx, [entry(tx, by, action, target, why, **details)])


def entry(tx: Transaction, by: str, action: str, target: str, why: str, **details: Any) -> dict[str, Any]:
    """Return one entry as the values of a row."""
    return {
        "namespace": tx.namespace,
        "at": tx.now,
        "by": clean(by),
        "action": action,
        "target": target,
        "why": clean(why),
        "details": dumps(details, what="details"),
    }


def record_all(tx: Transaction, entries: list[dict[str, Any]]) -> None:
    """Write entries."""
    tx.change_many(_INSERT, entries)
