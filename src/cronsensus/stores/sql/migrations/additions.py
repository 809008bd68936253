"""Add to a store what ``schema.py`` declares and the store does not have: tables, columns, indexes.

A column that is added needs no value in rows that stand already: it is nullable, or has a constant default of the
server. An older node writes rows without it.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Table, inspect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler

from cronsensus.stores.sql.schema import metadata


class AddColumn(ExecutableDDLElement):
    """ALTER TABLE … ADD COLUMN."""

    def __init__(self, table: Table, column: Column[object]) -> None:
        self.table = table
        self.column = column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: DDLCompiler, **_: object) -> str:
    column = compiler.process(CreateColumn(element.column))
    return f"ALTER TABLE {compiler.preparer.format_table(element.table)} ADD COLUMN {column}"


def add_missing(connection: Connection) -> None:
    """Add what is declared and not there.

    Safe to repeat: on MySQL, where CREATE and ALTER commit by themselves, a process may have died between any two.
    """
    places = connection.get_execution_options().get("schema_translate_map", {})
    schema = places.get(None)
    look = inspect(connection)
    present = set(look.get_table_names(schema=schema))
    for table in metadata.sorted_tables:
        if table.name not in present:
            table.create(connection, checkfirst=False)
            continue
        columns = {column["name"] for column in look.get_columns(table.name, schema=schema)}
        for column in table.columns:
            if column.name not in columns:
                connection.execute(AddColumn(table, column))
        indexes = {index["name"] for index in look.get_indexes(table.name, schema=schema)}
        for index in table.indexes:
            if index.name not in indexes:
                index.create(connection, checkfirst=False)
