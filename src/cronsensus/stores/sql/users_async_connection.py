"""Wrap an async connection of the user's: psycopg's, or SQLAlchemy's with any driver."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cronsensus.errors import UnsupportedTransaction
from cronsensus.stores.sql.users_connection import (
    Answer,
    Plan,
    Statement,
    UsersConnection,
    is_two_phase,
    next_of,
    require_transaction,
    texts_of,
    wrap_connection,
)

T = TypeVar("T")


async def run_plan_async(plan: Plan[T], execute: Callable[[Statement], Awaitable[Answer]]) -> T:
    """Carry out a plan on an async connection; the plan's own reads run on a thread."""
    import asyncio

    step = await asyncio.to_thread(next_of, plan, None)
    while isinstance(step, Statement):
        try:
            answer: Answer | Exception = await execute(step)
        except Exception as error:  # noqa: BLE001 - as above
            answer = error
        step = await asyncio.to_thread(next_of, plan, answer)
    return step.value


class UsersAsyncConnection(ABC):
    """A connection of a user's, with ``database`` as in ``UsersConnection``."""

    database: str

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, as far as that is known."""
        return True

    @property
    def is_two_phase(self) -> bool:
        """Whether the transaction is to be prepared first, as far as that is known."""
        return False

    def call_after_commit(self, call: Callable[[], object], who: object) -> bool:  # noqa: ARG002 - drivers have no hook
        """Call ``call`` once for ``who`` when the transaction is committed; ``False``: there is no hook."""
        return False

    @abstractmethod
    async def execute(self, statement: Statement) -> Answer:
        """Run a statement."""


async def wrap_async_connection(connection: Any, verb: str) -> UsersAsyncConnection:
    """Wrap a user's async connection.

    Raises:
        UnsupportedTransaction: it is something else, or commits each statement by itself.
    """
    aio, psycopg = sys.modules.get("sqlalchemy.ext.asyncio"), sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.AsyncConnection):
        return _AsyncPsycopg(connection, verb)
    if aio is not None and isinstance(connection, aio.async_scoped_session):
        connection = connection()
    if aio is not None and isinstance(connection, (aio.AsyncSession, aio.AsyncConnection)):
        return _AsyncSqlalchemy(
            connection, await connection.run_sync(lambda sync_connection: wrap_connection(sync_connection, verb))
        )
    if not hasattr(connection, "__aenter__"):
        raise UnsupportedTransaction(
            f"a{verb}() awaits the connection, and this is {type(connection).__module__}."
            f"{type(connection).__qualname__}; call {verb}() on it, without await"
        )
    wrap_connection(connection, verb)  # it says what cannot be used
    raise UnsupportedTransaction(f"a{verb}() cannot use {type(connection).__qualname__}")


class _AsyncPsycopg(UsersAsyncConnection):
    database = "postgresql"

    def __init__(self, raw: Any, verb: str) -> None:
        idle = sys.modules["psycopg.pq"].TransactionStatus.IDLE
        require_transaction(verb, commits_each=raw.autocommit and raw.info.transaction_status == idle)
        self._raw = raw

    @property
    def is_two_phase(self) -> bool:
        return is_two_phase(self._raw)

    async def execute(self, statement: Statement) -> Answer:
        answer = Answer(())
        for text, values in texts_of(statement, takes_names=False):
            async with self._raw.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
                await cursor.execute(text, values)
                answer = Answer(await cursor.fetchall())  # within pipeline() nothing is known before
        return answer


class _AsyncSqlalchemy(UsersAsyncConnection):
    def __init__(self, connection: Any, sync_connection: UsersConnection) -> None:
        self._connection, self._sync_connection, self.database = connection, sync_connection, sync_connection.database

    @property
    def is_open(self) -> bool:
        return self._sync_connection.is_open

    @property
    def is_two_phase(self) -> bool:
        return self._sync_connection.is_two_phase

    def call_after_commit(self, call: Callable[[], object], who: object) -> bool:
        import asyncio

        loop = asyncio.get_running_loop()
        return self._sync_connection.call_after_commit(lambda: loop.run_in_executor(None, call), who)

    async def execute(self, statement: Statement) -> Answer:
        answer: Answer = await self._connection.run_sync(lambda _: self._execute(statement))
        return answer

    def _execute(self, statement: Statement) -> Answer:
        with self._sync_connection.ready():
            return self._sync_connection.execute(statement)
