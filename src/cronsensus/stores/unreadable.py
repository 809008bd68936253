"""Rows that cannot be read: each is logged once and left out, so that everything else goes on.

A row may hold values that this code never wrote: an edit by hand, a newer version, a broken disk. It concerns a single
job, occurrence, session or lock, and nothing else may stop because of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cronsensus.errors import ConfigurationError, CoordinationError, StoreCorrupt
from cronsensus.process.logger import Logger
from cronsensus.timing.instants import LATEST_MICROS
from cronsensus.triggers.zones import UnknownZone

MOST_LOGGED_ROWS = 10_000
"""Most rows that a handle remembers as logged."""

LARGEST_COUNT = 2**31 - 1
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
"""The exceptions that reading such values may raise.

Not every ``Exception``: a user's signal handler may raise its own while a row is read (Celery's soft time limit), and
an error of a server or a driver is not about a row.
"""

Row = TypeVar("Row")
Value = TypeVar("Value")

_log = Logger("cronsensus.stores")


class Unreadable:
    """The rows that a handle could not read. Safe to share between threads."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._logged: dict[str, str] = {}

    def log_unreadable(self, what: str, error: BaseException) -> None:
        """Log that ``what`` cannot be read; once for each ``what``, because each look reads it again."""
        with self._lock:
            if what in self._logged or len(self._logged) >= MOST_LOGGED_ROWS:
                return
            self._logged[what] = text = f"{what}: {describe_error(error)}"
        _log.error("%s", text)

    def list_texts(self) -> tuple[str, ...]:
        """Return what was logged, in that order."""
        with self._lock:
            return tuple(self._logged.values())

    def keep_readable(
        self, rows: Iterable[Row], read: Callable[[Row], Value], name: Callable[[Row], str]
    ) -> list[Value]:
        """Return ``read`` of each row; an unreadable row is left out and logged by ``name``."""
        values = []
        for row in rows:
            try:
                values.append(read(row))
            except Exception as error:
                if not isinstance(error, READING_RAISES) and not is_of_values(error):
                    raise
                self.log_unreadable(f"{name(row)} is left out", error)
        return values

    def read_page(
        self,
        limit: int,
        after: Any,
        fetch: Callable[[Any, int], Sequence[Row]],
        read: Callable[[Row], Value],
        name: Callable[[Row], str],
        *,
        position: Callable[[Row], Any] = lambda row: row.id,  # type: ignore[attr-defined]
    ) -> list[Value]:
        """Return ``limit`` readable rows after ``after``; fewer only if there are no more.

        A page that is short because of an unreadable row would look like the last page, and the rest never be read.

        Args:
            limit: how many.
            after: the position to begin after.
            fetch: returns so many rows after a position.
            read: makes a value of a row.
            name: returns a row's name for the log.
            position: of a row.
        """
        values: list[Value] = []
        while True:
            missing = limit - len(values)
            rows = fetch(after, missing)
            values += self.keep_readable(rows, read, name)
            if len(values) >= limit or len(rows) < missing:
                return values
            after = position(rows[-1])


def read_one(row: Row, read: Callable[[Row], Value], name: str) -> Value:
    """Return ``read`` of the requested row.

    Raises:
        StoreCorrupt: it cannot be read.
    """
    try:
        return read(row)
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{name}: {error}") from error
    except READING_RAISES as error:
        raise StoreCorrupt(f"{name}: {describe_error(error)}") from error


def no_definition(what: str, error: Exception, text: object) -> StoreCorrupt:
    """Return the error for ``what``, a part of a definition whose stored ``text`` raised ``error``, with what to do."""
    who, then = "version", "upgrade cronsensus"
    if isinstance(error, UnknownZone):
        who, then = "machine", "pip install --upgrade tzdata"
    return StoreCorrupt(
        f"the store holds {what} that this {who} cannot read ({error}): {str(text)[:200]}; {then} here, or define the "
        "job anew, with some change"
    )


def describe_error(error: BaseException) -> str:
    """Return the message about a row that cannot be read."""
    if isinstance(error, StoreCorrupt):
        return str(error)
    return (
        f"the store holds what this version cannot read ({type(error).__name__}: {str(error)[:200]}); upgrade "
        "cronsensus here, or mend the row by hand"
    )


def texts_by_name(value: Any) -> dict[str, str]:
    """Return a JSON value as texts by name; ``None`` as an empty dict.

    Raises:
        StoreCorrupt: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise StoreCorrupt(f"a stored value is no texts by name: {str(value)[:100]}")
    return value


def whole_number(value: Any) -> int:
    """Return ``value`` if it is a whole number.

    Raises:
        ValueError: it is not. (A file of SQLite takes anything.)
    """
    if type(value) is not int:
        raise ValueError(f"{value!r:.60} is no whole number")
    return value


_OF_VALUES = {"DataError", "IntegrityError"}
"""The names of drivers' errors for values that a table does not take; PEP 249 fixes them."""
_MYSQL_OUT_OF_RANGE = 1690


def is_of_values(error: BaseException | None) -> bool:
    """Whether a verb failed because of the values of a row, and not because of the server or the network."""
    while error is not None:
        if isinstance(error, (TypeError, ValueError, OverflowError, KeyError, StoreCorrupt)):
            return True
        if _OF_VALUES & {kind.__name__ for kind in type(error).__mro__} or error.args[:1] == (_MYSQL_OUT_OF_RANGE,):
            return True
        error = error.__cause__
    return False


def bound_micros(micros: int) -> int:
    """Return ``micros``, cut to the range of times that stores keep."""
    return min(max(micros, -LATEST_MICROS), LATEST_MICROS)


def is_sound(micros: Any) -> bool:
    """Whether ``micros`` is an instant that this code may have written."""
    return type(micros) is int and -LATEST_MICROS <= micros <= LATEST_MICROS


def instant_of(micros: Any) -> int:
    """Return ``micros`` if it is an instant that this code may have written.

    Raises:
        ValueError: it is not.
    """
    if not is_sound(micros):
        raise ValueError(f"{micros!r:.60} is no instant between the years 1684 and 2255")
    return int(micros)
