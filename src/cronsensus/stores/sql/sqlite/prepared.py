"""Statements by name as text that goes straight to the driver, with the order of their values.

A node that has slept for a second has a due time to meet, and nothing of its code is in the processor's caches any
more. So as little as possible is done around a statement: its text is made once for lists of each length.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import Any

from cronsensus.stores.sql.queries import LIST, VALUE, Query, row_maker

LONGEST_LIST = 4
"""Longest ``IN`` list that has a text of its own for each length; longer ones are work enough to hide the
difference."""

_PLACED = re.compile(r"(?<![:\w]):([a-z_]+\d*)")


@dataclass(slots=True)
class Prepared:
    """A statement for lists of some lengths.

    Attributes:
        order: names of the parameters as the text wants them.
    """

    text: str
    order: tuple[str, ...]
    _make: Callable[[tuple[Any, ...]], Any] | None = field(default=None)

    def order_values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the values in the order of the text."""
        flat = dict(parameters)
        for name, value in parameters.items():
            if type(value) is list:
                flat.update((f"{name}_{number}", item) for number, item in enumerate(value, 1))
        return [flat[name] for name in self.order]

    def run_statement(self, driver: sqlite3.Connection, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        """Run the statement."""
        return driver.execute(self.text, self.order_values(parameters))

    def read_rows(self, driver: sqlite3.Connection, parameters: Mapping[str, Any]) -> list[Any]:
        """Run a query and return its rows, with columns by name and by place."""
        cursor = self.run_statement(driver, parameters)
        rows = cursor.fetchall()
        if not rows:
            return rows
        if self._make is None:
            names = [column[0] for column in cursor.description]
            self._make = row_maker(names)
        return list(map(self._make, rows))


@cache
def prepare_rows(query: Query, more: tuple[str, ...]) -> tuple[str, Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """Return the text of a statement for many rows, and what orders the values of a row and then those of ``more``."""
    names = (*query.rows, *more)
    places = [names.index(name) for name in VALUE.findall(query.text)]
    # Of a single place ``itemgetter`` makes no tuple.
    pick = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
    return VALUE.sub("?", query.text), pick


def prepare_query(query: Query, values: Mapping[str, Any]) -> Prepared:
    """Return a statement by name, for lists as long as these."""
    lengths = tuple([len(values[name]) for name in _lists_of(query)])
    return _prepare_query(query, lengths) if max(lengths, default=0) <= LONGEST_LIST else _compile_query(query, lengths)


@cache
def _lists_of(query: Query) -> tuple[str, ...]:
    return tuple(LIST.findall(query.text))


def _compile_query(query: Query, lengths: tuple[int, ...]) -> Prepared:
    left = iter(lengths)

    def listed(match: re.Match[str]) -> str:
        return "IN (" + ", ".join(f":{match[1]}_{number}" for number in range(1, next(left) + 1)) + ")"

    text = LIST.sub(listed, query.text)
    return Prepared(_PLACED.sub("?", text), tuple(_PLACED.findall(text)))


_prepare_query = cache(_compile_query)
