"""Close Django's old connections around a run, and commit the end of a run with ``atomic``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.test.utils import _TestState

from cronsensus.node.run import current_run
from cronsensus.run import Run


def mind_connections(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that closes Django's connections that are over their age before and after each run.

    Called without a run, as in a test, it closes nothing: that would end the test's own transaction.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            if _is_plain_call():
                return await function(*args, **kwargs)
            await sync_to_async(_close_old_connections)()
            try:
                return await function(*args, **kwargs)
            finally:
                await sync_to_async(_close_old_connections)()

        return run_async

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _is_plain_call():
            return function(*args, **kwargs)
        _close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            _close_old_connections()

    return run


def _close_old_connections() -> None:
    """Close connections that are over their age, except one in whose transaction a ``TestCase`` runs its test."""
    for connection in connections.all(initialized_only=True):
        if not (connection.in_atomic_block and is_in_tests()):
            connection.close_if_unusable_or_obsolete()


def is_in_tests() -> bool:
    """Whether Django's test runner has made the databases, and will take them away."""
    return hasattr(_TestState, "saved_data")


def _is_plain_call() -> bool:
    """Whether the function is called directly, not by a node as a run."""
    return current_run() is None


@contextmanager
def atomic(run: Run, *, using: str | None = None, result: Any = None) -> Iterator[None]:
    """Open ``transaction.atomic()`` whose commit is the end of the run: both are there, or neither.

    Args:
        run: the run, which a function gets by a parameter that is annotated with ``Run``.
        using: the alias of the store's database; defaults to that of ``settings.CRONSENSUS``.
        result: of the run.

    Raises:
        UnsupportedTransaction: the store is another database.
        LeaseLost: the run was taken over; nothing of it is committed.
    """
    from cronsensus.integrations.django.options import read_options

    alias = using or read_options().database
    with transaction.atomic(using=alias, durable=True):
        yield
        run.complete_in(connections[alias].connection, result)
