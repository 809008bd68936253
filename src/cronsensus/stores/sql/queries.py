"""Named statements from the files ``queries/*.sql``, translated for a database.

A file has blocks: a line ``-- name: close_runs``, a sentence with its race, and a statement. A line ``-- types: a
bigint`` has the types that PostgreSQL cannot infer. ``-- rows: a bigint, b text``: the statement takes many rows at
once, as ``given.a`` and ``given.b``. A line ``-- part: turn`` begins a piece of SQL that blocks of the file include
with ``{part: turn}``. ``-- name: x [mysql]`` and ``-- part: x [mysql]`` replace ``x`` for a single database.

====================== =================================================================================================
``:name``              a value; ``IN :name`` takes a list of any length
``{values: …}``        what an INSERT takes from the rows
``{absent: columns}``  at the end of an INSERT: a row that exists with these columns stays as it is
``{rows_first}`` …     where an UPDATE joins the rows: before the table (MySQL), or after SET (``{rows_last}``)
``{for_update}`` …     a row lock; nothing where there is one writer. ``{for_no_key_update}`` lets references in
``{skip_locked}``      passing over locked rows
``{by_id}``            by the primary key; by another index MySQL would lock each row that it passes
``{by_name}``          the same for jobs, by their names
``{index: name}``      by this index of occurrences; others begin with the same columns
``{along: table_name}`` by an index of another table
``{listed}``           by the partial index of the condition before it (``_LISTED`` in ``schema``)
``{job: page.job_id}`` the job of that id as ``j``, looked up for each row, whatever the planner knows
``{last_token}``       the last token that this transaction took
``{sequence}``         where PostgreSQL takes tokens from
``{also key: …}``      only for callers that also ask for ``key``; ``{or key: …}`` the same, with OR between several
====================== =================================================================================================

A column whose name is a word of SQL stands in double quotes. ``'running' = coalesce(o.state, '')`` is ``o.state =
'running'`` in a form for which no planner uses an index of states: the row is found by its key.

MySQL updates the rows and the table together, so a row's value may not have the name of a column that is set:
``reason = given.new_reason``.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, Literal

Kind = Literal["postgres", "mysql", "sqlite"]

LIST = re.compile(r"\bIN :([a-z_]+)")
NO_LIST = re.compile(r"\bNOT IN :([a-z_]+)")
VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")
_HEAD = re.compile(r"^-- (name|part): (\w+)(?: \[(\w+)\])?\n", re.MULTILINE)
_PUT = re.compile(r"\{part: (\w+)\}")
_PLACE = re.compile(r"\{(\w+)(?:: ([^}]*))?\}")
_GIVEN = re.compile(r"\bgiven\.([a-z_]+)")
PIECE = re.compile(r"\{(also|or) (\w+): ([^{}]*)\}")
_FOLDER = files("cronsensus.stores.sql").joinpath("queries")
ROWS = "{rows}"
"""The placeholder in MySQL's texts that is replaced by the rows."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a file, with the parts for a database included.

    Attributes:
        types: of values, for PostgreSQL.
        rows: names and types of the values of a row; empty: the statement is not for rows.
    """

    name: str
    sentence: str
    types: Mapping[str, str]
    rows: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A statement for a database, still with ``:name`` in it.

    Attributes:
        rows: names of the values of a row.
        row: on MySQL, the text of a row for ``{rows}``; elsewhere empty.
    """

    name: str
    text: str
    rows: tuple[str, ...]
    row: str = ""


@cache
def read_blocks(kind: Kind) -> Mapping[str, Block]:
    """Return the blocks of all files for a database, by name."""
    texts = sorted((file.name, file.read_text(encoding="utf-8")) for file in _FOLDER.iterdir())
    return {block.name: block for name, text in texts if name.endswith(".sql") for block in parse_blocks(text, kind)}


def parse_blocks(text: str, kind: Kind) -> list[Block]:
    """Return the blocks of a file for a database."""
    _, *heads_and_bodies = _HEAD.split(text)
    bodies: dict[str, dict[str, str]] = {"part": {}, "name": {}}
    for database in (None, kind):  # a block for this database replaces the general one
        for what, name, only, body in zip(
            heads_and_bodies[::4], heads_and_bodies[1::4], heads_and_bodies[2::4], heads_and_bodies[3::4], strict=True
        ):
            if only == database:
                bodies[what][name] = body

    def put(body: str) -> str:
        return _PUT.sub(lambda match: put(bodies["part"][match[1]].strip()), body)

    return [_make_block(name, put(body)) for name, body in bodies["name"].items()]


def _make_block(name: str, body: str) -> Block:
    comments: list[str] = []
    lines: list[str] = []
    typed: dict[str, dict[str, str]] = {"types": {}, "rows": {}}
    for line in filter(None, map(str.strip, body.splitlines())):
        word, _, rest = line.removeprefix("-- ").partition(": ")
        if line.startswith("-- ") and word in typed:
            typed[word] = dict(pair.split() for pair in rest.split(","))
        elif line.startswith("--"):
            comments.append(line.removeprefix("--").strip())
        else:
            lines.append(line)
    return Block(name, " ".join(comments), typed["types"], typed["rows"], " ".join(lines).removesuffix(";"))


class Queries(dict[str, Query]):
    """Statements by name for a database, each of them translated at its first use."""

    def __init__(self, kind: Kind, schema: str, *, single: bool) -> None:
        """Prepare; nothing is translated yet."""
        super().__init__()
        self._kind: Kind = kind
        self._schema = schema
        self._single = single or kind == "sqlite"

    def __missing__(self, name: str) -> Query:
        """Translate a statement."""
        query = self[name] = _write_block(read_blocks(self._kind)[name], self._kind, self._schema, single=self._single)
        return query


@cache
def queries_of(kind: Kind, *, schema: str = "", single: bool = False) -> Queries:
    """Return the statements for a database.

    Args:
        kind: which database.
        schema: PostgreSQL's, as a prefix of the tables.
        single: translate statements for many rows for a single row, with its values as parameters; always on SQLite.
    """
    return Queries(kind, schema, single=single)


@cache
def with_pieces(query: Query, also: frozenset[str]) -> Query:
    """Return a statement with only the requested pieces ``{also …}`` and ``{or …}``."""

    def put(match: re.Match[str]) -> str:
        return ("OR " if match[1] == "or" else "") + match[3] if match[2] in also else ""

    text = query.text
    while PIECE.search(text):  # the innermost first
        text = PIECE.sub(put, text)
    text = re.sub(r"\s+", " ", re.sub(r"\(\s*OR ", "(", text)).strip()
    return replace(query, name=" ".join([query.name, *sorted(also)]), text=text)


def row_maker(names: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes a row with named columns from its values; faster than ``_make``."""
    row: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024 - the database names them
    return partial(tuple.__new__, row)


def _write_block(block: Block, kind: Kind, schema: str, *, single: bool) -> Query:
    text, row = block.text, ""
    if single:
        places = _ONE_ROW
    else:
        places = _MANY[kind]
        if kind == "mysql" and block.rows:
            values = re.search(r"\{values: ([^}]*)\}", text)
            columns = ", ".join(f":{name} AS `{name}`" for name in block.rows)
            row = _GIVEN.sub(r":\1", f"({values[1]})") if values else f"SELECT {columns}"
    names = ", ".join(block.rows)
    arrays = ", ".join(f"CAST(:{name} AS {type_}[])" for name, type_ in block.rows.items())
    texts = {**_EVERYWHERE[kind], **places}
    sequence = f'"{schema}".cronsensus_tokens'.replace("'", "''")

    def put(match: re.Match[str]) -> str:
        return texts[match[1]].format(more=match[2] or "", names=names, arrays=arrays, rows=ROWS, sequence=sequence)

    text = _PLACE.sub(put, text)
    if single:
        text = _GIVEN.sub(r":\1", text)
    if kind == "postgres":
        text = VALUE.sub(lambda at: f"CAST({at[0]} AS {block.types[at[1]]})" if at[1] in block.types else at[0], text)
        text = re.sub(r"(?<![\w.'])cronsensus_(?=\w)", f'"{schema}".cronsensus_', text)
    if kind == "mysql":
        text, row = text.replace('"', "`"), row.replace('"', "`")
    return Query(block.name, re.sub(r"\s+", " ", text).strip(), tuple(block.rows), row)


_SEQUENCE = "'{sequence}'::regclass"
_EVERYWHERE: Mapping[Kind, Mapping[str, str]] = {
    "postgres": {
        "for_update": "FOR UPDATE", "for_no_key_update": "FOR NO KEY UPDATE", "skip_locked": "SKIP LOCKED",
        "by_id": "", "by_name": "", "index": "", "along": "", "listed": "AND o.id > 0",
        "absent": "ON CONFLICT ({more}) DO NOTHING",
        "job": "LATERAL (SELECT one.* FROM cronsensus_jobs AS one WHERE one.id = {more} LIMIT 1) AS j ON TRUE",
        "sequence": _SEQUENCE, "last_token": f"(SELECT currval({_SEQUENCE}))",  # in a subquery: once for all rows
    },
    "mysql": {
        "for_update": "FOR UPDATE", "for_no_key_update": "FOR UPDATE", "skip_locked": "SKIP LOCKED",
        "by_id": "FORCE INDEX (PRIMARY)", "by_name": "FORCE INDEX (cronsensus_jobs_by_name)",
        "index": "FORCE INDEX (cronsensus_occurrences_{more})", "along": "FORCE INDEX (cronsensus_{more})",
        "listed": "",
        "job": "cronsensus_jobs AS j ON j.id = {more}", "last_token": "LAST_INSERT_ID()",
        # Not IGNORE, which also truncates long values.
        "absent": "ON DUPLICATE KEY UPDATE namespace = namespace",
    },
    "sqlite": {
        "for_update": "", "for_no_key_update": "", "skip_locked": "", "by_id": "", "by_name": "", "index": "",
        "along": "", "listed": "", "job": "cronsensus_jobs AS j ON j.id = {more}",
        "absent": "ON CONFLICT ({more}) DO NOTHING",
        "last_token": "(SELECT c.value FROM cronsensus_counters AS c WHERE c.name = 'token')",
    },
}  # fmt: skip
_ONE_ROW: Mapping[str, str] = {"rows_first": "", "rows_last": "", "values": "VALUES ({more})"}
_MANY: Mapping[Kind, Mapping[str, str]] = {
    "postgres": {
        "rows_first": "",
        "rows_last": "FROM unnest({arrays}) AS given ({names})",
        "values": "SELECT {more} FROM unnest({arrays}) AS given ({names})",
    },
    "mysql": {
        "rows_first": "({rows}) AS given STRAIGHT_JOIN",
        "rows_last": "",
        "values": "VALUES {rows}",
    },
}
