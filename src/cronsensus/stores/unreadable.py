"""Rows that cannot be read: named once, left out, so that everything else goes on.

A row may hold what no version of this code wrote: by hand, by a newer version, by a disk. It concerns one job, one
occurrence, one session or one lock, and nothing else may stand still for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from cronsensus.errors import ConfigurationError, CoordinationError, StoreCorrupt
from cronsensus.instants import LATEST_MICROS
from cronsensus.logger import Logger

MOST_KEPT = 10_000
"""Rows that a handle remembers to have named."""

MOST_COUNTED = 2**31 - 1
"""The largest number of attempts, failures or crashes that a column holds."""

READING_RAISES: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    ConfigurationError,
    CoordinationError,
    StoreCorrupt,
)
"""What comes of values that are not what was written.

Not ``Exception``: a signal handler of the user's may raise one of its own while a row is read (Celery's soft time
limit), and what a server or a driver says is about no row.
"""

Row = TypeVar("Row")
Value = TypeVar("Value")

_log = Logger("cronsensus.stores")


class Unreadable:
    """What one handle met and could not read. Safe to share between threads."""

    def __init__(self) -> None:
        """Know of nothing yet."""
        self._lock = threading.Lock()
        self._told: dict[str, str] = {}

    def tell(self, what: str, error: BaseException) -> None:
        """Log that ``what`` cannot be read; once for each ``what``, because looks are many."""
        with self._lock:
            if what in self._told or len(self._told) >= MOST_KEPT:
                return
            self._told[what] = text = f"{what}: {said(error)}"
        _log.error("%s", text)

    def texts(self) -> tuple[str, ...]:
        """Return what was told, in that order."""
        with self._lock:
            return tuple(self._told.values())

    def readable(self, rows: Iterable[Row], read: Callable[[Row], Value], name: Callable[[Row], str]) -> list[Value]:
        """Return what ``read`` makes of each row; one that it cannot read is left out, and told by its ``name``."""
        found = []
        for row in rows:
            try:
                found.append(read(row))
            except Exception as error:
                if not isinstance(error, READING_RAISES) and not is_of_values(error):
                    raise
                self.tell(f"{name(row)} is left out", error)
        return found


def read_one(row: Row, read: Callable[[Row], Value], name: str) -> Value:
    """Return what ``read`` makes of the one row that was asked for.

    Raises:
        StoreCorrupt: it makes nothing of it.
    """
    try:
        return read(row)
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{name}: {error}") from error
    except READING_RAISES as error:
        raise StoreCorrupt(f"{name}: {said(error)}") from error


def said(error: BaseException) -> str:
    """Return what an error says of a row."""
    if isinstance(error, StoreCorrupt):
        return str(error)
    return (
        f"the store holds what this version cannot read ({type(error).__name__}: {str(error)[:200]}); upgrade "
        "cronsensus here, or mend the row by hand"
    )


def whole(value: Any) -> int:
    """Return ``value`` if it is a whole number.

    Raises:
        ValueError: it is not. (A file of SQLite takes anything.)
    """
    if type(value) is not int:
        raise ValueError(f"{value!r:.60} is no whole number")
    return value


_OF_VALUES = {"DataError", "IntegrityError"}
"""What drivers call the errors of values that a table does not take; the same for all by PEP 249."""
_MYSQL_OUT_OF_RANGE = 1690


def is_of_values(error: BaseException | None) -> bool:
    """Whether a verb failed for what a row holds, and not for the state of the server or of the network."""
    while error is not None:
        if isinstance(error, (TypeError, ValueError, OverflowError, KeyError, StoreCorrupt)):
            return True
        if _OF_VALUES & {kind.__name__ for kind in type(error).__mro__} or error.args[:1] == (_MYSQL_OUT_OF_RANGE,):
            return True
        error = getattr(error, "orig", None) or error.__cause__
    return False


def bounded(micros: int) -> int:
    """Return ``micros``, or the longest time that is of any use, on either side."""
    return min(max(micros, -LATEST_MICROS), LATEST_MICROS)


def sound(micros: Any) -> bool:
    """Whether ``micros`` is an instant that this code may have written."""
    return type(micros) is int and -LATEST_MICROS <= micros <= LATEST_MICROS


def instant_of(micros: Any) -> int:
    """Return ``micros`` if it is an instant that this code may have written.

    Raises:
        ValueError: it is not.
    """
    if not sound(micros):
        raise ValueError(f"{micros!r:.60} is no instant between the years 1684 and 2255")
    return int(micros)
