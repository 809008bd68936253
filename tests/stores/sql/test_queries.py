"""The statements of ``queries/*.sql``: each can be read, says its race, is used, and is written for each database."""

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import cronsensus.stores.sql
from cronsensus.stores.sql import schema
from cronsensus.stores.sql.mysql.packets import Part, packets
from cronsensus.stores.sql.postgres.pipeline import compiled
from cronsensus.stores.sql.queries import VALUE, Block, Kind, blocks, parse, queries_of
from cronsensus.stores.sql.sending import Moment

SOURCE = Path(cronsensus.stores.sql.__file__).parent
KINDS: tuple[Kind, ...] = ("postgres", "mysql", "sqlite")


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.name)
def test_a_block_has_one_statement_and_a_sentence_with_its_race(block: Block) -> None:
    assert block.only in {None, *KINDS}
    assert re.fullmatch(r"[A-Z].*\. Race: .+\.", block.sentence), block.sentence
    assert block.text.startswith(("SELECT ", "WITH ", "INSERT INTO ", "UPDATE ", "DELETE FROM "))
    assert ";" not in block.text
    values = set(VALUE.findall(block.text)) | set(re.findall(r"given\.(\w+)", block.text))
    assert values >= {*block.types, *block.rows}


def test_a_block_has_a_name_of_its_own_and_is_used() -> None:
    names = [(block.name, block.only) for block in blocks()]
    assert len(names) == len(set(names))
    code = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert [name for name, _ in names if f'"{name}"' not in code] == []


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_statement_for_a_database_has_no_place_left(kind: Kind, single: bool) -> None:
    for query in queries_of(kind, schema="s", single=single).values():
        assert "{" not in query.text.replace("{rows}", "")
        assert ("{rows}" in query.text) == bool(query.row) == (kind == "mysql" and bool(query.rows) and not single)
        assert kind != "postgres" or "cronsensus_" not in query.text.replace('"s".cronsensus_', "")


def test_sqlite_takes_each_statement() -> None:
    engine = create_engine("sqlite://")
    schema.metadata.create_all(engine)
    with engine.connect() as connection:
        for query in queries_of("sqlite").values():
            text = re.sub(r"IN :\w+", "IN (1, 2)", query.text)
            names = dict.fromkeys(VALUE.findall(text))
            connection.exec_driver_sql(f"EXPLAIN {text}", names)
    engine.dispose()


def test_a_block_for_one_database_replaces_the_other_one() -> None:
    found = parse(
        "-- A file.\n-- name: a [mysql]\n-- Say. Race: none.\nSELECT 1;\n"
        "-- name: a\n-- types: x bigint, y text\n-- Say more.\n-- Race: none.\nSELECT :x,\n  :y;\n"
    )
    assert [(block.name, block.only, block.sentence, block.text) for block in found] == [
        ("a", "mysql", "Say. Race: none.", "SELECT 1"),
        ("a", None, "Say more. Race: none.", "SELECT :x, :y"),
    ]
    assert found[1].types == {"x": "bigint", "y": "text"}


def test_a_part_stands_in_each_block_that_names_it() -> None:
    found = parse(
        "-- part: p\nFROM t\nWHERE x = :x\n\n"
        "-- name: a\n-- Say. Race: none.\nSELECT 1 {part: p};\n"
        "-- name: b\n-- Say. Race: none.\nDELETE {part: p} AND y;\n"
    )
    assert [block.text for block in found] == ["SELECT 1 FROM t WHERE x = :x", "DELETE FROM t WHERE x = :x AND y"]
    with pytest.raises(KeyError, match="none"):
        parse("-- name: a\n-- Say. Race: none.\nSELECT {part: none};\n")


def test_a_guarded_statement_fails_where_it_touches_another_number_of_rows() -> None:
    made = compiled("UPDATE t SET a = :a WHERE b IN :b AND c NOT IN :c AND d = :a", guarded=True)
    assert made.order == ("a", "b", "c", "cronsensus_expected")
    assert made.text == (
        b"WITH touched AS (UPDATE t SET a = $1 WHERE b = ANY ($2) AND c <> ALL ($3) AND d = $1 RETURNING 1) "
        b"SELECT count(*), 1 / (count(*) = $4)::int FROM touched"
    )


def test_a_moment_is_the_servers_clock_and_what_is_added_to_it() -> None:
    made = compiled("SELECT :a, :now", frozenset({"now"}))
    assert made.text.startswith(b"SELECT $1, (SELECT (extract(epoch FROM clock_timestamp()")
    assert made.text.endswith(b" + CAST($2 AS bigint))")
    assert Moment() + 5 == Moment(5)


def test_a_packet_is_cut_by_size_and_never_before_a_guard() -> None:
    parts = [Part("x" * 300_000), Part("y" * 300_000), Part("guard", guards=True), Part("COMMIT")]
    assert [[part.text[:1] for part in packet] for packet in packets(parts, together=True)] == [["x"], ["y", "g", "C"]]
    assert [len(packet) for packet in packets([Part("a"), Part("b")], together=False)] == [1, 1]
