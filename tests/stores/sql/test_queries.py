"""The statements of ``queries/*.sql``: each can be read, says its race, is used, and is written for each database."""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import cronsensus.stores.sql
from cronsensus.stores.sql import schema
from cronsensus.stores.sql.mysql.packets import Part, split_packets
from cronsensus.stores.sql.postgres.pipeline import compile_text
from cronsensus.stores.sql.queries import VALUE, Kind, Query, parse_blocks, queries_of, read_blocks, with_pieces
from cronsensus.stores.sql.sending import Moment

SOURCE = Path(cronsensus.stores.sql.__file__).parent
KINDS: tuple[Kind, ...] = ("postgres", "mysql", "sqlite")


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_has_one_statement_and_a_sentence_with_its_race(kind: Kind) -> None:
    for block in read_blocks(kind).values():
        assert re.fullmatch(r"[A-Z].*\. Race: .+\.", block.sentence), block.sentence
        assert block.text.startswith(("SELECT ", "WITH ", "INSERT INTO ", "UPDATE ", "DELETE ", "SET ")), block.name
        assert ";" not in block.text
        values = set(VALUE.findall(block.text)) | set(re.findall(r"given\.(\w+)", block.text))
        assert values >= {*block.types, *block.rows}


def test_a_value_of_many_rows_is_not_called_like_a_column() -> None:
    """MySQL joins the rows to the table, and would not know which of the two is set."""
    changes = [block for block in read_blocks("mysql").values() if block.rows and block.text.startswith("UPDATE")]
    for block in changes:
        [table] = [one for one in schema.metadata.sorted_tables if one.name in block.text.partition(" SET ")[0].split()]
        assert not block.rows.keys() & table.columns.keys(), block.name
    assert changes


def test_a_block_has_a_name_of_its_own_and_is_used() -> None:
    files = [path.read_text() for path in SOURCE.glob("queries/*.sql")]
    heads = [re.findall(r"^-- (?:name|part): .*$", file, re.MULTILINE) for file in files]
    assert all(len(head) == len(set(head)) for head in heads)
    names = [name for head in heads for name in head if name.startswith("-- name")]
    assert len(names) == len(set(names)) > 50
    assert {only for head in heads for one in head for only in re.findall(r"\[(\w+)\]$", one)} <= {*KINDS}
    code = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert [name for name in read_blocks("sqlite") if f'"{name}"' not in code] == []


def written(kind: Kind, **more: Any) -> list[Query]:
    """Return all statements for a database, in all of their forms."""
    return [form for name in read_blocks(kind) for form in forms(queries_of(kind, **more)[name])]


def forms(query: Query) -> list[Query]:
    """Return a statement without its pieces, with each of them, and with all."""
    pieces = re.findall(r"\{(also|or) (\w+): ", query.text)
    either = {name for word, name in pieces if word == "or"}
    every = {name for _, name in pieces}
    return [with_pieces(query, frozenset(some)) for some in ((), *({one, *either} for one in every - either), every)]


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_statement_for_a_database_has_no_place_left(kind: Kind, single: bool) -> None:
    for query in written(kind, schema="s", single=single):
        assert "{" not in query.text.replace("{rows}", "")
        assert ("{rows}" in query.text) == bool(query.row) == (kind == "mysql" and bool(query.rows) and not single)
        named = query.text.replace('"s".cronsensus_', "").replace("'cronsensus_schema'", "")  # a value, not a table
        assert kind != "postgres" or "cronsensus_" not in named


def test_sqlite_takes_each_statement() -> None:
    engine = create_engine("sqlite://")
    schema.metadata.create_all(engine)
    with engine.connect() as connection:
        for query in written("sqlite"):
            text = re.sub(r"IN :\w+", "IN (1, 2)", query.text)
            names = dict.fromkeys(VALUE.findall(text))
            connection.exec_driver_sql(f"EXPLAIN {text}", names)
    engine.dispose()


def test_what_is_for_one_database_replaces_what_is_for_all() -> None:
    text = (
        "-- A file.\n-- part: p\nx\n\n-- part: p [mysql]\ny\n\n-- name: a [mysql]\n-- Say. Race: none.\nSELECT 1;\n"
        "-- name: a\n-- types: x bigint, y text\n-- Say more.\n-- Race: none.\nSELECT :x,\n  :y;\n"
        "-- name: b\n-- Say. Race: none.\nSELECT {part: p};\n"
    )
    found = {kind: {block.name: block for block in parse_blocks(text, kind)} for kind in KINDS}
    assert [(block["a"].sentence, block["a"].text, block["b"].text) for block in found.values()] == [
        ("Say more. Race: none.", "SELECT :x, :y", "SELECT x"),
        ("Say. Race: none.", "SELECT 1", "SELECT y"),
        ("Say more. Race: none.", "SELECT :x, :y", "SELECT x"),
    ]
    assert found["postgres"]["a"].types == {"x": "bigint", "y": "text"}


def test_piece_is_inserted_only_on_request() -> None:
    query = Query("q", "SELECT 1 {also x: WHERE x {also y: AND y}} {also z: AND ({or a: a} {or b: b} {or c: c})}", ())
    found = [with_pieces(query, frozenset(also.split())) for also in ("", "y", "x", "x y", "z b", "z a c")]
    assert [(one.name, one.text) for one in found] == [
        ("q", "SELECT 1"),
        ("q y", "SELECT 1"),
        ("q x", "SELECT 1 WHERE x"),
        ("q x y", "SELECT 1 WHERE x AND y"),
        ("q b z", "SELECT 1 AND (b )"),
        ("q a c z", "SELECT 1 AND (a OR c)"),
    ]


def test_a_part_stands_in_each_block_that_names_it() -> None:
    found = parse_blocks(
        "-- name: a\n-- Say. Race: none.\nSELECT 1 {part: p};\n"
        "-- name: b\n-- Say. Race: none.\nDELETE {part: p} AND y;\n"
        "-- part: p\n{part: q}\nWHERE x = :x\n\n-- part: q\nFROM t\n",
        "sqlite",
    )
    assert [block.text for block in found] == ["SELECT 1 FROM t WHERE x = :x", "DELETE FROM t WHERE x = :x AND y"]
    with pytest.raises(KeyError, match="none"):
        parse_blocks("-- name: a\n-- Say. Race: none.\nSELECT {part: none};\n", "sqlite")


def test_a_guarded_statement_fails_where_it_touches_another_number_of_rows() -> None:
    made = compile_text("UPDATE t SET a = :a WHERE b IN :b AND c NOT IN :c AND d = :a", guarded=True)
    assert made.order == ("a", "b", "c", "cronsensus_expected")
    assert made.text == (
        b"WITH touched AS (UPDATE t SET a = $1 WHERE b = ANY ($2) AND c <> ALL ($3) AND d = $1 RETURNING 1) "
        b"SELECT count(*), 1 / (count(*) = $4)::int FROM touched"
    )


def test_a_moment_is_the_servers_clock_and_what_is_added_to_it() -> None:
    made = compile_text("SELECT :a, :now", frozenset({"now"}))
    assert made.text.startswith(b"SELECT $1, (SELECT (extract(epoch FROM clock_timestamp()")
    assert made.text.endswith(b" + CAST($2 AS bigint))")
    assert Moment() + 5 == Moment(5)


def test_a_packet_is_cut_by_size_and_never_before_a_guard() -> None:
    parts = [Part("x" * 300_000), Part("y" * 300_000), Part("guard", guards=True), Part("COMMIT")]
    assert [[part.text[:1] for part in packet] for packet in split_packets(parts, together=True)] == [
        ["x"],
        ["y", "g", "C"],
    ]
    assert [len(packet) for packet in split_packets([Part("a"), Part("b")], together=False)] == [1, 1]
