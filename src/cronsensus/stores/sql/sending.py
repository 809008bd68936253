"""A statement that is queued, and its answer once it was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cronsensus.errors import CronsensusError, StoreUnavailable
from cronsensus.stores.sql.queries import Query

NONE: Sequence[Any] = ()
Begin = Literal["", "read", "write"]
"""The kind of transaction that begins with the statements; empty: none, or it has begun already."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A placeholder for a value: the server's clock, which the statement itself reads, plus some microseconds."""

    plus: int = 0

    def __add__(self, micros: int) -> Moment:
        """Return a later moment."""
        return Moment(self.plus + micros)


class Pending:
    """A queued statement, and its answer. Reading the answer sends the whole queue."""

    __slots__ = (
        "_count",
        "_flush",
        "_rows",
        "answered",
        "behind",
        "expect",
        "otherwise",
        "query",
        "row_values",
        "values",
    )

    def __init__(
        self,
        query: Query,
        values: Mapping[str, Any],
        row_values: Sequence[tuple[Any, ...]] | None,
        expect: int | None,
        flush: Callable[[], None],
        *,
        otherwise: CronsensusError | None = None,
        behind: bool = False,
    ) -> None:
        """Make a statement to send.

        Args:
            query: the statement.
            values: by name.
            row_values: the values of the rows that the statement is run for; ``None``: it takes no rows.
            expect: how many rows it must touch, or nothing is committed.
            flush: sends the queue.
            otherwise: the error if it touches another number of rows; ``None``: a ``StoreUnavailable``.
            behind: it is sent after the COMMIT, as a transaction of its own; nothing is lost if it fails.
        """
        self.query = query
        self.values = values
        self.row_values = row_values
        self.expect = expect
        self.otherwise = otherwise
        self.behind = behind
        self.answered = False
        self._flush = flush
        self._rows = NONE
        self._count = 0

    @property
    def rows(self) -> Sequence[Any]:
        """Return the rows of the answer."""
        if not self.answered:
            self._flush()
        return self._rows

    @property
    def row(self) -> Any:
        """Return the first row of the answer, or ``None``."""
        rows = self.rows
        return rows[0] if rows else None

    @property
    def count(self) -> int:
        """Return how many rows were touched."""
        if not self.answered:
            self._flush()
        return self._count

    def receive_answer(self, rows: Sequence[Any], count: int) -> None:
        """Set the answer."""
        self._rows, self._count, self.answered = rows, count, True

    def require_count(self) -> None:
        """Raise if another number of rows was touched than expected."""
        if self.expect is not None and self._count != self.expect:
            raise wrong_count(self)


def wrong_count(pending: Pending) -> CronsensusError:
    """Return the error for a write that did not touch the rows that were locked for it."""
    return pending.otherwise or StoreUnavailable(
        f"{pending.query.name}: a row changed under a lock; nothing was written; please report this"
    )
