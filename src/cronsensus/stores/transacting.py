"""What a store's ``transaction`` gives, and what is said where there is none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from cronsensus.errors import UnsupportedTransaction
from cronsensus.model.occurrence import Note

HAVE_THEM = "sqlite://, postgresql://, mysql://"
"""The stores in which effects can commit together with a result."""


class RunTransaction(ABC):
    """A transaction on the store's database that one run's effects and its result share.

    Attributes:
        connection: for the effects; of the kind that the store documents, which is SQLAlchemy's ``Connection`` for a
            SQL store. It must not commit or roll back by itself.
    """

    connection: Any

    @abstractmethod
    def complete(self, result: str | None = None, notes: Sequence[Note] = ()) -> None:
        """Write, in this transaction, that the attempt succeeded; what was noted of it before goes with it.

        The last word of the transaction, once.

        Args:
            result: JSON text, or ``None``.
            notes: what ``Step.notes`` would be given.

        Raises:
            LeaseLost: the run is no longer current; the transaction must not commit, and will not.
            UnsupportedTransaction: the transaction was ended from inside, so nothing can be completed in it.
        """


def no_transactions(store: str) -> UnsupportedTransaction:
    """Return the error for a store that has none."""
    return UnsupportedTransaction(
        f"a {store} store has no transaction that a job's effects could share with its result (G5); "
        f"use a store that has: {HAVE_THEM}. Or let the job return, and make its effects idempotent by "
        "run.idempotency_key"
    )
