"""Statements as text that goes straight to the driver, many rows in one.

PyMySQL writes values into the text of a statement, so there is nothing to prepare. What SQLAlchemy compiled is kept as
a template, and each value becomes a literal here, by the driver's own rules of escaping. On the way two things change:

- ``x IN (:list)`` takes a list of any length in one template;
- a statement that is run for many rows becomes one: an INSERT with many VALUES, or an UPDATE joined to the rows.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from weakref import WeakKeyDictionary

from pymysql.cursors import Cursor
from sqlalchemy import Insert, Table, Update, column, table
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.sql import visitors
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import BindParameter

from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.mysql.driver import BoundedConnection

MOST_ROWS = 500
MOST_CHARACTERS = 500_000
"""Most of a statement's rows; the server refuses packets that are too large (the least common limit is 16 MB)."""
_NOTHING = "(SELECT 1 FROM DUAL WHERE FALSE)"
"""A list without elements, for IN and NOT IN; with NULL in it, NOT IN would be true for nothing."""
_LIST = re.compile(r"\(__\[POSTCOMPILE_(\w+)\]\)")
_BY_ID = re.compile(r"FROM (cronsensus_(?:jobs|occurrences)) (\s*WHERE \1\.id IN )")
_ALONG_IDS = "FORCE INDEX (PRIMARY)"
"""Also where a table is so small that a scan would cost less: it would lock, and wait for, each row that it passes."""
_ROWS = "given"


@dataclass(slots=True)
class Template:
    """A compiled statement.

    Attributes:
        text: with ``%(name)s`` where a literal belongs.
        constants: values that the statement brings itself.
    """

    text: str
    constants: Mapping[str, Any]
    _make: Any = field(default=None)

    def filled(self, driver: BoundedConnection, parameters: Mapping[str, Any]) -> str:
        """Return the text with the values in it."""
        literals = {name: literal(driver, value) for name, value in self.constants.items()}
        literals.update((name, literal(driver, value)) for name, value in parameters.items())
        return self.text % literals

    def rows(self, cursor: Cursor) -> Sequence[AnyRow]:
        """Return the rows of an answer, with columns by name and by place."""
        found = cursor.fetchall()
        if not found:
            return ()
        if self._make is None:
            names = [one[0] for one in cursor.description]
            self._make = getattr(namedtuple("Row", names, rename=True), "_make")  # noqa: B009, PYI024
        return list(map(self._make, found))


@dataclass(frozen=True, slots=True)
class ManyRows:
    """A statement that is run for many rows at once.

    Attributes:
        before, after: what stands around the rows.
        row: one row, with ``%(name)s`` where a literal belongs.
        between: what stands between two rows.
    """

    before: str
    row: str
    between: str
    after: str
    names: tuple[str, ...]
    constants: Mapping[str, Any]

    def texts(self, driver: BoundedConnection, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, int]]:
        """Return statements that together hold all rows, each with how many it holds."""
        constants = {name: literal(driver, value) for name, value in self.constants.items()}
        before, after = self.before % constants, self.after % constants
        some: list[str] = []
        length = 0
        for row in rows:
            values = dict(zip(self.names, [literal(driver, value) for value in row], strict=True))
            text = self.row % (constants | values)
            if some and (len(some) >= MOST_ROWS or length + len(text) > MOST_CHARACTERS):
                yield before + self.between.join(some) + after, len(some)
                some, length = [], 0
            some.append(text)
            length += len(text)
        yield before + self.between.join(some) + after, len(some)


class Statements:
    """Compiled statements, for one of the two kinds of server."""

    def __init__(self, *, is_mariadb: bool) -> None:
        """Compile for MariaDB or for MySQL."""
        self._dialect = MySQLDialect_pymysql(is_mariadb=is_mariadb, paramstyle="pyformat")
        self._single: WeakKeyDictionary[Executable, dict[frozenset[str], Template]] = WeakKeyDictionary()
        self._many: WeakKeyDictionary[Executable, dict[tuple[str, ...], ManyRows]] = WeakKeyDictionary()

    def single(self, statement: Executable, parameters: Mapping[str, Any]) -> Template:
        """Return a statement for parameters of these names."""
        templates = self._single.get(statement)
        if templates is None:
            templates = self._single[statement] = {}
        names = frozenset(parameters)
        found = templates.get(names)
        if found is None:
            found = templates[names] = Template(*self._compile(statement, names))
        return found

    def many(self, statement: Executable, names: tuple[str, ...]) -> ManyRows:
        """Return a statement for many rows, whose values are ``names``."""
        forms = self._many.get(statement)
        if forms is None:
            forms = self._many[statement] = {}
        found = forms.get(names)
        if found is None:
            found = forms[names] = self._for_rows(statement, names)
        return found

    def _compile(self, statement: Executable, names: frozenset[str]) -> tuple[str, dict[str, Any]]:
        compiled = cast("Any", statement).compile(dialect=self._dialect, column_keys=sorted(names))
        constants = {name: value for name, value in compiled.params.items() if name not in names}
        text = _LIST.sub(r"%(\1)s", str(compiled))
        if text.endswith("FOR UPDATE"):
            text = _BY_ID.sub(rf"FROM \1 {_ALONG_IDS} \2", text)
        return text, constants

    def _for_rows(self, statement: Executable, names: tuple[str, ...]) -> ManyRows:
        if isinstance(statement, Insert):
            text, constants = self._compile(statement, frozenset(names))
            before, values, row = text.partition(" VALUES ")
            return ManyRows(before + values, row, ", ", "", names, constants)
        if not isinstance(statement, Update):
            raise TypeError(f"for many rows there is no form of: {statement}")
        return self._joined(statement, names)

    def _joined(self, statement: Update, names: tuple[str, ...]) -> ManyRows:
        """Return an UPDATE that is joined to its rows: STRAIGHT_JOIN begins with those, and goes along the ids."""
        given = table(_ROWS, *(column(name) for name in names))

        def replace(element: Any, **_: Any) -> Any:
            return given.c[element.key] if isinstance(element, BindParameter) and element.key in names else None

        joined = visitors.replacement_traverse(cast("Any", statement), {"stop_on": [given]}, cast("Any", replace))
        text, constants = self._compile(cast("Executable", joined), frozenset())
        target = cast("Table", statement.table).name
        start = f"UPDATE {target}, {_ROWS} SET "  # noqa: S608 - a name of ours
        if not text.startswith(start) or f"{target}.id = {_ROWS}." not in text:
            raise TypeError(f"for many rows there is no form of: {text}")
        return ManyRows(
            before="UPDATE (",
            row="SELECT " + ", ".join(f"%({name})s AS `{name}`" for name in names),
            between=" UNION ALL ",
            after=f") AS {_ROWS} STRAIGHT_JOIN {target} {_ALONG_IDS} SET {text.removeprefix(start)}",
            names=names,
            constants=constants,
        )


@cache
def statements_of(*, is_mariadb: bool) -> Statements:
    """Return the compiled statements for a kind of server, the same for every handle of this process."""
    return Statements(is_mariadb=is_mariadb)


def literal(driver: BoundedConnection, value: Any) -> str:
    """Return a value as it stands in the text of a statement."""
    if value is None:
        return "NULL"
    if type(value) is int:
        return str(value)
    if isinstance(value, (list, tuple)):
        return "(" + ",".join([literal(driver, one) for one in value]) + ")" if value else _NOTHING
    return driver.escape(value)
