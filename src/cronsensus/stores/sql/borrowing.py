"""Record the end of a run in the user's own transaction, on the user's connection of any kind.

Nothing here begins a transaction without need, and nothing commits, rolls back or closes. Statements go through
SQLAlchemy, never straight to a driver, because the driver may be another one than the store's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import sqlalchemy as alchemy
from sqlalchemy import Engine, bindparam, text
from sqlalchemy.sql.elements import BindParameter

from cronsensus.errors import CronsensusError, StoreBusy, UnsupportedTransaction
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.dialect import Dialect, Reading
from cronsensus.stores.sql.engine import Kept
from cronsensus.stores.sql.queries import LIST, Query
from cronsensus.stores.sql.sending import NONE, Begin, Pending
from cronsensus.stores.sql.users_connection import OfSqlalchemy, through_sqlalchemy, wrap_driver
from cronsensus.stores.values import StoreCapabilities

_AWAIT = (
    "await session.run_sync(run.complete_in)    or, with a result: await session.run_sync(run.complete_in, result=...)"
)


@contextmanager
def borrow_connection(connection_or_session: Any, engine: Engine) -> Iterator[Connection]:
    """Wrap a connection of the caller's so that the store's statements can run on it, through SQLAlchemy.

    Args:
        connection_or_session: SQLAlchemy's ``Connection`` or ``Session``, or a connection of the store's own driver.
        engine: of the store's database and driver.

    Raises:
        UnsupportedTransaction: it is something else, of another database, or commits each statement by itself.
    """
    users_connection = through_sqlalchemy(connection_or_session, _AWAIT)
    if users_connection is None and isinstance(
        connection_or_session, getattr(engine.dialect.dbapi, "Connection", _NotOurs)
    ):
        users_connection = OfSqlalchemy(alchemy.Connection(engine, connection=_NotOurs(connection_or_session)), alchemy)
    if users_connection is None:
        raise UnsupportedTransaction(_unusable_error(connection_or_session, engine))
    connection: alchemy.Connection = users_connection.connection
    if connection.dialect.name != engine.dialect.name:
        raise UnsupportedTransaction(
            f"this connection leads to {connection.dialect.name}, and the store is {engine.dialect.name}: effects and "
            "result can commit together only in one database; give a connection to the store's own"
        )
    if users_connection.commits_each():
        raise UnsupportedTransaction(
            "this connection commits each statement by itself (autocommit), so the result would be recorded without "
            "the effects; begin a transaction first, and call run.complete_in() in it"
        )
    with users_connection.ready():
        yield Connection(connection, ours=False)


def _unusable_error(connection_or_session: Any, engine: Engine) -> str:
    kind = f"{type(connection_or_session).__module__}.{type(connection_or_session).__qualname__}"
    driver = getattr(engine.dialect.dbapi, "__name__", engine.dialect.driver)
    asynchronous = "; of an async driver, go through SQLAlchemy: await session.run_sync(run.complete_in)"
    return (
        f"run.complete_in() cannot use {kind}; give it SQLAlchemy's Connection or Session, or a connection of "
        f"{driver}{asynchronous if 'async' in kind.lower() or 'aio' in kind.lower() else ''}"
    )


def elsewhere_error(where: str) -> UnsupportedTransaction:
    """Return the error for a connection to a database without the store's tables."""
    return UnsupportedTransaction(
        f"this connection leads to a database without the store's tables, which are in {where}; effects and result can "
        "commit together only in one database: give a connection to that one"
    )


def overtaken_error(error: Exception) -> StoreBusy:
    """Return the error for a transaction that the database ended in favour of another one."""
    return StoreBusy(
        f"{error}. This transaction cannot go on: roll it back, and let the exception end the run, so that its retries "
        "count. At repeatable read or serializable it also ends so if the run's own row was written since it began, by "
        "progress that the run reported: report it before, or use READ COMMITTED"
    )


class BorrowingDialect(Dialect):
    """Runs a dialect's statements through SQLAlchemy, on any driver. The transaction itself belongs to the caller."""

    def __init__(self, own: Dialect, reading: Reading) -> None:
        """Use ``reading``: the clocks as they were just read on a connection of the store."""
        self._own = own
        self._reading = reading
        self.most_parameters = own.most_parameters

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what the store can do."""
        return self._own.capabilities

    def begin_read(self, connection: Connection) -> NoReturn:
        """Refuse: the caller begins."""
        raise NotImplementedError(connection)

    def begin_write(self, connection: Connection) -> NoReturn:
        """Refuse: the caller begins."""
        raise NotImplementedError(connection)

    def lock_migrations(self, connection: Connection) -> NoReturn:
        """Refuse: nothing is migrated here."""
        raise NotImplementedError(connection)

    def describe_settings(self, connection: Connection) -> NoReturn:
        """Refuse: it is not the store's connection."""
        raise NotImplementedError(connection)

    def read_clocks(self, connection: Connection) -> Reading:  # noqa: ARG002 - not on this one
        """Return the clocks as they were read."""
        return self._reading

    def find_query(self, name: str) -> Query:
        """Return a statement of the dialect's database, for one row at a time."""
        return self._own.find_single_row_query(name)

    def send_statements(
        self,
        connection: Connection,
        queue: Sequence[Pending],
        *,
        begin: Begin,  # noqa: ARG002 - the caller begins
        commit: bool,  # noqa: ARG002 - the caller commits
    ) -> None:
        """Run each statement by itself."""
        connection_of_user: alchemy.Connection = connection.driver
        for pending in queue:
            lists: list[BindParameter[Any]] = [
                bindparam(name, expanding=True) for name in LIST.findall(pending.query.text)
            ]
            statement = text(pending.query.text).bindparams(*lists)
            if pending.row_values is not None:
                rows = [
                    {**pending.values, **dict(zip(pending.query.rows, row, strict=True))} for row in pending.row_values
                ]
                pending.receive_answer(NONE, sum(connection_of_user.execute(statement, row).rowcount for row in rows))
            else:
                result = connection_of_user.execute(statement, dict(pending.values))
                pending.receive_answer(result.all() if result.returns_rows else NONE, result.rowcount)
            pending.require_count()

    def translate_error(self, error: Exception) -> CronsensusError | None:
        """Return what an error means."""
        return self._own.translate_error(error)


class _NotOurs(Kept):
    def cursor(self, *_: Any, **__: Any) -> Any:
        """Return a cursor that gives tuples, even if the caller's connection is set to something else."""
        driver_kind = wrap_driver(self.driver)
        return self.driver.cursor() if driver_kind is None else driver_kind.open_cursor()
