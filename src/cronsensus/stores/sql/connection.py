"""A connection of the store's own: the driver's, and what is remembered of it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Connection:
    """A driver's connection in autocommit mode: a transaction begins where a dialect says ``BEGIN``.

    One that no variable refers to any more is closed, as it may be lost when a signal handler raises; a copy that a
    fork made is left alone.

    Attributes:
        driver: the driver's own connection.
        info: what a dialect remembers of it.
        was_good: a transaction has begun on it before, so an error at the beginning of the next one may mean that it
            was cut off while it lay idle.
    """

    __slots__ = ("__weakref__", "driver", "info", "was_good")

    def __init__(self, driver: Any, *, ours: bool = True) -> None:
        """Take a connection that is open; one that is not ``ours`` is another's to close when it is lost."""
        self.driver = driver
        self.info: dict[str, Any] = {}
        self.was_good = False
        if ours:
            # Not __del__: in a cycle that is collected, the driver's own might come first, and complain.
            weakref.finalize(self, _close_lost, driver, os.getpid()).atexit = False

    def execute_text(self, text: str) -> Any:
        """Run one statement that has no values; return its cursor."""
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
            # A handler raised between the frames, and the block was dropped. Perhaps the connection was before it: a
            # driver would complain. Whatever it holds goes with it.
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
