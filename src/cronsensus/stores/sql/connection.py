"""A connection of the store: the driver's connection, and what a dialect has noted about it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Connection:
    """A driver's connection in autocommit mode: a transaction begins where a dialect says ``BEGIN``.

    It is closed when nothing refers to it any more: a thread may lose it when a signal handler raises. A copy in a
    forked child is left alone.

    Attributes:
        driver: the driver's own connection.
        info: what a dialect has noted about it.
        was_good: a transaction has begun on it before. So an error at the beginning of the next one may mean that the
            connection was closed while it was idle.
    """

    __slots__ = ("__weakref__", "driver", "info", "was_good")

    def __init__(self, driver: Any, *, ours: bool = True) -> None:
        """Wrap an open connection. If it is not ``ours``, it is not closed when nothing refers to it any more."""
        self.driver = driver
        self.info: dict[str, Any] = {}
        self.was_good = False
        if ours:
            # Not __del__: in a cycle that is collected, the driver's own might come first, and complain.
            weakref.finalize(self, _close_lost, driver, os.getpid()).atexit = False

    def execute_text(self, text: str) -> Any:
        """Run a statement without values; return its cursor."""
        cursor = self.driver.cursor()
        cursor.execute(text)
        return cursor

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """End the transaction that is begun in the block: commit, or roll back if an exception leaves the block."""
        try:
            yield
            self.driver.commit()
        except GeneratorExit:
            # A signal handler raised, and the block was dropped. The connection may have been freed before it, and a
            # rollback would fail. Closing rolls back, too.
            self.close()
            raise
        except BaseException:
            self.driver.rollback()
            raise

    def close(self) -> None:
        """Close the connection, whatever state it is in. Idempotent."""
        _close_driver(self.driver)


def _close_driver(driver: Any) -> None:
    with suppress(driver.Error, OSError):
        driver.close()


def _close_lost(driver: Any, pid: int) -> None:
    if os.getpid() == pid:
        _close_driver(driver)
