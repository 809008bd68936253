"""A read whose connection is closed in the middle: it wrote nothing, so it is done again."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import psycopg
import pymysql
import pytest

from cronsensus.errors import StoreUnavailable
from cronsensus.stores import open_store
from cronsensus.stores.sql.postgres.postgres_driver import NoAnswer
from cronsensus.stores.sql.sql_store import SqlStore, reads
from cronsensus.stores.sql.transaction import Transaction


@pytest.fixture(params=["postgres", "mysql"])
def store(request: pytest.FixtureRequest) -> Iterator[SqlStore]:
    """Return a handle on an empty store."""
    store = open_store(request.getfixturevalue(f"{request.param}_url"))
    assert isinstance(store, SqlStore)
    store.migrate()
    yield store
    store.close()


def close(tx: Transaction) -> None:
    """Close the connection under a transaction, as a server does to what stands still."""
    driver = tx.connection.driver
    where = driver.fileno() if isinstance(driver, psycopg.Connection) else driver._sock.fileno()
    with socket.socket(fileno=os.dup(where)) as same:
        same.shutdown(socket.SHUT_RDWR)


def test_a_read_whose_connection_is_closed_is_done_again(store: SqlStore) -> None:
    seen: list[Transaction] = []

    @reads
    def look(tx: Transaction) -> object:
        seen.append(tx)
        if len(seen) == 1:
            close(tx)
        return tx.connection.execute_text("SELECT 7").fetchone()[0]

    assert look(store) == 7
    assert len(seen) == 2


def test_a_read_that_the_server_does_not_answer_is_not_done_again(store: SqlStore) -> None:
    """It has taken as long as a call may; a second time would take as long."""
    seen: list[Transaction] = []

    @reads
    def look(tx: Transaction) -> object:
        seen.append(tx)
        if store.capabilities.name == "postgresql":
            raise NoAnswer("no answer from the server")
        try:
            raise TimeoutError("timed out")
        except TimeoutError:
            raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query (timed out)")  # noqa: B904 - as PyMySQL does

    with pytest.raises(StoreUnavailable):
        look(store)
    assert len(seen) == 1
