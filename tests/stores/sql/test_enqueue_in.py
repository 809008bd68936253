"""Enqueuing in a transaction of a user's: what the conformance suite cannot know of drivers, copies and wake-ups."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from cronsensus import Scheduler
from cronsensus.errors import (
    InvalidOption,
    InvalidPayload,
    NotCommittedYet,
    PayloadMismatch,
    StoreBusy,
    StoreRefused,
    UnsupportedTransaction,
)
from cronsensus.model.states import State

SOON = "10s"
"""A node that polls, and is not woken, begins after minutes."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def scheduler_on(url: str) -> tuple[Scheduler, Any]:
    """Return a scheduler with one job that says what it was given; its jobs are in the store."""
    scheduler = Scheduler(url)

    @scheduler.job()
    def bill(customer: int, copies: int = 1) -> str:
        return f"{customer} x {copies}"

    scheduler.define()
    return scheduler, bill


def refuses(opened: AbstractContextManager[Any], bill: Any, why: str) -> None:
    """Look that a job cannot be enqueued on a connection."""
    with opened as connection, pytest.raises(UnsupportedTransaction, match=why):
        bill.enqueue_in(connection, 1)


@contextmanager
def dialled(postgres_url: str, **options: Any) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection of psycopg's to the database of a store."""
    with closing(psycopg.connect(plain(postgres_url), **options)) as connection:
        yield connection


def plain(postgres_url: str) -> str:
    """Return the URL without what is ours in it."""
    return make_url(postgres_url).difference_update_query(["schema"]).render_as_string(hide_password=False)


# --- a node begins it when it is committed ----------------------------------------------------------------------------


def test_a_committed_run_begins_at_once_on_sqlite(file: Path) -> None:
    scheduler, bill = scheduler_on(f"sqlite:///{file}")
    with scheduler, closing(sqlite3.connect(file)) as connection:
        handle = bill.options(key="bill:42").enqueue_in(connection, 42, copies=2)
        for too_early in (handle.look, handle.wait, handle.result):
            with pytest.raises(NotCommittedYet, match="has not committed, or was rolled back"):
                too_early()
        connection.commit()
        assert handle.result(SOON) == "42 x 2"
        assert (handle.created, handle.key) == (True, "bill:42")


def test_a_committed_run_begins_at_once_on_postgresql(postgres_url: str) -> None:
    scheduler, bill = scheduler_on(postgres_url)
    with scheduler, dialled(postgres_url) as connection:
        with connection.transaction():
            handle = bill.enqueue_in(connection, 42)
            with pytest.raises(NotCommittedYet):
                handle.result()
        assert handle.result(SOON) == "42 x 1"
        engine = create_engine(make_url(plain(postgres_url)).set(drivername="postgresql+psycopg"), poolclass=NullPool)
        with Session(engine) as session, session.begin():
            handles = bill.enqueue_many_in(session, (bill.call(number) for number in range(3)))
            by_name = scheduler.enqueue_in(session, "bill", 9)
        assert [one.result(SOON) for one in (*handles, by_name)] == ["0 x 1", "1 x 1", "2 x 1", "9 x 1"]


def test_a_committed_run_begins_soon_on_mysql(mysql_url: str) -> None:
    scheduler, bill = scheduler_on(mysql_url)
    url = make_url(mysql_url)
    with (
        scheduler,
        closing(
            pymysql.connect(
                host=url.host,
                port=url.port or 3306,
                user=url.username,
                password=url.password or "",
                database=url.database,
            )
        ) as connection,
    ):
        handle = bill.enqueue_in(connection, 42)
        connection.commit()
        assert handle.result(SOON) == "42 x 1"


def test_with_wake_after_a_session_notifies_when_it_has_committed_and_a_driver_within(postgres_url: str) -> None:
    scheduler, bill = scheduler_on(f"{postgres_url}&wake=after")
    engine = create_engine(make_url(plain(postgres_url)).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with scheduler:
        with Session(engine) as session, session.begin():
            with session.begin_nested():
                first = bill.enqueue_in(session, 1)
            second = bill.enqueue_in(session, 2)
            # Two-phase commit refuses what has notified: so it has not.
            session.connection().exec_driver_sql("SELECT 1")
        assert [first.result(SOON), second.result(SOON)] == ["1 x 1", "2 x 1"]
        with Session(engine) as session:
            bill.enqueue_in(session, 3)
            session.rollback()
        with dialled(postgres_url) as connection:
            third = bill.enqueue_in(connection, 4)
            connection.commit()
        assert third.result(SOON) == "4 x 1"
    assert scheduler.store.capabilities.poll == 30
    with pytest.raises(InvalidOption, match="choose one of 'inside', 'after'"):
        Scheduler(f"{postgres_url}&wake=never").define()


# --- connections that are awaited -------------------------------------------------------------------------------------


def test_a_run_is_enqueued_on_a_connection_that_is_awaited(postgres_url: str) -> None:
    scheduler, bill = scheduler_on(postgres_url)

    async def enqueue() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(plain(postgres_url)) as connection:
            async with connection.transaction():
                made = [await bill.options(key="psycopg").aenqueue_in(connection, 1)]
            with pytest.raises(UnsupportedTransaction, match=r"await job\.aenqueue_in"):
                bill.enqueue_in(connection, 1)
            await connection.set_autocommit(True)
            with pytest.raises(UnsupportedTransaction, match="autocommit"):
                await bill.aenqueue_in(connection, 1)
        url = make_url(plain(postgres_url)).set(drivername="postgresql+psycopg")
        engine = create_async_engine(url, poolclass=NullPool)
        async with AsyncSession(engine) as session:
            made += await bill.aenqueue_many_in(session, [bill.call(2), bill.call(3)])
            with pytest.raises(UnsupportedTransaction, match=r"await job\.aenqueue_in"):
                bill.enqueue_in(session, 1)
            await session.commit()
            await bill.aenqueue_in(session, 4)
            await session.rollback()
        async with engine.connect() as connection:
            made.append(await bill.aenqueue_in(connection, 5))
            await connection.commit()
        await engine.dispose()
        return made

    made = asyncio.run(enqueue())
    assert [one.look().args for one in made] == [(1,), (2,), (3,), (5,)]
    assert len(list(scheduler.runs(bill))) == 4


DJANGO = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": eval(sys.argv[1])}, USE_TZ=True, TIME_ZONE="Asia/Kolkata")
import django
django.setup()
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from cronsensus import Scheduler

scheduler = Scheduler(sys.argv[2])

@scheduler.job()
def bill(customer: int) -> int:
    return customer

scheduler.define()
with scheduler:
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries:
            first = bill.enqueue_in(connection, 1)
        try:
            with transaction.atomic():
                bill.enqueue_in(connection, 2)
                raise KeyError
        except KeyError:
            pass
        assert bill.options(key="k").enqueue_in(connection, 3).created
        assert not bill.options(key="k").enqueue_in(connection, 3).created
    assert first.result("10s") == 1
    try:
        bill.enqueue_in(connection, 4)
    except Exception as error:
        print(type(error).__name__)
    print(len(queries), sorted(run.args[0] for run in scheduler.runs(bill)))
if connection.vendor == "sqlite":
    connection.settings_dict["OPTIONS"] = {}
    connection.close()
    with transaction.atomic():
        connection.cursor().execute("SELECT count(*) FROM sqlite_master")
        bill.enqueue(5)
        try:
            bill.enqueue_in(connection, 6)
        except Exception as error:
            print(type(error).__name__, error)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"])
def test_a_run_is_enqueued_within_djangos_atomic(kind: str, file: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{file}" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    read = make_url(url)
    engines = {"sqlite": "sqlite3", "postgres": "postgresql", "mysql": "mysql"}
    database: dict[str, Any] = {
        "ENGINE": f"django.db.backends.{engines[kind]}", "NAME": read.database, "HOST": read.host or "",
        "PORT": read.port or "", "USER": read.username or "", "PASSWORD": read.password or "",
    }  # fmt: skip
    if kind == "sqlite":  # a transaction that begins by reading cannot write once another has written
        database["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
    script = DJANGO
    if kind == "mysql":
        script = "import pymysql; pymysql.version_info = (2, 2, 1, 'final', 0); pymysql.install_as_MySQLdb()" + DJANGO
    done = subprocess.run(
        [sys.executable, "-c", script, repr(database), url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    statements = {"sqlite": 2, "postgres": 1, "mysql": 2}
    refused, seen, *too_late = done.stdout.splitlines()
    assert [refused, seen] == ["UnsupportedTransaction", f"{statements[kind]} [1, 3]"]
    if kind == "sqlite":  # Django has its own error around the driver's
        assert "StoreBusy" in too_late[0]
        assert "begin it with BEGIN IMMEDIATE" in too_late[0]


# --- drivers ----------------------------------------------------------------------------------------------------------


def test_how_a_psycopg_connection_is_set_makes_no_difference(postgres_url: str) -> None:
    _, bill = scheduler_on(postgres_url)
    settings: list[dict[str, Any]] = [
        {"row_factory": dict_row},
        {"cursor_factory": psycopg.ClientCursor},
        {"options": "-c search_path= -c timezone=Asia/Kolkata -c datestyle=SQL"},
        {"options": "-c default_transaction_isolation=serializable"},
    ]
    for number, options in enumerate(settings):
        with dialled(postgres_url, **options) as connection:
            made = bill.enqueue_in(connection, number)
            connection.commit()
        assert made.look().args == (number,)


def test_how_long_a_users_statements_wait_for_locks_is_as_before(postgres_url: str, mysql_url: str) -> None:
    _, bill = scheduler_on(postgres_url)
    with dialled(postgres_url) as connection:
        connection.execute("SET lock_timeout = '1234ms'")
        calls = [bill.options(key=f"bill:{number}").call(number) for number in range(3)]
        bill.enqueue_many_in(connection, calls)
        [(timeout,)] = connection.execute("SHOW lock_timeout").fetchall()
        assert timeout == "1234ms"
    _, bill = scheduler_on(mysql_url)
    engine = create_engine(make_url(mysql_url).set(drivername="mysql+pymysql"), poolclass=NullPool)
    with engine.connect() as connection:
        before = connection.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar()
        bill.options(key="key").enqueue_in(connection, 1)
        assert connection.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar() == before
        connection.commit()


def test_an_engine_that_commits_each_statement_is_refused_also_where_it_is_awaited(postgres_url: str) -> None:
    _, bill = scheduler_on(postgres_url)
    url = make_url(plain(postgres_url)).set(drivername="postgresql+psycopg")

    async def enqueue() -> None:
        engine = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as session:
            with pytest.raises(UnsupportedTransaction, match="autocommit"):
                await bill.aenqueue_in(session, 1)

    asyncio.run(enqueue())


def test_a_transaction_in_two_phases_can_be_prepared(postgres_url: str) -> None:
    scheduler, bill = scheduler_on(postgres_url)
    engine = create_engine(make_url(plain(postgres_url)).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with Session(engine, twophase=True) as session:
        made = [bill.enqueue_in(session, 1)]
        session.commit()
    with dialled(postgres_url) as connection:
        connection.tpc_begin(connection.xid(1, f"{made[0].id} of bill", "x"))
        made.append(bill.enqueue_in(connection, 2))
        connection.tpc_prepare()
        connection.tpc_commit()
    with scheduler:
        assert [one.result(SOON) for one in made] == ["1 x 1", "2 x 1"]


def test_a_pipeline_of_psycopg_is_read_when_its_answer_is_there(postgres_url: str) -> None:
    _, bill = scheduler_on(postgres_url)
    with dialled(postgres_url) as connection, connection.pipeline():
        made = [bill.options(key="key").enqueue_in(connection, 1) for _ in range(2)]
        connection.commit()

    async def enqueue() -> Any:
        async with await psycopg.AsyncConnection.connect(plain(postgres_url)) as connection, connection.pipeline():
            return await bill.options(key="key").aenqueue_in(connection, 1)

    made.append(asyncio.run(enqueue()))
    assert [(one.id, one.created) for one in made] == [(made[0].id, True), (made[0].id, False), (made[0].id, False)]


def test_what_could_not_be_enqueued_leaves_no_file_of_sqlite_locked(file: Path, tmp_path: Path) -> None:
    _, bill = scheduler_on(f"sqlite:///{file}")
    with closing(sqlite3.connect(tmp_path / "other.db")) as elsewhere:
        with pytest.raises(UnsupportedTransaction, match="another database"):
            bill.enqueue_in(elsewhere, 1)
        assert not elsewhere.in_transaction
    bill.enqueue(1)  # the job is known here
    Scheduler(f"sqlite:///{file}").store.retire("bill", by="me", why="no longer")
    with closing(sqlite3.connect(file)) as connection:
        made = bill.enqueue_in(connection, 2)  # it is defined again first, which needs the lock
        connection.commit()
    assert made.look().state is State.PENDING


def test_a_wait_for_a_key_that_was_in_vain_leaves_mysqls_own_patience_as_before(mysql_url: str) -> None:
    _, bill = scheduler_on(make_url(mysql_url).update_query_dict({"timeout": "2"}).render_as_string(False))
    engine = create_engine(make_url(mysql_url).set(drivername="mysql+pymysql"), poolclass=NullPool)
    with engine.connect() as first, engine.connect() as second:
        before = second.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar()
        bill.options(key="key").enqueue_in(first, 1)
        with pytest.raises(StoreBusy):
            bill.options(key="key").enqueue_in(second, 1)
        assert second.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar() == before


DJANGO_BY_HAND = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
import django
django.setup()
from django.db import connection, transaction
from cronsensus import Scheduler

scheduler = Scheduler(f"sqlite:///{sys.argv[1]}")

@scheduler.job()
def bill(customer: int) -> None: ...

scheduler.define()
transaction.set_autocommit(False)
made = bill.enqueue_in(connection, 1)
transaction.commit()
print(made.look().state)
"""


def test_a_transaction_of_djangos_without_atomic_is_one_too(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DJANGO_BY_HAND, str(file)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "pending\n", done.stderr


def test_a_transaction_that_has_failed_says_so(postgres_url: str) -> None:
    _, bill = scheduler_on(postgres_url)
    with dialled(postgres_url) as connection:
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("nonsense")
        with pytest.raises(StoreBusy, match="can only be rolled back"):
            bill.enqueue_in(connection, 1)


def test_a_role_with_few_rights_is_enough_on_postgresql(postgres_url: str) -> None:
    _, bill = scheduler_on(postgres_url)
    schema = make_url(postgres_url).query["schema"]
    role = f"few_{schema}"
    with dialled(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{role}"')
        try:
            connection.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
            with connection.transaction(force_rollback=True):
                connection.execute(f'SET LOCAL ROLE "{role}"')
                with pytest.raises(StoreRefused, match="GRANT USAGE ON SEQUENCE"):
                    bill.enqueue_in(connection, 1)
            connection.execute(f'GRANT USAGE ON SEQUENCE "{schema}".cronsensus_occurrences_id_seq TO "{role}"')
            for table, right in (("counters", "SELECT"), ("jobs", "SELECT"), ("occurrences", "SELECT, INSERT")):
                connection.execute(f'GRANT {right} ON "{schema}".cronsensus_{table} TO "{role}"')
            with connection.transaction():
                connection.execute(f'SET LOCAL ROLE "{role}"')
                made = bill.options(key="key").enqueue_in(connection, 1)
                bill.options(key="key").enqueue_in(connection, 1)
            assert made.look().state is State.PENDING
        finally:
            connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


# --- the same database, or refused ------------------------------------------------------------------------------------


def test_a_copy_of_the_file_is_refused(file: Path) -> None:
    scheduler, bill = scheduler_on(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    other = file.with_name("other.db")
    other.touch()
    link = file.with_name("link.db")
    link.symlink_to(file)
    for wrong in (copy, other):
        refuses(closing(sqlite3.connect(wrong)), bill, r"another database than the store, which is .*shop\.db")
    with closing(sqlite3.connect(link)) as connection:
        bill.enqueue_in(connection, 1)
        connection.commit()
    assert [one.args for one in scheduler.runs(bill)] == [(1,)]
    scheduler.stop()


def test_another_database_or_kind_of_it_is_refused(file: Path, postgres_url: str) -> None:
    scheduler, bill = scheduler_on(postgres_url)
    refuses(dialled(postgres_url, dbname="template1"), bill, "another database than the store")
    refuses(closing(sqlite3.connect(file)), bill, "leads to sqlite, and the store is postgresql")
    assert list(scheduler.runs(bill)) == []


def test_a_store_without_transactions_says_what_to_do() -> None:
    _, bill = scheduler_on("memory://")
    refuses(closing(sqlite3.connect(":memory:")), bill, "write a row of an outbox")


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_part_of_a_transaction_is_refused_before_it_is_touched(file: Path) -> None:
    _, bill = scheduler_on(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        with pytest.raises(InvalidOption, match="on_failed='free' deletes a run"):
            bill.options(key="key", on_failed="free").enqueue_in(connection, 1)
        with pytest.raises(InvalidOption, match="at most 1,000 calls"):
            bill.enqueue_many_in(connection, [bill.call(1)] * 1001)
        with pytest.raises(InvalidPayload, match=r"customer is None.*before session\.flush"):
            bill.enqueue_in(connection, None)
        assert not connection.in_transaction
        bill.options(key="key").enqueue_in(connection, 1)
        with pytest.raises(PayloadMismatch):
            bill.options(key="key").enqueue_in(connection, 2)
        connection.rollback()


def test_a_job_that_is_new_to_the_store_is_defined_before_a_transaction_of_sqlite_or_not_at_all(file: Path) -> None:
    scheduler, bill = scheduler_on(f"sqlite:///{file}")

    @scheduler.job()
    def remind(customer: int) -> None: ...

    with closing(sqlite3.connect(file)) as connection:
        bill.enqueue_in(connection, 1)
        with pytest.raises(UnsupportedTransaction, match=r"call scheduler\.define\(\) when the program starts"):
            remind.enqueue_in(connection, 1)
        connection.rollback()
        remind.enqueue_in(connection, 1)
        connection.commit()
    assert [one.args for one in scheduler.runs(remind)] == [(1,)]


def test_a_transaction_of_sqlite_that_has_read_before_another_one_wrote_says_how_to_begin(file: Path) -> None:
    _, bill = scheduler_on(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        bill.enqueue(1)
        with pytest.raises(StoreBusy, match="BEGIN IMMEDIATE"):
            bill.enqueue_in(connection, 2)
        connection.rollback()
