"""What ended long ago is forgotten, however much of it there is."""

import sqlite3
from datetime import timedelta

from cronsensus.clock import ManualClock
from cronsensus.stores.sql.pruning import AT_ONCE, SESSIONS_KEPT, TRAIL_KEPT
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.scene import a_session

LEASE = timedelta(minutes=1)


def count(path, table):
    with sqlite3.connect(path) as connection:
        return connection.execute(f"SELECT count(*) FROM cronsensus_{table}").fetchone()[0]


def multiply(path, table, keys, times):
    """Copy the one row of a table so many times, under other keys."""
    with sqlite3.connect(path) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info(cronsensus_{table})") if row[1] not in keys]
        columns = ", ".join(f'"{name}"' for name in names)
        for number in range(times):
            key = f"'x{number}'" if table == "sessions" else str(100 + number)
            connection.execute(
                f"INSERT INTO cronsensus_{table} ({keys[-1]}, {columns}) "
                f"SELECT {key}, {columns} FROM cronsensus_{table} LIMIT 1"
            )


def test_one_prune_forgets_all_sessions_that_ended_a_day_ago(tmp_path):
    clock = ManualClock()
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    store.migrate()
    store.open_session(a_session("s1"), lease=LEASE)
    store.close_session("s1")
    multiply(tmp_path / "jobs.db", "sessions", ("number", "id"), 2 * AT_ONCE + 7)
    clock.advance(SESSIONS_KEPT + LEASE)
    store.open_session(a_session("living"), lease=LEASE)
    assert store.prune() == 0
    assert count(tmp_path / "jobs.db", "sessions") == 1
    store.close()


def test_the_trail_is_kept_for_a_year(tmp_path):
    clock = ManualClock()
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    store.migrate()
    store.open_session(a_session("s1"), lease=LEASE)
    store.drain("s1", by="ann", why="old")
    multiply(tmp_path / "jobs.db", "trail", ("id",), AT_ONCE + 7)
    clock.advance(TRAIL_KEPT - LEASE)
    store.prune()
    assert count(tmp_path / "jobs.db", "trail") == AT_ONCE + 8
    clock.advance(2 * LEASE)
    store.open_session(a_session("s2"), lease=LEASE)
    store.drain("s2", by="ann", why="new")
    store.prune()
    assert [entry.why for entry in store.trail()] == ["new"]
    store.close()
