"""Statements as text that goes straight to the driver, in a form that PostgreSQL prepares once.

The verbs are written in SQLAlchemy Core and compiled from there, once for each schema. On the way two things change:

- ``x IN (1, 2, 3)`` becomes ``x = ANY ($1)``, so that there is one text for lists of every length;
- a statement that is run for many rows becomes one that takes them all, as one array for each column.

Every value goes as text whose type the statement says, so a statement is prepared once and not once for each mixture of
types. The schema is written into the text: a connection may be shared, or be the user's own, and its search path is
nobody's business here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from typing import cast as typed
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import ARRAY, Insert, String, Text, any_, bindparam, column, func, select
from sqlalchemy import all_ as all_of
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import BinaryExpression, BindParameter
from sqlalchemy.types import TypeEngine

_DIALECT = typed("Any", PGDialect_psycopg)(paramstyle="numeric_dollar")
_SOMEWHERE = "cronsensus_somewhere"
"""The schema of what is compiled; the text is the same for all of them but for its name."""
_COMPILED: WeakKeyDictionary[Executable, dict[object, Prepared]] = WeakKeyDictionary()
MOST_AT_ONCE = 5000
"""Most rows that one statement takes."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compiled statement.

    Attributes:
        order: names of the parameters as the text wants them.
        constants: parameters that the statement brings itself.
    """

    text: str
    order: tuple[str, ...]
    constants: Mapping[str, Any]

    def run(self, driver: psycopg.Connection[Any], parameters: Mapping[str, Any]) -> psycopg.RawCursor[Any]:
        """Run the statement."""
        given = {**self.constants, **parameters} if self.constants else parameters
        return _run(driver, self.text, [as_text(given[name]) for name in self.order])

    def run_columns(self, driver: psycopg.Connection[Any], columns: Mapping[str, str]) -> int:
        """Run the statement for many rows, given as arrays; return how many rows it touched."""
        values = [columns[name] if name in columns else as_text(self.constants[name]) for name in self.order]
        return _run(driver, self.text, values).rowcount


def _run(driver: psycopg.Connection[Any], text: str, values: list[str | None]) -> psycopg.RawCursor[Any]:
    cursor = psycopg.RawCursor(driver, row_factory=namedtuple_row)
    return cursor.execute(typed("Any", text), values)


class Statements:
    """Compiled statements of one schema. Shared by all handles on it."""

    def __init__(self, schema: str) -> None:
        """Make statements for the tables of ``schema``."""
        self._schema = f'"{schema}"'
        self._found: WeakKeyDictionary[Executable, dict[object, Prepared]] = WeakKeyDictionary()

    def single(self, statement: Executable, parameters: Mapping[str, Any]) -> Prepared:
        """Return a statement for parameters of these names."""
        names = frozenset(parameters)
        return self._here(statement, names, names, lambda: _without_lists(statement))

    def many(self, statement: Executable, names: tuple[str, ...]) -> Prepared:
        """Return a statement that takes an array of each of ``names`` and does what ``statement`` does for each row."""
        return self._here(statement, names, frozenset(names), lambda: _for_rows(statement, names))

    def _here(
        self, statement: Executable, kind: object, names: frozenset[str], change: Callable[[], Executable]
    ) -> Prepared:
        texts = self._found.get(statement)
        if texts is None:
            texts = self._found[statement] = {}
        found = texts.get(kind)
        if found is None:
            compiled = _compile_once(statement, kind, names, change)
            found = texts[kind] = replace(compiled, text=compiled.text.replace(_SOMEWHERE, self._schema))
        return found


@cache
def statements_of(schema: str) -> Statements:
    """Return the compiled statements of a schema, the same for every handle of this process."""
    return Statements(schema)


def _compile_once(
    statement: Executable, kind: object, names: frozenset[str], change: Callable[[], Executable]
) -> Prepared:
    texts = _COMPILED.get(statement)
    if texts is None:
        texts = _COMPILED[statement] = {}
    found = texts.get(kind)
    if found is None:
        found = texts[kind] = _compile(change(), names)
    return found


def _compile(statement: Executable, names: frozenset[str]) -> Prepared:
    compiled = typed("Any", statement).compile(
        dialect=_DIALECT,
        column_keys=None if isinstance(statement, Insert) and statement.select is not None else sorted(names),
        schema_translate_map={None: _SOMEWHERE},
        render_schema_translate=True,
    )
    constants = {name: value for name, value in compiled.params.items() if name not in names}
    return Prepared(str(compiled), tuple(compiled.positiontup), constants)


def _without_lists(statement: Executable) -> Executable:
    """Return a statement whose ``IN`` lists are arrays."""
    if isinstance(statement, Insert):
        return statement.inline()  # it is not asked for the id that it gave

    def replaced(element: Any, **_: Any) -> Any:
        if not isinstance(element, BinaryExpression) or not isinstance(element.right, BindParameter):
            return None
        if not element.right.expanding:
            return None
        given = bindparam(element.right.key, element.right.value, type_=ARRAY(_unbounded(element.left.type)))
        if element.operator is operators.not_in_op:
            return element.left != all_of(given)
        return element.left == any_(given)

    return typed("Executable", visitors.replacement_traverse(typed("Any", statement), {}, typed("Any", replaced)))


def _for_rows(statement: Executable, names: tuple[str, ...]) -> Executable:
    """Return a statement that reads its parameters from the rows of ``unnest``."""
    plain = typed("Any", statement).compile(dialect=_DIALECT, column_keys=list(names))
    types = {name: _unbounded(plain.binds[name].type) for name in names}
    arrays = [bindparam(name, type_=ARRAY(types[name])) for name in names]
    columns = [column(name, types[name]) for name in names]
    given = func.unnest(*arrays).table_valued(*columns).render_derived("given")
    if isinstance(statement, Insert):
        return statement.from_select(list(names), select(*given.c))

    def replaced(element: Any, **_: Any) -> Any:
        return given.c[element.key] if isinstance(element, BindParameter) and element.key in types else None

    return typed(
        "Executable",
        visitors.replacement_traverse(typed("Any", statement), {"stop_on": [given]}, typed("Any", replaced)),
    )


def _unbounded(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    # A cast to varchar(n) cuts off what is longer, silently; the column itself refuses it.
    return Text() if isinstance(type_, String) else type_


# --- values as text ---------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str | None:
    """Return a value as the server reads it."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(
            value
        )  # what the driver would make of an enumeration, or of a class of the user's, is its own
    return array(value) if isinstance(value, (list, tuple)) else str(value)


def array(values: Sequence[Any]) -> str:
    """Return an array's text; elements are numbers, text or ``None``."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else str(value)


def columns_of(names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Return rows as one array for each column."""
    return {name: array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
