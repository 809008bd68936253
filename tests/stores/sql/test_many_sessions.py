"""A look reads the sessions that take turns and those that hold runs; guests, however many, cost it nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.mysql.mysql_driver import run_text
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import take, win_named
from cronsensus.timing.clock import ManualClock
from tests.servers.fixtures import mysql_connection, with_query
from tests.servers.postgres import PostgresServer
from tests.stores.sql.test_mysql_plans import Watcher as MysqlWatcher
from tests.stores.sql.test_postgres_plans import Reader
from tests.stores.sql.test_query_plans import Watcher

GUESTS = 3000
LEASE = timedelta(days=100)
COPIED = (
    "namespace, node, host, pid, pid_started, `release`, version, concurrency, functions, started_at, renewed_at,"
    " lease_until, epoch, draining"
)


def settle(store: SqlStore) -> None:
    """Open two nodes, a guest with a run and one without."""
    store.define_jobs([JobSpec(name="queue", function="f")], release="r1")
    for name in ("node", "other"):
        store.open_session(a_session(name), lease=LEASE)
    for name in ("busy", "idle"):
        store.open_session(a_session(name, is_node=False), lease=LEASE)
    assert win_named(store, "busy", "queue", key="once", lease=LEASE) is not None
    store.enqueue([Item(job="queue")])
    assert len(take(store, "node", 1, ["f"], lease=LEASE)) == 1


def more_guests(quote: str) -> str:
    """Return a statement that makes many guests like the one that is idle; ``many`` has the numbers."""
    columns = COPIED.replace("`", quote)
    return (
        f"INSERT INTO cronsensus_sessions (id, {columns}) SELECT {{id}}, {columns}"
        " FROM cronsensus_sessions, {many} WHERE id = 'idle'"
    )


def seen(store: SqlStore) -> None:
    """Look, and see who is there."""
    view = store.look()
    assert view.sessions == ("node", "other")
    assert [holder.id for holder in view.holders] == ["node", "busy"]


@pytest.mark.parametrize("analyzed", [False, True])
def test_the_cost_of_a_look_does_not_grow_with_the_guests_on_sqlite(analyzed, open_sqlite, place, monkeypatch):
    store: SqliteStore = open_sqlite(clock=ManualClock(START))
    settle(store)
    with closing(sqlite3.connect(place / "jobs.db")) as connection, connection:
        numbers = (
            f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {GUESTS}) SELECT i FROM n)"
        )
        connection.execute(more_guests('"').format(id="'x' || i", many=numbers))
        if analyzed:
            connection.execute("ANALYZE")
    store._connections.forget_idle()
    watcher = Watcher(store, monkeypatch)
    seen(store)
    assert watcher.steps(lambda: seen(store)) <= 2


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=False, settings={"autovacuum": "off"}) as made:
        yield made


@pytest.mark.parametrize("situation", ["planned while empty", "no statistics", "statistics", "statistics of one node"])
def test_the_cost_of_a_look_does_not_grow_with_the_guests_on_postgres(situation, server):
    schema = "guests_" + situation.replace(" ", "_")
    store = PostgresStore(with_query(server.url, schema=schema, timeout="60s"), clock=ManualClock(START))
    store.migrate()
    settle(store)
    if situation == "planned while empty":
        for _ in range(3):  # a statement is prepared when it comes for the second time
            seen(store)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}")
        if situation == "statistics of one node":
            connection.execute("ANALYZE")
        many = f"generate_series(1, {GUESTS}) AS i"
        connection.execute(more_guests('"').format(id="'x' || i", many=many))
        if situation == "statistics":
            connection.execute("ANALYZE")
    reader = Reader(store, server.url)
    reads = [reader.reads(lambda: seen(store)) for _ in range(4)]
    reader.close()
    assert 0 < max(reads) <= 100


def test_the_cost_of_a_look_does_not_grow_with_the_guests_on_mysql(mysql_url, monkeypatch):
    store = MysqlStore(mysql_url, clock=ManualClock(START))
    store.migrate()
    settle(store)
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    numbers = " CROSS JOIN ".join(f"({digits}) AS {name}" for name in "abc")
    many = f"(SELECT a.d + 10 * b.d + 100 * c.d AS i FROM {numbers}) AS many"
    with mysql_connection(mysql_url) as connection:
        cursor = connection.cursor()
        for part in range(GUESTS // 1000):
            cursor.execute(more_guests("`").format(id=f"CONCAT('x{part}-', i)", many=many))
    watcher = MysqlWatcher(monkeypatch)
    seen(store)
    reads = watcher.reads(lambda: seen(store))
    with mysql_connection(mysql_url) as connection:
        run_text(connection, "ANALYZE TABLE cronsensus_sessions")
    again = watcher.reads(lambda: seen(store))
    store.close()
    assert 0 < max(reads, again) <= 150
