"""What ended long ago is forgotten, however much of it there is."""

import sqlite3
from datetime import timedelta

import pytest

from cronsensus.model.job import JobSpec
from cronsensus.stores.sql import pruning_jobs
from cronsensus.stores.sql.pruning import BATCH_SIZE, SESSIONS_KEPT
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.values import REMEMBERED
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.timing.clock import ManualClock

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
    multiply(tmp_path / "jobs.db", "sessions", ("number", "id"), 2 * BATCH_SIZE + 7)
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
    multiply(tmp_path / "jobs.db", "trail", ("id",), BATCH_SIZE + 7)
    clock.advance(REMEMBERED - LEASE)
    store.prune()
    assert count(tmp_path / "jobs.db", "trail") == BATCH_SIZE + 8
    clock.advance(2 * LEASE)
    store.open_session(a_session("s2"), lease=LEASE)
    store.drain("s2", by="ann", why="new")
    store.prune()
    assert [entry.why for entry in store.trail()] == ["new"]
    store.close()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path, clock):
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    store.migrate()
    yield store
    store.close()


def a_job(name, *args):
    return JobSpec(name=name, function="f", source="runtime", args=args)


def test_one_prune_forgets_all_jobs_that_were_retired_a_year_ago(store, clock, tmp_path, monkeypatch):
    monkeypatch.setattr(pruning_jobs, "BATCH_SIZE", 10)
    names = [f"reminder {number}" for number in range(25)]
    store.define_jobs([a_job(name) for name in names], release="r1")
    for name in names:
        store.retire(name, by="ann", why="")
    clock.advance(REMEMBERED + LEASE)
    store.prune()
    assert [count(tmp_path / "jobs.db", table) for table in ("jobs", "eras", "pauses")] == [0, 0, 0]


def test_a_job_that_each_release_changes_keeps_as_many_eras_as_fit_into_its_keep(store, clock, tmp_path):
    for release in range(100):
        store.define_jobs([a_job("queue", release)], release=f"r{release}")
        store.pause("queue", by="ann", why="")
        clock.advance(timedelta(days=1))
        store.resume("queue", by="ann", why="")
        store.prune()
    assert count(tmp_path / "jobs.db", "eras") <= 32
    assert count(tmp_path / "jobs.db", "pauses") <= 31


def test_releases_are_kept_for_a_year_and_the_first_for_ever(store, clock, tmp_path):
    for release in range(100):
        store.define_jobs([], release=f"r{release}")
        clock.advance(timedelta(days=30))
        store.prune()
    assert count(tmp_path / "jobs.db", "releases") <= 15


def test_locks_without_a_session_that_ran_out_leave_no_rows(store, tmp_path):
    for number in range(3):
        store.lock(f"order {number}", holder="h", ttl=LEASE)
    store.lock("held", holder="h", ttl=timedelta(days=1))
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("UPDATE cronsensus_locks SET lease_until = lease_until - 61000000 WHERE name <> 'held'")
    store.prune()
    assert count(tmp_path / "jobs.db", "locks") == 1
