"""One transaction: a connection, the store's clocks as read in it, and short words for running statements. Floor 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.sql.base import Executable

from cronsensus.stores.sql.definitions import Definitions
from cronsensus.stores.sql.dialect import AnyRow, Dialect

Value = TypeVar("Value")


class Transaction:
    """What every verb works with. Its clocks were read once, after any wait for a lock, so one step has one "now".

    Attributes:
        now: the store's clock, microseconds.
        lease_now: the clock that judges leases, microseconds, within ``epoch``.
        definitions: parsed jobs, kept between transactions.
    """

    __slots__ = ("connection", "definitions", "dialect", "epoch", "lease_now", "namespace", "now")

    def __init__(self, connection: Connection, dialect: Dialect, namespace: str, definitions: Definitions) -> None:
        reading = dialect.read_clocks(connection)
        self.connection = connection
        self.dialect = dialect
        self.namespace = namespace
        self.definitions = definitions
        self.now = reading.now
        self.lease_now = reading.lease
        self.epoch = reading.epoch

    @property
    def clocks(self) -> dict[str, Any]:
        """Return the parameters of "is this session alive", by the names that statements use."""
        return {"lease_now": self.lease_now, "boot": self.epoch}

    def rows(self, statement: Executable, **parameters: Any) -> Sequence[AnyRow]:
        """Return all rows of a query."""
        return self.dialect.rows(self.connection, statement, parameters)

    def row(self, statement: Executable, **parameters: Any) -> AnyRow | None:
        """Return the first row of a query, or ``None``."""
        rows = self.dialect.rows(self.connection, statement, parameters)
        return rows[0] if rows else None

    def value(self, statement: Executable, **parameters: Any) -> Any:
        """Return the first column of the first row of a query, or ``None``."""
        row = self.row(statement, **parameters)
        return None if row is None else row[0]

    def change(self, statement: Executable, **parameters: Any) -> int:
        """Run a statement that writes; return how many rows it touched."""
        return self.dialect.change(self.connection, statement, parameters)

    def change_many(self, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run a constant statement for each of ``rows``, which have the same keys; return how many rows it touched."""
        if not rows:
            return 0
        return self.change_tuples(statement, tuple(rows[0]), [tuple(row.values()) for row in rows])

    def change_tuples(self, statement: Executable, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
        """Do ``change_many`` with rows whose values are in the order of ``names``, for paths that must be fast."""
        return self.dialect.execute_many(self.connection, statement, names, rows) if rows else 0

    def rows_in(self, statement: Executable, name: str, values: Iterable[Any], **parameters: Any) -> list[AnyRow]:
        """Return the rows of a query with ``… IN (:name)``, asked in pieces that the database accepts."""
        found: list[AnyRow] = []
        for piece in pieces(list(values), self.dialect.most_parameters):
            found += self.rows(statement, **{name: piece}, **parameters)
        return found

    def change_in(self, statement: Executable, name: str, values: Iterable[Any], **parameters: Any) -> int:
        """Run a statement with ``… IN (:name)``, in pieces; return how many rows it touched."""
        return sum(
            self.change(statement, **{name: piece}, **parameters)
            for piece in pieces(list(values), self.dialect.most_parameters)
        )

    def next_token(self) -> int:
        """Take one fencing token."""
        return self.dialect.next_tokens(self.connection, 1)[0]


def pieces(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Cut ``values`` into pieces of at most ``size``."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
