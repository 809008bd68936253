"""The audit trail: acts of operators, with name, target and reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cronsensus.payload.codec import clean, dumps
from cronsensus.stores.sql.transaction import Transaction

Entry = tuple[int, str, str, str, str, str]
"""The values of a row."""


def record(tx: Transaction, by: str, action: str, target: str, why: str, **details: Any) -> None:
    """Write one entry, in the same transaction as the act that it records."""
    record_all(tx, [entry(tx, by, action, target, why, **details)])


def entry(tx: Transaction, by: str, action: str, target: str, why: str, **details: Any) -> Entry:
    """Return one entry."""
    return tx.now, clean(by), action, target, clean(why), dumps(details, what="details")


def record_all(tx: Transaction, entries: Sequence[Entry]) -> None:
    """Write entries."""
    tx.send_rows("insert_trail", entries, space=tx.namespace)
