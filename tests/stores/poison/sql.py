"""Every column of every table of a SQL store, and what somebody may write into it by hand."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Connection, Double, Integer, String, Table, Text, select, text
from sqlalchemy.exc import DBAPIError

from cronsensus.stores.sql.schema import metadata

WHOLE = {"cronsensus_schema", "cronsensus_counters"}
"""Tables that are about the store as a whole: there is no row in them that concerns one thing alone."""

_JOBS = "namespace = :space AND name IN ('bad', 'worse')"
_OF_JOBS = f"job_id IN (SELECT id FROM cronsensus_jobs WHERE {_JOBS})"
_OF_OCCURRENCES = f"occurrence_id IN (SELECT id FROM cronsensus_occurrences WHERE {_OF_JOBS})"
DOOMED = {
    "cronsensus_jobs": _JOBS,
    "cronsensus_eras": _OF_JOBS,
    "cronsensus_pauses": _OF_JOBS,
    "cronsensus_verdicts": _OF_JOBS,
    "cronsensus_occurrences": _OF_JOBS,
    "cronsensus_runs": _OF_OCCURRENCES,
    "cronsensus_logs": _OF_OCCURRENCES,
    "cronsensus_sessions": "namespace = :space AND id IN ('holder', 'gone')",
    "cronsensus_locks": "namespace = :space AND name LIKE 'doomed%'",
    "cronsensus_trail": "namespace = :space AND target = 'bad'",
    "cronsensus_releases": "namespace = :space AND \"release\" = 'r0'",
}

_EXTREMES = (0, -1, 1, 2**31 - 1, -(2**31), 2**53 + 1, 253_402_300_800_000_000, 2**63 - 1, -(2**63))
_TEXTS = (
    "",
    "{",
    "[]",
    "{}",
    "null",
    "0",
    "[1,2,3,4]",
    '{"trigger":{"cron":"* * * * *","tz":"Mars/Olympus"}}',
    '{"type":"full moon"}',
    "no such word",
    "\N{BOMB}" * 50,
    '"\\ud800"',
)
_STRANGE_TO_SQLITE: tuple[Any, ...] = (b"\xff\x00", "text", 1.5, float("inf"), "a\0b", 10**17)
HALF = "CAST(x'eda080' AS TEXT)"
"""Half a character, as SQLite alone lets it in."""


class Poison(NamedTuple):
    """What to write where; ``None`` is NULL."""

    table: str
    column: str
    value: Any

    def __str__(self) -> str:
        return f"{self.table.removeprefix('cronsensus_')}.{self.column}={self.value!r:.40}"


def poisons(*, sqlite: bool) -> Iterator[Poison]:
    """Yield each column with each value that a database may let in."""
    for table in metadata.tables.values():
        if table.name in WHOLE:
            continue
        assert table.name in DOOMED, f"say in {__name__} which rows of the new table {table.name} are to be poisoned"
        for column in table.columns:
            values: list[Any] = [None]
            if isinstance(column.type, (BigInteger, Integer)):
                values += _EXTREMES
            elif isinstance(column.type, Double):
                values += [0.0, -1e308, float("inf"), float("nan")]
            else:
                assert isinstance(column.type, (String, Text)), column.type
                values += _TEXTS
            if sqlite:
                values += [*_STRANGE_TO_SQLITE, HALF]
                values += [*_TEXTS[:2], 2**63 - 1]
            if sqlite and (table.name, column.name) == ("cronsensus_occurrences", "id"):
                # SQLite gives no number after the largest one, to no row of the table.
                values = [value for value in values if value != 2**63 - 1]
            yield from (Poison(table.name, column.name, value) for value in values)


def pour(connection: Connection, poison: Poison, namespace: str = "default") -> bool:
    """Write it into all doomed rows; where they may not be alike, into one. ``False``: the database refuses it."""
    quoted = connection.dialect.identifier_preparer.quote
    table = metadata.tables[poison.table]
    value = HALF if poison.value == HALF else ":value"
    update = f"UPDATE {quoted(table.name)} SET {quoted(poison.column)} = {value} WHERE "
    where = DOOMED[table.name].replace('"', "`" if connection.dialect.name == "mysql" else '"')
    return _write(connection, update + where, poison, namespace) or _write(
        connection, update + _one(connection, table, where, namespace), poison, namespace
    )


def _write(connection: Connection, update: str, poison: Poison, namespace: str) -> bool:
    given = {"value": poison.value, "space": namespace}
    named = {name: value for name, value in given.items() if f":{name}" in update}
    try:
        with connection.begin():
            return connection.execute(text(update), named).rowcount > 0
    except (DBAPIError, OverflowError, UnicodeEncodeError):
        return False


def _one(connection: Connection, table: Table, where: str, namespace: str) -> str:
    """Return a condition for one of the doomed rows."""
    key: list[Column[Any]] = list(table.primary_key.columns)
    with connection.begin():
        row = connection.execute(select(*key).where(text(where)).limit(1), {"space": namespace}).first()
    if row is None:
        return "1 = 0"
    quoted = connection.dialect.identifier_preparer.quote
    return " AND ".join(f"{quoted(part.name)} = {value!r}" for part, value in zip(key, row, strict=True))


IDENTITY = {
    "namespace",
    "id",
    "name",
    "job_id",
    "occurrence_id",
    "key",
    "place",
    "sequence",
    "number",
    "token",
    "target",
}
"""Columns that say which row it is."""


def together(values: list[Poison], turn: int) -> dict[str, list[Poison]]:
    """Return, by table, one poison for each column that says not which row it is; another one each ``turn``."""
    found: dict[str, list[Poison]] = {}
    columns: dict[tuple[str, str], list[Poison]] = {}
    for one in values:
        columns.setdefault((one.table, one.column), []).append(one)
    for place, ((table, column), some) in enumerate(columns.items()):
        if column not in IDENTITY:
            found.setdefault(table, []).append(some[(place * 7 + turn) % len(some)])
    return found
