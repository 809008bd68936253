"""The transaction that ``Store.transaction`` opens, and the error of stores without transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from cronsensus.errors import UnsupportedTransaction
from cronsensus.model.occurrence import Note

WITH_TRANSACTIONS = "sqlite://, postgresql://, mysql://"
"""The stores in which effects can commit together with a result."""


class RunTransaction(ABC):
    """A transaction on the store's database, for the effects of a run and its result.

    Attributes:
        connection: for the effects; of the kind that the store documents, which is SQLAlchemy's ``Connection`` for a
            SQL store. The caller must not commit it or roll it back.
        lost: the connection was gone when an exception left the block.
    """

    connection: Any
    lost: bool = False

    @abstractmethod
    def complete(self, result: str | None = None, notes: Sequence[Note] = ()) -> None:
        """Record in this transaction that the attempt succeeded, together with its notes.

        It is the last statement of the transaction, and is called once.

        Args:
            result: JSON text, or ``None``.
            notes: as in ``Step.notes``.

        Raises:
            LeaseLost: the run is no longer current; the transaction must not commit, and will not.
            UnsupportedTransaction: the transaction was ended from inside, so nothing can be completed in it.
        """


def no_transactions(store: str) -> UnsupportedTransaction:
    """Return the error for a store that has none."""
    return UnsupportedTransaction(
        f"a {store} store has no transaction that a job's effects could share with its result (G5); "
        f"use a store that has: {WITH_TRANSACTIONS}. Or let the job return, and make its effects idempotent by "
        "run.idempotency_key"
    )


def no_shared_transactions(store: str) -> UnsupportedTransaction:
    """Return the error for enqueuing in a transaction on a store that has none."""
    return UnsupportedTransaction(
        f"a {store} store has no transaction that your rows could share with a run; use a store on their database "
        f"({WITH_TRANSACTIONS}), or write a row of an outbox with them and enqueue later, with the row's number as "
        "key: docs/enqueue-with-your-commit.md"
    )
