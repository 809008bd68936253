"""Lends a connection to a job's code, for one transaction that commits with the result of the run.

::

    BEGIN ─▶ is the run current? ─▶ SAVEPOINT ─▶ the job's statements ─▶ RELEASE ─▶ still current? result ─▶ COMMIT

The savepoint shows whether the transaction is still the same. If the job's code has ended it (by COMMIT as text, or by
a statement before which MySQL commits), the RELEASE fails. Then the run fails, too: a part of its effects may be
committed.

What the code sets on its connection (time zone, search path, temporary tables) stays set. So the store's own verbs
never use these connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import cast

import sqlalchemy as alchemy
from sqlalchemy import RootTransaction, event
from sqlalchemy.exc import SQLAlchemyError

from cronsensus.errors import UnsupportedTransaction
from cronsensus.model.occurrence import Claim, Note
from cronsensus.stores.sql import completing
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.connections import Connections
from cronsensus.stores.sql.dialect import Dialect, cause_of
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.transacting import RunTransaction

MARK = "cronsensus_run"


class LentConnection(Connection):
    """A connection that the code of jobs uses through SQLAlchemy.

    Attributes:
        view: SQLAlchemy's connection, for that code.
    """

    def __init__(self, view: alchemy.Connection) -> None:
        """Take a connection that was handed over to SQLAlchemy."""
        super().__init__(view.connection.driver_connection, ours=False)
        self.view = view

    def close(self) -> None:
        """Close it through SQLAlchemy, and the driver's connection with it."""
        if not self.view.closed:
            self.view.invalidate()
        self.view.close()


class Lending:
    """Lends connections, and begins and ends the transactions on them.

    Args:
        connections: a pool for lent connections only.
        transaction_on: returns a ``Transaction`` for the store's statements in what is open on a connection.
        explained: turns the driver's errors into the store's. It is around the store's statements only: errors of the
            job's statements are left as they are.
    """

    def __init__(
        self,
        connections: Connections,
        dialect: Dialect,
        transaction_on: Callable[[Connection], Transaction],
        explained: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._connections = connections
        self._dialect = dialect
        self._transaction_on = transaction_on
        self._explained = explained

    @contextmanager
    def lend_transaction(self, claim: Claim) -> Iterator[RunTransaction]:
        """Open a transaction for a run; it commits if it was completed and the block raised nothing."""
        with ExitStack() as cleanup:
            with self._explained():
                connection, transaction = self._begin_transaction(cleanup)
                completing.require_current(self._transaction_on(connection), claim)
                connection.view.exec_driver_sql(f"SAVEPOINT {MARK}")
            lent = _LentTransaction(connection, claim, self._transaction_on, self._explained)
            with _commits_refused(connection.view):
                try:
                    yield lent
                except BaseException:
                    # Checked here, because the connection is closed before the error leaves this method. A connection
                    # that the job's code has closed counts as not lost.
                    lent.lost = not connection.view.closed and self._dialect.is_known_broken(connection)
                    raise
            with self._explained():
                if lent.completed:
                    transaction.commit()
                else:
                    transaction.rollback()

    def _begin_transaction(self, cleanup: ExitStack) -> tuple[LentConnection, RootTransaction]:
        """Begin a transaction; if its connection was cut off while idle, on a new one: nothing was done on it yet."""
        while True:
            was_good = False
            try:
                with ExitStack() as attempt:
                    attempt.callback(self._dialect.end_write)
                    connection = attempt.enter_context(self._lent_connection())
                    was_good = connection.was_good
                    transaction = attempt.enter_context(connection.view.begin())
                    self._dialect.begin_for_user_code(connection)
                    connection.was_good = True
                    cleanup.push(attempt.pop_all())
                    return connection, transaction
            except Exception as error:
                if not was_good or not self._dialect.is_connection_error(cause_of(error)):
                    raise
                self._connections.forget_idle()

    @contextmanager
    def _lent_connection(self) -> Iterator[LentConnection]:
        connection = cast("LentConnection", self._connections.acquire_connection())
        try:
            yield connection
        except BaseException:
            self._connections.throw_away(connection)
            raise
        else:
            self._connections.release_connection(connection)


class _LentTransaction(RunTransaction):
    def __init__(
        self,
        connection: LentConnection,
        claim: Claim,
        transaction_on: Callable[[Connection], Transaction],
        explained: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.connection: alchemy.Connection = connection.view
        self.completed = False
        self._connection = connection
        self._claim = claim
        self._transaction_on = transaction_on
        self._explained = explained

    def complete(self, result: str | None = None, notes: Sequence[Note] = ()) -> None:
        if self.completed:
            raise UnsupportedTransaction("this transaction is complete already; nothing can be added to it")
        try:
            with self._explained():
                self.connection.exec_driver_sql(f"RELEASE SAVEPOINT {MARK}")
        except SQLAlchemyError as error:
            raise UnsupportedTransaction(
                "the transaction of this run cannot be completed: either the block ended it by itself (COMMIT, "
                "ROLLBACK, conn.close(); on MySQL also CREATE, ALTER, TRUNCATE, which commit first), and then what was "
                "committed stays; or a statement in it failed and the block went on. No result is recorded. Leave the "
                f"ending to run.transaction(), and let errors leave the block ({error})"
            ) from error
        with self._explained():
            tx = self._transaction_on(self._connection)
            # The server's clock was read before the job's code, which may have run for long.
            tx.catch_up()
            completing.complete_run(tx, self._claim, result, notes)
        self.completed = True


@contextmanager
def _commits_refused(connection: alchemy.Connection) -> Iterator[None]:
    """Refuse a commit through ``connection`` in the block: effects would be committed without the result."""

    def refuse(_: alchemy.Connection) -> None:
        raise UnsupportedTransaction(
            "conn.commit() inside run.transaction() would commit the effects without the result; leave it out: the end "
            "of the block commits both"
        )

    event.listen(connection, "commit", refuse)
    try:
        yield
    finally:
        event.remove(connection, "commit", refuse)
