"""What is sent to MySQL and MariaDB, as text.

It needs no server. So it also says what MySQL would get, which runs nowhere here.
"""

import re

import pymysql
import pytest
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.schema import CreateIndex, CreateTable

from cronsensus.stores.sql.mysql.literals import literal_of
from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection, session_settings
from cronsensus.stores.sql.mysql.mysql_url import read_url
from cronsensus.stores.sql.queries import queries_of, read_blocks
from cronsensus.stores.sql.schema import metadata

BOTH = pytest.mark.parametrize("is_mariadb", [True, False], ids=["mariadb", "mysql"])
NOT_EVERYWHERE = re.compile(
    r"RETURNING|ON CONFLICT|FULL OUTER|EXCEPT|INTERSECT|LATERAL|VALUES ROW|ILIKE|::", re.IGNORECASE
)


@pytest.fixture
def driver() -> BoundedConnection:
    made = BoundedConnection(defer_connect=True)
    made.server_status = 0  # type: ignore[attr-defined]
    return made


def texts() -> dict[str, str]:
    """Every statement by name."""
    return {name: queries_of("mysql")[name].text for name in read_blocks("mysql")}


def test_no_statement_needs_what_one_of_the_two_servers_lacks():
    assert {name: text for name, text in texts().items() if NOT_EVERYWHERE.search(text)} == {}


def test_no_statement_locks_a_join():
    """MariaDB cannot be told which table of a join to lock, and locks all."""
    locking = [outermost for outermost in map(_outermost, texts().values()) if "FOR UPDATE" in outermost]
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
    told = ", ".join(session_settings(read_url("mysql://h/d?timeout=7s"), 7.0, is_mariadb=is_mariadb))
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
    assert literal_of(driver, value) == text


def test_where_a_backslash_is_a_letter_it_stays_one(driver):
    driver.server_status = pymysql.constants.SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES
    assert literal_of(driver, "it's a \\") == "'it''s a \\'"
