"""What goes wrong with MySQL: each has a cause and the next thing to type, and nothing hangs for ever."""

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pymysql
import pytest
from sqlalchemy.exc import InterfaceError

from cronsensus.errors import (
    InvalidOption,
    MissingExtra,
    SchemaMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores import open_store
from cronsensus.stores.sql.engine import engine_of, handed_over
from cronsensus.stores.sql.mysql import MysqlStore, mysql_errors
from cronsensus.stores.sql.mysql import mysql_driver as driver
from cronsensus.stores.sql.mysql import mysql_store as store_of_mysql
from cronsensus.stores.sql.mysql.mysql_dialect import driver_of
from cronsensus.stores.sql.mysql.mysql_url import read_url
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from tests.servers.fixtures import mysql_connection
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import mysql_or_mariadb
from tests.servers.server import free_port
from tests.stores.sql.lock_waits import waits_for_a_lock

LEASE = timedelta(minutes=5)


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    """A server of these tests' own, which may be killed and stopped."""
    with mysql_or_mariadb(durable=False) as made:
        yield made


@pytest.fixture
def open_mysql(mysql_url: str) -> Iterator[Callable[..., MysqlStore]]:
    """Open handles, migrated unless told otherwise; close them at the end."""
    opened: list[MysqlStore] = []

    def open_one(options: str = "", *, at: str = "", migrated: bool = True) -> MysqlStore:
        store = MysqlStore((at or mysql_url) + (f"?{options}" if options else ""))
        opened.append(store)
        if migrated:
            store.migrate()
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def user(mysql_url: str) -> Iterator[Callable[..., str]]:
    """Make a user who may do this in the test's database; return the URL for him."""
    made: list[str] = []
    database = urlsplit(mysql_url).path.lstrip("/")

    def make(may: str, *, password: str = "", **options: str) -> str:
        name = f"{database}_{len(made)}"
        with mysql_connection(mysql_url) as connection:
            cursor = connection.cursor()
            limits = " ".join(f"{option.upper()} {value}" for option, value in options.items())
            cursor.execute(f"CREATE USER `{name}` IDENTIFIED BY %s" + (f" WITH {limits}" if limits else ""), [password])
            made.append(name)
            if may:
                cursor.execute(f"GRANT {may} ON `{database}`.* TO `{name}`")
        parts = urlsplit(mysql_url)
        secret = f":{password}" if password else ""
        return urlunsplit(parts._replace(netloc=f"{name}{secret}@{parts.hostname}:{parts.port}"))

    yield make
    with mysql_connection(mysql_url) as connection:
        for name in made:
            connection.cursor().execute(f"DROP USER `{name}`")


def work_with(store: MysqlStore) -> None:
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)


@contextmanager
def somebody_else(url: str) -> Iterator[Any]:
    """Give a cursor in a transaction of somebody else, which is rolled back."""
    with mysql_connection(url) as connection:
        connection.begin()
        yield connection.cursor()
        connection.rollback()


def cut(store: MysqlStore) -> None:
    """End the connections that a handle keeps, as an administrator or a failover does; come back once they are gone."""
    ids = {driver_of(idle).thread_id() for idle in store._connections._idle}
    assert ids
    with mysql_connection(store._url_and_clock[0]) as connection:
        cursor = connection.cursor()
        for number in ids:
            cursor.execute(f"KILL CONNECTION {number}")
        await_gone(cursor, ids)


def await_gone(cursor: Any, ids: set[int]) -> None:
    def gone() -> bool:
        cursor.execute("SELECT id FROM information_schema.processlist")
        return not ids & {row[0] for row in cursor.fetchall()}

    eventually(gone)


def eventually(condition: Callable[[], object]) -> object:
    for _ in range(2000):
        if found := condition():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it did not come about in time")


# --- cannot begin -----------------------------------------------------------------------------------------------------


def test_no_server():
    port = free_port()
    store = MysqlStore(f"mysql://ann:geheim@127.0.0.1:{port}/shop")
    with pytest.raises(StoreUnavailable, match=rf"no server listens there .*mysql -h 127.0.0.1 -P {port}") as no:
        store.check()
    assert "geheim" not in str(no.value)


def test_no_such_host():
    with pytest.raises(StoreUnavailable, match="the host's name leads nowhere"):
        MysqlStore("mysql://nowhere.invalid/shop").check()


def test_a_refused_password_is_not_repeated(user):
    url = user("ALL", password="richtig").replace("richtig", "fa%40lsch")
    store = MysqlStore(url)
    with pytest.raises(StoreUnavailable, match=r"refused the user or the password .*as %XX") as no:
        store.check()
    everything = f"{no.value!r} {no.value} {no.value.__cause__} {store.namespace} {store._url}"
    assert "fa@lsch" not in everything
    assert "fa%40lsch" not in everything


def test_a_missing_database_says_how_to_make_it(mysql_server_url):
    url = urlunsplit(urlsplit(mysql_server_url)._replace(path="/nowhere"))
    with pytest.raises(StoreUnavailable, match=r'there is no such database .*-e "CREATE DATABASE nowhere"'):
        MysqlStore(url).check()


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("10.5.29-MariaDB", r"is MariaDB 10\.5\.29-MariaDB.*needs MariaDB 10\.6 or MySQL 8\.0\.17"),
        ("5.7.44-log", r"is MySQL 5\.7\.44-log.*upgrade the server"),
        ("8.0.16", r"is MySQL 8\.0\.16.*SKIP|is MySQL 8\.0\.16.*cannot pass over locked rows"),
        ("8.0.11-TiDB-v7.5.0", "is MySQL 8.0.11-TiDB"),
    ],
)
def test_a_server_that_is_too_old_is_refused(open_mysql, monkeypatch, version, words):
    monkeypatch.setattr(driver, "run_text", lambda connection, text: ((version,),))
    with pytest.raises(StoreUnavailable, match=words):
        open_mysql()


@pytest.mark.parametrize("version", ["10.6.0-MariaDB", "12.1.2-MariaDB-log", "8.0.17", "8.4.7", "9.5.0"])
def test_newer_server_versions_are_accepted(mysql_url, monkeypatch, version):
    url = read_url(mysql_url)
    opened = driver.open_for_jobs(url)
    real = driver.run_text
    monkeypatch.setattr(
        driver, "run_text", lambda connection, text: ((version,),) if "VERSION()" in text else real(connection, text)
    )
    driver._refuse_old(opened, url)
    assert opened.is_mariadb == ("MariaDB" in version)
    opened.close()


def test_a_file_that_the_url_names_and_that_is_not_there_is_said(mysql_url):
    with pytest.raises(InvalidOption, match=r"names a file that cannot be read .*correct it"):
        MysqlStore(f"{mysql_url}?ssl_ca=/nowhere.pem").check()


def test_a_way_of_logging_in_that_needs_another_package_is_said(mysql_url, monkeypatch):
    def connect(*_: Any) -> None:
        raise RuntimeError(
            "'cryptography' package is required for sha256_password or caching_sha2_password auth methods"
        )

    monkeypatch.setattr(driver.BoundedConnection, "_request_authentication", connect)
    with pytest.raises(MissingExtra, match=r'pip install "PyMySQL\[rsa\]"'):
        MysqlStore(mysql_url).check()


def test_a_missing_driver_says_what_to_install(monkeypatch):
    import builtins
    import sys

    for name in [name for name in sys.modules if name.startswith(("pymysql", "cronsensus.stores.sql.mysql"))]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "pymysql":
            raise ModuleNotFoundError("No module named 'pymysql'", name="pymysql")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r'pip install "cronsensus\[mysql\]"'):
        open_store("mysql://ann@localhost/shop")


# --- a schema that will not do ----------------------------------------------------------------------------------------


def test_an_empty_database_says_how_to_make_the_schema(open_mysql):
    store = open_mysql(migrated=False)
    for verb in (store.check, store.look, lambda: store.define_jobs([], release="r1")):
        with pytest.raises(SchemaMismatch, match="cronsensus db upgrade"):
            verb()


def test_a_newer_schema_is_refused(open_mysql, mysql_url):
    store = open_mysql()
    with mysql_connection(mysql_url) as connection:
        connection.cursor().execute("INSERT INTO cronsensus_schema VALUES (999, 'm0999_later', 0)")
    for verb in (store.check, store.migrate, store.sibling().check):
        with pytest.raises(SchemaMismatch, match=r"version 999.*pip install --upgrade cronsensus"):
            verb()


def test_a_table_without_transactions_is_found_by_check(open_mysql, mysql_url):
    store = open_mysql()
    with mysql_connection(mysql_url) as connection:
        connection.cursor().execute("ALTER TABLE cronsensus_counters ENGINE=MyISAM")
    with pytest.raises(SchemaMismatch, match=r"kept by MyISAM.*ALTER TABLE cronsensus_counters ENGINE=InnoDB"):
        store.check()


def test_a_column_that_takes_two_names_for_one_is_found_by_check(open_mysql, mysql_url):
    store = open_mysql()
    with mysql_connection(mysql_url) as connection:
        connection.cursor().execute("ALTER TABLE cronsensus_locks CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    with pytest.raises(SchemaMismatch, match=r"cronsensus_locks\.\w+ compares by utf8mb4_bin"):
        store.check()


# --- may not ----------------------------------------------------------------------------------------------------------


def test_tables_that_may_not_be_made_say_what_to_grant(open_mysql, user):
    with pytest.raises(StoreUnavailable, match=r"may not do that .*GRANT ALL ON"):
        open_mysql(at=user("SELECT"))


def test_tables_that_may_not_be_written_say_what_to_grant(open_mysql, user):
    open_mysql()
    only = open_mysql(at=user("SELECT"), migrated=False)
    only.look()
    with pytest.raises(StoreUnavailable, match=r"may not do that .*GRANT ALL ON"):
        only.check()


def test_a_database_that_may_not_be_used_says_what_to_grant(open_mysql, user):
    with pytest.raises(StoreUnavailable, match=r"may not do that .*GRANT ALL ON"):
        open_mysql(at=user(""), migrated=False).look()


def test_a_server_that_can_only_be_read_is_found_at_the_start(server, open_mysql):
    open_mysql(at=server.url).close()
    with mysql_connection(server.url) as connection:
        cursor = connection.cursor()
        cursor.execute("DROP USER IF EXISTS ann")
        cursor.execute("CREATE USER ann")
        cursor.execute("GRANT ALL ON test.* TO ann")
        cursor.execute("SET GLOBAL read_only = ON")
        try:
            only = open_mysql(at=server.url.replace("//root@", "//ann@"), migrated=False)
            only.look()
            for verb in (only.check, lambda: work_with(only)):
                with pytest.raises(StoreReadOnly, match=r"can be read but not written .*name the primary"):
                    verb()
        finally:
            cursor.execute("SET GLOBAL read_only = OFF")


def test_a_server_whose_init_connect_turns_autocommit_off_can_be_described_too(server, open_mysql):
    open_mysql(at=server.url).close()
    with mysql_connection(server.url) as connection:
        cursor = connection.cursor()
        cursor.execute("DROP USER IF EXISTS bob")
        cursor.execute("CREATE USER bob")
        cursor.execute("GRANT ALL ON test.* TO bob")
        cursor.execute("SET GLOBAL init_connect = 'SET autocommit=0'")
        try:
            store = open_mysql(at=server.url.replace("//root@", "//bob@"), migrated=False)
            assert store.describe()  # outside of a transaction of ours
            store.look()
        finally:
            cursor.execute("SET GLOBAL init_connect = ''")


def test_a_server_without_free_connections_says_so(open_mysql, user):
    open_mysql()
    url = user("ALL", max_user_connections="1")
    with mysql_connection(url), pytest.raises(StoreUnavailable, match=r"no connection left .*max_connections"):
        open_mysql(at=url, migrated=False).look()


# --- takes too long ---------------------------------------------------------------------------------------------------


def test_a_row_that_stays_locked_is_not_waited_for_for_ever(open_mysql, mysql_url, monkeypatch):
    monkeypatch.setattr("cronsensus.stores.sql.sql_handle.LONGEST_TRYING", 0.5)
    store = open_mysql("timeout=2s")
    work_with(store)
    with somebody_else(mysql_url) as cursor:
        cursor.execute("SELECT 1 FROM cronsensus_jobs FOR UPDATE")
        with pytest.raises(StoreBusy, match=r"held a lock for longer than 1 s.*SHOW ENGINE INNODB STATUS"):
            store.pause("job", by="ann", why="")
    assert store.pause("job", by="ann", why="")


def test_a_row_that_comes_free_in_time_is_waited_for_again(open_mysql, mysql_url):
    """InnoDB undoes the statement only: what the verb wrote before it must not be committed with the rest."""
    store = open_mysql("timeout=2s")
    work_with(store)
    tries: list[int] = []
    with somebody_else(mysql_url) as cursor:
        cursor.execute("SELECT 1 FROM cronsensus_counters FOR UPDATE")
        store.enqueue([Item(job="job", key="mine")])
        claims: list[Any] = []
        thread = threading.Thread(target=lambda: claims.extend(take(store, "s1", 1, {"f"}, lease=LEASE)))
        packet = store._dialect._send_packet

        def count(driver: Any, parts: Any) -> Any:
            if any("UPDATE cronsensus_counters" in part.text for part in parts):
                tries.append(1)
            return packet(driver, parts)

        store._dialect._send_packet = count
        thread.start()
        eventually(lambda: len(tries) >= 2)
    thread.join(30)
    assert [claim.key for claim in claims] == ["mine"]


def test_a_deadlock_is_resolved_by_doing_the_verb_again(open_mysql, mysql_url):
    store = open_mysql("timeout=60s")  # on a busy machine the other may not be so far in a few seconds
    work_with(store)
    made = store.enqueue([Item(job="job", key="mine"), *(Item(job="job") for _ in range(50))])[0]
    [claim] = take(store, "s1", 1, {"f"}, lease=LEASE)
    settle(store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])
    undone: list[BaseException] = []
    try_again = mysql_errors.try_again

    def noted(error: BaseException, url: Any) -> Any:
        undone.append(error)
        return try_again(error, url)

    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(store.forget("job", "mine", by="ann", why="")))
    with pytest.MonkeyPatch.context() as patch, somebody_else(mysql_url) as cursor:
        patch.setattr(mysql_errors, "try_again", noted)
        # The occurrence first and the job then; to forget goes the other way. Who has written more is spared.
        cursor.execute("UPDATE cronsensus_occurrences SET priority = priority + 1 WHERE id >= %s", [made.id])
        thread.start()
        eventually(lambda: waits_for_a_lock(mysql_url))
        cursor.execute("SELECT 1 FROM cronsensus_jobs FOR UPDATE")
        eventually(lambda: undone)
    assert [mysql_errors.code_of(error) for error in undone] == [1213]
    thread.join(30)
    assert answers == [State.SUCCEEDED]
    assert len(store.occurrences(OccurrenceFilter(job="job"))) == 50


def test_a_statement_that_takes_too_long_is_cancelled(open_mysql):
    store = open_mysql("timeout=2s")
    # Not SLEEP, which on MySQL ends early and says nothing.
    endless = "SELECT COUNT(*) FROM " + ", ".join(f"information_schema.collations {name}" for name in "abcde")
    with pytest.raises(StoreBusy, match=r"took longer than 2 s .*\?timeout="), store._read_transaction() as tx:
        tx.connection.execute_text(endless)
    assert store.counts().jobs == 0


def test_transaction_left_idle_blocks_no_other(open_mysql):
    """As of a process that is stopped in the middle of a verb."""
    stopped, other = open_mysql(), open_mysql("timeout=10s")
    work_with(stopped)
    with pytest.raises(StoreUnavailable), stopped._write_transaction() as tx:  # noqa: PT012 - the end of the block is the point
        tx.connection.execute_text("SELECT 1 FROM cronsensus_jobs FOR UPDATE")
        assert other.pause("job", by="ann", why="")  # waits for less than its patience
        tx.connection.execute_text("SELECT 1")


def test_a_server_that_says_nothing_is_given_up(server, open_mysql, monkeypatch):
    monkeypatch.setattr(driver, "BEYOND", -1.5)
    store = open_mysql("timeout=2s", at=server.url)
    store.look()
    server.pause()
    try:
        with pytest.raises(StoreUnavailable, match=r"timed out.*mysql -h 127"):
            store.look()
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.check()
    finally:
        server.resume()
    assert store.look().jobs == ()


# --- goes away --------------------------------------------------------------------------------------------------------


def test_connections_that_were_cut_while_they_lay_idle_are_replaced(open_mysql):
    store = open_mysql()
    work_with(store)
    for verb in (
        lambda: store.renew("s1", lease=LEASE).alive,
        lambda: store.look().now is not None,
        lambda: len(store.jobs()) == 1,
        lambda: store.enqueue([Item(job="job")])[0].created,
    ):
        cut(store)
        assert verb()


def test_a_connection_that_is_cut_within_a_verb_leaves_nothing_half_done(open_mysql, mysql_url):
    store = open_mysql()
    work_with(store)
    with pytest.raises(StoreUnavailable, match="connection was lost"), store._write_transaction() as tx:  # noqa: PT012
        tx.connection.execute_text("DELETE FROM cronsensus_jobs")
        number = driver_of(tx.connection).thread_id()
        with mysql_connection(mysql_url) as connection:
            cursor = connection.cursor()
            cursor.execute(f"KILL CONNECTION {number}")
            await_gone(cursor, {number})
        tx.connection.execute_text("SELECT 1")
    assert len(store.jobs()) == 1


def test_a_commit_whose_answer_is_lost_is_resolved_by_asking_again(open_mysql, monkeypatch):
    store = open_mysql()
    work_with(store)
    made = store.enqueue([Item(job="job", key="mine")])[0]
    [claim] = take(store, "s1", 1, {"f"}, lease=LEASE)
    outcome = an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)
    commit = driver.BoundedConnection.commit

    def commit_and_lose(self: driver.BoundedConnection) -> None:
        commit(self)
        self._force_close()  # type: ignore[attr-defined]
        raise pymysql.OperationalError(2013, "Lost connection to MySQL server during query")

    with monkeypatch.context() as patched:
        patched.setattr(driver.BoundedConnection, "commit", commit_and_lose)
        with pytest.raises(StoreUnavailable, match="connection was lost"):
            settle(store, [outcome])
    assert [answer.accepted for answer in settle(store, [outcome])] == [True]
    assert len(store.runs(made.id)) == 1


def test_a_server_that_is_killed_and_comes_back_has_what_it_said(open_mysql):
    with mysql_or_mariadb() as durable:
        store = open_mysql(at=durable.url)
        work_with(store)
        store.enqueue([Item(job="job", key=str(number)) for number in range(20)])
        claims = take(store, "s1", 10, {"f"}, lease=LEASE)
        durable.kill9()
        with pytest.raises(StoreUnavailable):
            settle(store, [an_end(id=claims[0].id, token=claims[0].token, state=State.SUCCEEDED)])
        durable.start()
        answers = settle(store, [an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in claims])
        assert all(answer.accepted for answer in answers)
        more = take(store, "s1", 20, {"f"}, lease=LEASE)
        assert len(more) == 10
        assert min(one.token for one in more) > max(one.token for one in claims)
        store.close()


def test_a_store_that_was_closed_says_so(open_mysql):
    store = open_mysql()
    store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.look()
    assert store.wait(0.01) is False


def test_a_forked_child_takes_its_own_connections_and_leaves_the_parents_alone(open_mysql):
    store = open_mysql()
    work_with(store)
    child = os.fork()
    if child == 0:
        ok = store.look().now is not None and len(store.jobs()) == 1
        store.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.jobs()) == 1


# --- the server's own ways --------------------------------------------------------------------------------------------


def test_time_is_utc_whatever_the_servers_zone(open_mysql, mysql_url):
    """The shared server's zone is a quarter of an hour beside all others."""
    store = open_mysql()
    with mysql_connection(mysql_url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT @@global.time_zone")
        print("the server's zone is", cursor.fetchone())
    wall = datetime.now(UTC)
    for now in (store.now(), store.look().now, store.open_session(a_session("s1"), lease=LEASE)):
        assert abs(now - wall) < timedelta(seconds=30)
    assert store.renew("s1", lease=LEASE).alive


def test_keys_that_differ_in_anything_are_different_keys(open_mysql):
    store = open_mysql()
    work_with(store)
    keys = ["a", "A", "á", "a\u0301", "a ", " a", "a  ", "\uff41", "ß", "ss", "🧨", "🧨🧨", "a\t", "a\u00a0"]
    assert all(made.created for made in store.enqueue([Item(job="job", key=key) for key in keys]))
    again = store.enqueue([Item(job="job", key=key) for key in keys])
    assert [made.key for made in again] == keys
    assert not any(made.created for made in again)


def test_the_longest_names_of_the_widest_letters_fit(open_mysql):
    name, key = "🧨" * 200, "🧨" * 400
    store = open_mysql()
    store.define_jobs([JobSpec(name=name, function=name)], release=name)
    store.open_session(a_session("s" * 100), lease=LEASE)
    assert store.enqueue([Item(job=name, key=key)])[0].created
    assert [claim.key for claim in take(store, "s" * 100, 1, {name}, lease=LEASE)] == [key]
    assert store.lock(name, key, ttl=LEASE) is not None
    assert store.pause(name, by="ann", why="")
    assert [entry.target for entry in store.trail(target=name)] == [name]


def test_arguments_and_results_of_the_greatest_size_fit(open_mysql, monkeypatch):
    # A busy machine may write on all of it for longer than the server lets a transaction stand still.
    monkeypatch.setattr(driver, "VERB_IDLE_SECONDS", 60.0)
    store = open_mysql()
    work_with(store)
    great = "x" * 250_000
    store.enqueue([Item(job="job", args=(great,)) for _ in range(70)])
    claims = take(store, "s1", 70, {"f"}, lease=LEASE)
    assert {claim.args for claim in claims} == {(great,)}
    result = f'"{great}"'
    settle(store, [an_end(id=one.id, token=one.token, state=State.SUCCEEDED, result=result) for one in claims])
    assert {found.result for found in store.occurrences(OccurrenceFilter())} == {result}


def test_a_verb_whose_connection_is_closed_before_all_is_sent_is_done_again(open_mysql, monkeypatch):
    """As by a server that did not wait until a busy machine had written what goes into the packet."""
    store, other = open_mysql(), open_mysql()
    work_with(store)
    query = driver.BoundedConnection.query
    closed: list[object] = []

    def close_once(connection, text, *more):
        if len(text) > 200_000 and not closed:
            closed.append(connection)
            with other._read_transaction() as tx:
                tx.connection.execute_text(f"KILL {connection.thread_id()}")
            select.select([connection._sock], [], [], 30)
        return query(connection, text, *more)

    monkeypatch.setattr(driver.BoundedConnection, "query", close_once)
    created = store.enqueue([Item(job="job", args=("x" * 250_000,)) for _ in range(40)])
    assert closed
    assert len({one.id for one in created}) == len(store.occurrences(OccurrenceFilter())) == 40


def test_a_server_that_left_its_cluster_is_left_for_the_one_that_a_proxy_leads_to_by_now(open_mysql, monkeypatch):
    store = open_mysql()
    work_with(store)
    parted: list[Any] = []
    real = driver.BoundedConnection.query

    def query(self, sql, unbuffered=False):
        if not parted:
            parted.append(self)
        if self in parted:
            raise pymysql.OperationalError(1047, "WSREP has not yet prepared node for application use")
        return real(self, sql, unbuffered)

    monkeypatch.setattr(driver.BoundedConnection, "query", query)
    assert store.enqueue([Item(job="job")])[0].created
    assert len(parted) == 1


ERRORS = [
    (1021, "Disk full (/tmp/x); waiting for someone to free some space", StoreFull, "db prune"),
    (1030, "Got error 28 from storage engine", StoreFull, "db prune"),
    (1026, 'Error writing file (Errcode: 28 "No space left on device")', StoreFull, "db prune"),
    (1114, "The table 'cronsensus_runs' is full", StoreFull, "db prune"),
    (1034, "Index for table 'cronsensus_jobs' is corrupt", StoreCorrupt, "restore a backup"),
    (1836, "Running in read-only mode", StoreReadOnly, "name the primary"),
    (1040, "Too many connections", StoreUnavailable, "raise max_connections"),
    (1153, "Got a packet bigger than 'max_allowed_packet' bytes", StoreUnavailable, "SET GLOBAL max_allowed_packet"),
    (1665, "Cannot execute statement", StoreUnavailable, "binlog_format=ROW or MIXED"),
    (1047, "WSREP has not yet prepared node", StoreUnavailable, "not part of its cluster"),
    (1180, "Error while appending (provider status: Not connected)", StoreUnavailable, "could not commit"),
    (1180, "Got error 28 'No space left on device' during COMMIT", StoreFull, "db prune"),
    (1286, "Unknown storage engine 'InnoDB'", StoreUnavailable, "enable it"),
    (1053, "Server shutdown in progress", StoreUnavailable, "connection was lost"),
    (4031, "The client was disconnected by the server because of inactivity", StoreUnavailable, "connection was lost"),
    (3024, "Query execution was interrupted, maximum statement execution time exceeded", StoreBusy, "timeout="),
    (2003, "Can't connect to MySQL server on 'h' (timed out)", StoreUnavailable, "did not answer in time"),
    (1213, "Deadlock found when trying to get lock", StoreBusy, "try later"),
]


@pytest.mark.parametrize(("code", "said", "kind", "words"), ERRORS)
def test_what_the_servers_errors_mean(code, said, kind, words):
    url = read_url("mysql://ann:geheim@db/shop")
    found = mysql_errors.translate_error(pymysql.OperationalError(code, said + " geheim"), url)
    assert type(found) is kind or issubclass(type(found), kind)
    assert isinstance(found, StoreError)
    assert words in str(found)
    assert "geheim" not in str(found)


def test_a_mistake_of_ours_is_not_explained_away():
    url = read_url("mysql://ann@db/shop")
    assert (
        mysql_errors.translate_error(pymysql.ProgrammingError(1064, "You have an error in your SQL syntax"), url)
        is None
    )
    assert mysql_errors.translate_error(ValueError("x"), url) is None


# --- the URL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://ann@db", "names no database"),
        ("mysql://ann@db/a/b", "names no database"),
        ("mysql://ann:secret@db1,db2:3306/a", r"ann:\*\*\*@db1,db2.* names several hosts.*; name a proxy"),
        ("mysql://ann:gehe/im@db/shop", "special characters of the password as %XX"),
        ("mysql://ann:geheim@db:33o6/shop", "cannot be read"),
        ("mysql://ann:geheim@db/shop?tiemout=3", "did you mean 'timeout'"),
        ("mysql://ann:geheim@db/shop?timeout=1s", "at least 2 s"),
        ("mysql://ann:geheim@db/shop?charset=latin1", "always utf8mb4"),
        ("mysql://ann:geheim@db/shop?ssl_verify_cert=perhaps", "'true', 'false'"),
    ],
)
def test_malformed_urls_are_refused(url, words):
    with pytest.raises(InvalidOption, match=words) as no:
        MysqlStore(url)
    assert "gehe" not in str(no.value)


def test_what_a_url_says():
    url = read_url(
        "mariadb://an%40n:p%2Fw%3A@[::1]:3307/sh%6Fp?timeout=4s&ssl_ca=/ca.pem&ssl_verify_cert=true&charset=UTF8MB4"
    )
    assert (url.user, url.password, url.host, url.port, url.database) == ("an@n", "p/w:", "::1", 3307, "shop")
    assert (url.timeout, url.lock_timeout, dict(url.driver)) == (4, 2, {"ssl_ca": "/ca.pem", "ssl_verify_cert": True})
    assert url.where == "mysql://an@n@[::1]:3307/shop"


def test_a_socket_file_will_do(server, open_mysql):
    store = open_mysql(f"unix_socket={server.folder / 'socket'}", at="mysql://root@localhost/test")
    assert store.look().jobs == ()
    assert f"?unix_socket={server.folder}" in store.describe()["server"]


def test_it_describes_what_matters_and_no_secret(open_mysql, user):
    open_mysql()
    described = open_mysql(at=user("ALL", password="geheim"), migrated=False).describe()
    assert described["store"] == "mysql"
    assert {"innodb_flush_log_at_trx_commit", "sync_binlog", "version", "encrypted", "wake_ups"} <= described.keys()
    assert "geheim" not in repr(described)


def test_a_connection_that_is_cut_while_another_is_being_opened_does_not_close_that_one(mysql_url, monkeypatch):
    url = read_url(mysql_url)
    engine = engine_of("mysql+pymysql://", url.where)
    raw = driver.open_connection(url)
    first = handed_over(engine, raw)
    opened = driver.open_connection(url)
    told = opened.character_set_name

    def meanwhile() -> Any:
        if not first.invalidated:
            raw.close()
            with pytest.raises(InterfaceError):
                first.exec_driver_sql("SELECT 1")
        return told()

    monkeypatch.setattr(opened, "character_set_name", meanwhile)
    with first, handed_over(engine, opened) as second:
        assert first.invalidated
        assert second.exec_driver_sql("SELECT 1").scalar() == 1


def test_a_connection_that_is_cut_before_it_can_be_used_is_told_as_such(mysql_url, monkeypatch):
    store = open_store(mysql_url)
    store.migrate()
    store.close()

    def cut_at_once(url: Any, **options: Any) -> driver.BoundedConnection:
        opened = driver.open_connection(url, **options)
        opened.close()
        return opened

    monkeypatch.setattr(store_of_mysql, "open_connection", cut_at_once)
    store = open_store(mysql_url)
    with pytest.raises(StoreUnavailable, match="the connection was lost"):
        store.now()
    store.close()
