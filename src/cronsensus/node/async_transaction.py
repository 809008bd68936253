"""The transaction of a run for code on an event loop. A single thread executes all its statements.

One thread for each block, and not a pool: a pool that is full of blocks that wait for the database would keep the one
that holds it from ending.

Failure handling: a task that is cancelled waits until its transaction is really over, so that whatever comes next does
not meet it. A block whose task is dropped in the middle (its loop is gone) is rolled back.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Executable, ScalarResult

P = ParamSpec("P")
Value = TypeVar("Value")
Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None

_numbers = itertools.count(1)


class _Thread:
    """Executes calls in order on a daemon thread, until it is closed.

    It holds on to ``block``: if a dropped task and the generators of its transaction were garbage together, they would
    be closed in any order and on any thread.
    """

    def __init__(self, block: object) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        name = f"cronsensus-transaction-{next(_numbers)}"
        threading.Thread(target=_run_calls, args=(self._calls, block), name=name, daemon=True).start()

    def post_call(self, function: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Future[Value]:
        """Have a call made, in a copy of this context."""
        future: Future[Value] = Future()
        context = copy_context()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(function, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                future.set_exception(error)

        self._calls.put(call)
        return future

    def end_thread(self) -> None:
        """Let the thread end, after the calls that wait."""
        self._calls.put(None)


def _run_calls(calls: queue.SimpleQueue[Callable[[], None] | None], _: object) -> None:
    while (call := calls.get()) is not None:
        call()
        del call


class AsyncConnection:
    """An SQLAlchemy connection that an async job uses from its event loop.

    Results have all their rows; nothing of them is left in the database. Calls made at the same time wait for one
    another.
    """

    def __init__(self, connection: Connection, thread: _Thread) -> None:
        self._connection = connection
        self._thread = thread

    async def execute(self, statement: Executable, parameters: Parameters = None) -> CursorResult[Any]:
        """Execute a statement; return its rows, or a result without rows (``rowcount``)."""
        return await self.run_sync(_execute, statement, parameters)

    async def scalar(self, statement: Executable, parameters: Parameters = None) -> Any:
        """Run a query; return the first column of its first row, or ``None``."""
        return (await self.execute(statement, parameters)).scalar()

    async def scalars(self, statement: Executable, parameters: Parameters = None) -> ScalarResult[Any]:
        """Run a query; return the first column of each row."""
        return (await self.execute(statement, parameters)).scalars()

    async def run_sync(
        self, function: Callable[Concatenate[Connection, P], Value], *args: P.args, **kwargs: P.kwargs
    ) -> Value:
        """Call ``function(connection, …)`` on the thread, where blocking is no matter; return what it returns."""
        return await asyncio.wrap_future(self._thread.post_call(function, self._connection, *args, **kwargs))


def _execute(connection: Connection, statement: Executable, parameters: Parameters) -> CursorResult[Any]:
    result = connection.execute(statement, parameters)
    # Rows are fetched here: their cursor belongs to this thread, and to the transaction.
    return cast("CursorResult[Any]", result.freeze()()) if result.returns_rows else result


@asynccontextmanager
async def async_transaction(
    transaction: Callable[[], AbstractContextManager[Connection]],
) -> AsyncIterator[AsyncConnection]:
    """Enter and leave ``transaction`` on a thread of its own."""
    block = transaction()
    thread = _Thread(block)
    try:
        entering = thread.post_call(block.__enter__)
        cancelled = await _wait_until_over(entering)
        if cancelled is not None:
            if entering.exception() is None:
                await _leave_block(thread, block, cancelled)
            raise cancelled
        connection = AsyncConnection(entering.result(), thread)
        try:
            yield connection
        except GeneratorExit as error:
            # The task was dropped in the middle: nothing is left that waits.
            _post_leave(thread, block, error)
            raise
        except BaseException as error:
            await _leave_block(thread, block, error)
            raise
        await _leave_block(thread, block, None)
    finally:
        thread.end_thread()


async def _leave_block(thread: _Thread, block: AbstractContextManager[Any], error: BaseException | None) -> None:
    """Leave the block; an error of its own is raised, a cancellation only once it is over."""
    leaving = _post_leave(thread, block, error)
    cancelled = await _wait_until_over(leaving)
    problem = leaving.exception()
    if problem is not None and problem is not error:
        raise problem
    if cancelled is not None:
        raise cancelled


async def _wait_until_over(future: Future[Any]) -> asyncio.CancelledError | None:
    """Wait until a call is over, also when cancelled meanwhile; return the cancellation."""
    cancelled = None
    over = asyncio.wrap_future(future)
    while not over.done():
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError as error:
            cancelled = error
    over.exception()  # read, so that asyncio does not complain; the caller reads ``future``
    return cancelled


def _post_leave(thread: _Thread, block: AbstractContextManager[Any], error: BaseException | None) -> Future[Any]:
    return thread.post_call(block.__exit__, None if error is None else type(error), error, None)
