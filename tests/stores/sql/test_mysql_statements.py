"""What is sent to MySQL and MariaDB, as text.

It needs no server. So it also says what MySQL would get, which runs nowhere here.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pymysql
import pytest
from sqlalchemy import Delete, Insert, Select, Update, bindparam, delete, insert, select, update
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.base import Executable

from cronsensus.stores import sql
from cronsensus.stores.sql.mysql import statements
from cronsensus.stores.sql.mysql.driver import BoundedConnection, settings
from cronsensus.stores.sql.mysql.statements import ManyRows, Statements, literal
from cronsensus.stores.sql.mysql.url import read_url
from cronsensus.stores.sql.queries import blocks, queries_of
from cronsensus.stores.sql.schema import jobs, metadata, occurrences

BOTH = pytest.mark.parametrize("is_mariadb", [True, False], ids=["mariadb", "mysql"])
NOT_EVERYWHERE = re.compile(
    r"RETURNING|ON CONFLICT|FULL OUTER|EXCEPT|INTERSECT|LATERAL|VALUES ROW|ILIKE|::", re.IGNORECASE
)


@pytest.fixture
def driver() -> BoundedConnection:
    made = BoundedConnection(defer_connect=True)
    made.server_status = 0  # type: ignore[attr-defined]
    return made


def constants() -> Iterator[tuple[str, Executable]]:
    """Every statement that the modules of verbs keep."""
    for found in iter_modules(sql.__path__):
        if found.ispkg:
            continue
        module = import_module(f"{sql.__name__}.{found.name}")
        for name, value in vars(module).items():
            several: Iterable[Any]
            several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
            for number, one in enumerate(several):
                if isinstance(one, (Select, Insert, Update, Delete)):
                    yield f"{found.name}.{name}[{number}]", one


def compiled(is_mariadb: bool) -> dict[str, str]:
    mine = Statements(is_mariadb=is_mariadb)
    return {
        name: mine.single(one, dict.fromkeys(one.table.c.keys() if isinstance(one, Insert) else ())).text
        for name, one in constants()
    }


@BOTH
def test_no_statement_needs_what_one_of_the_two_servers_lacks(is_mariadb):
    texts = compiled(is_mariadb) | {name: queries_of("mysql")[name].text for name in blocks("mysql")}
    assert len(texts) > 100, "they were not found"
    assert {name: text for name, text in texts.items() if NOT_EVERYWHERE.search(text)} == {}


@BOTH
def test_no_statement_locks_a_join(is_mariadb):
    """MariaDB cannot be told which table of a join to lock, and locks all."""
    texts = [*compiled(is_mariadb).values(), *(queries_of("mysql")[name].text for name in blocks("mysql"))]
    locking = [outermost for outermost in map(_outermost, texts) if "FOR UPDATE" in outermost]
    assert len(locking) > 10
    for text in locking:
        assert len(set(re.findall(r"(?:FROM|JOIN) (cronsensus_\w+)", text))) == 1, text


def _outermost(text: str) -> str:
    """Return a query without what stands in parentheses."""
    while "(" in text:
        shorter = re.sub(r"\([^()]*\)", "", text)
        if shorter == text:
            break
        text = shorter
    return text


@BOTH
def test_tables_are_made_of_what_both_servers_know(is_mariadb):
    dialect = MySQLDialect_pymysql(is_mariadb=is_mariadb)
    collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
    checks: list[str] = []
    for table in metadata.sorted_tables:
        text = str(CreateTable(table).compile(dialect=dialect))
        assert "ENGINE=InnoDB" in text
        assert {collation, "utf8mb4_bin"} >= set(re.findall(r"COLLATE (\w+)", text))
        words = [line for line in text.splitlines() if "VARCHAR" in line]
        assert all(collation in line for line in words), words
        checks += re.findall(r"CONSTRAINT (\w+) CHECK", text)
        for index in table.indexes:
            if not index.dialect_options["sqlite"]["where"] is not None:
                assert " WHERE " not in str(CreateIndex(index).compile(dialect=dialect))
    assert len(checks) == len(set(checks)), "on MySQL the names of checks are those of the whole database"


@BOTH
def test_no_index_is_longer_than_innodb_allows(is_mariadb):
    longest = 0
    for table in metadata.sorted_tables:
        for index in (*table.indexes, table.primary_key, *table.constraints):
            columns = getattr(index, "columns", ())
            length = sum(
                4 * column.type.length + 2 if getattr(column.type, "length", None) else 9 for column in columns
            )
            longest = max(longest, length)
    assert 2000 < longest <= 3072, is_mariadb


# --- what servers are told at the beginning ---------------------------------------------------------------------------


@BOTH
def test_a_session_is_told_how_long_it_may_wait(is_mariadb):
    told = ", ".join(settings(read_url("mysql://h/d?timeout=7s"), 7.0, is_mariadb=is_mariadb))
    assert "READ COMMITTED" in told
    assert "time_zone = '+00:00'" in told
    assert "innodb_lock_wait_timeout = 4" in told
    assert ("max_statement_time = 7," in told) == is_mariadb
    assert ("idle_transaction_timeout = 2" in told) == is_mariadb
    assert ("max_execution_time = 7000" in told) == (not is_mariadb)
    assert ("wait_timeout = 21" in told.replace("lock_wait_timeout", "")) == (not is_mariadb)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (7, "7"),
        (-(2**63), "-9223372036854775808"),
        (1.5, "1.5e0"),
        ("it's", "'it\\'s'"),
        ("back\\slash", "'back\\\\slash'"),
        ("100%s %(x)s", "'100%s %(x)s'"),
        ("🧨\0\n", "'🧨\\0\\n'"),
        ([1, 2], "(1,2)"),
        (["a'", "b"], "('a\\'','b')"),
        ([], "(SELECT 1 FROM DUAL WHERE FALSE)"),
    ],
)
def test_values_become_literals(driver, value, text):
    assert literal(driver, value) == text


def test_where_a_backslash_is_a_letter_it_stays_one(driver):
    driver.server_status = pymysql.constants.SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES
    assert literal(driver, "it's a \\") == "'it''s a \\'"


def test_a_list_may_have_any_length(driver):
    query = select(jobs.c.id).where(
        jobs.c.id.not_in(bindparam("ids", expanding=True)), jobs.c.name == bindparam("name")
    )
    mine = Statements(is_mariadb=True)
    template = mine.single(query, {"ids": [], "name": ""})
    assert template is mine.single(query, {"ids": [1, 2, 3], "name": "x"})
    assert "NOT IN (1,2,3)" in template.filled(driver, {"ids": [1, 2, 3], "name": "100 %"})
    assert "'100 %'" in template.filled(driver, {"ids": [1], "name": "100 %"})


# --- many rows --------------------------------------------------------------------------------------------------------


def texts(form: ManyRows, driver: BoundedConnection, rows: list[Any]) -> list[tuple[str, int]]:
    return list(form.texts(driver, rows))


def test_an_insert_takes_many_rows(driver):
    form = Statements(is_mariadb=True).many(insert(jobs), ("id", "name"))
    [(text, count)] = texts(form, driver, [(1, "%s"), (2, "%(name)s")])
    assert count == 2
    assert text.endswith("(id, name) VALUES (1, '%s'), (2, '%(name)s')")


def test_an_update_is_joined_to_its_rows_and_begins_with_them(driver):
    change = (
        update(jobs).where(jobs.c.id == bindparam("job")).values(revision=jobs.c.revision + 1, digest=bindparam("of"))
    )
    form = Statements(is_mariadb=False).many(change, ("job", "of"))
    [(text, _)] = texts(form, driver, [(1, "a"), (2, None)])
    assert text == (
        "UPDATE (SELECT 1 AS `job`, 'a' AS `of` UNION ALL SELECT 2 AS `job`, NULL AS `of`) AS given "
        "STRAIGHT_JOIN cronsensus_jobs FORCE INDEX (PRIMARY) SET cronsensus_jobs.digest=given.`of`, "
        "cronsensus_jobs.revision=(cronsensus_jobs.revision + 1) WHERE cronsensus_jobs.id = given.job"
    )


def test_what_has_no_form_for_many_rows_is_refused():
    mine = Statements(is_mariadb=True)
    with pytest.raises(TypeError, match="there is no form"):
        mine.many(delete(jobs).where(jobs.c.id == bindparam("job")), ("job",))
    with pytest.raises(TypeError, match="there is no form"):
        mine.many(update(jobs).where(jobs.c.name == bindparam("job")).values(revision=1), ("job",))


def test_rows_are_cut_into_statements_that_a_server_takes(driver, monkeypatch):
    form = Statements(is_mariadb=True).many(insert(jobs), ("id", "name"))
    rows = [(number, "x" * 30) for number in range(10)]
    monkeypatch.setattr(statements, "MOST_ROWS", 4)
    assert [count for _, count in texts(form, driver, rows)] == [4, 4, 2]
    monkeypatch.setattr(statements, "MOST_CHARACTERS", 100)
    cut = texts(form, driver, rows)
    assert [count for _, count in cut] == [2, 2, 2, 2, 2]
    assert all(len(text) < 200 for text, _ in cut)
    assert [count for _, count in texts(form, driver, [(1, "x" * 500), (2, "y" * 500)])] == [1, 1]


def test_what_is_locked_by_its_id_is_found_by_its_id():
    mine = Statements(is_mariadb=True)
    found = select(occurrences.c.id).where(occurrences.c.id.in_(bindparam("ids", expanding=True)))
    assert "FORCE INDEX (PRIMARY)" in mine.single(found.with_for_update(), {"ids": 1}).text
    assert "FORCE INDEX" not in mine.single(found, {"ids": 1}).text
