"""What goes wrong with a server: each has a cause and the next thing to type, and nothing hangs for ever."""

import select
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from cronsensus.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from cronsensus.stores.sql import migrations
from cronsensus.stores.sql.dialect import TryAgain
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres.postgres_dialect import driver_of
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from tests.servers.fixtures import with_query
from tests.servers.postgres import PostgresServer

LEASE = timedelta(minutes=5)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of these tests' own, which may be killed and stopped."""
    with PostgresServer(durable=False, settings={"max_connections": "60"}) as made:
        yield made


@pytest.fixture
def role(postgres_server_url: str) -> Iterator[Callable[..., str]]:
    """Make a role with these options; return the server's URL for it."""
    made: list[str] = []
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:

        def make(options: str = "") -> str:
            name = f"test_role_{time.monotonic_ns()}"
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN " + options).format(sql.Identifier(name)))
            made.append(name)
            return postgres_server_url.replace("//postgres@", f"//{name}@")

        yield make
        for name in made:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def work_with(store: PostgresStore) -> None:
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)


# --- cannot begin -----------------------------------------------------------------------------------------------------


def test_no_server(free_port):
    store = PostgresStore(f"postgresql://ann:geheim@127.0.0.1:{free_port}/shop")
    words = rf"no server listens there .*pg_isready -h 127.0.0.1 -p {free_port}"
    with pytest.raises(StoreUnavailable, match=words) as no:
        store.check()
    assert "geheim" not in str(no.value)


def test_no_such_host():
    with pytest.raises(StoreUnavailable, match="the host's name leads nowhere"):
        PostgresStore("postgresql://nowhere.invalid/shop").check()


def test_a_refused_password_is_not_repeated(server):
    hba = server.data / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS ann")
        connection.execute("CREATE ROLE ann LOGIN PASSWORD 'richtig'")
        hba.write_text("host all ann 127.0.0.1/32 scram-sha-256\n" + before)
        connection.execute("SELECT pg_reload_conf()")
    url = f"postgresql://ann:falsch@127.0.0.1:{server.port}/postgres"

    def refused() -> StoreError | None:
        try:
            PostgresStore(url).check()
        except StoreError as error:
            return error if "password" in str(error) else None
        return None

    error = eventually(refused)  # the postmaster reads its file when it comes to it
    hba.write_text(before)
    assert isinstance(error, StoreUnavailable)
    assert "refused the user or the password" in str(error)
    assert "falsch" not in f"{error!r} {error}"


def test_a_missing_database_says_how_to_make_it(postgres_server_url):
    url = postgres_server_url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(StoreUnavailable, match=r"there is no such database .*createdb -h .* nowhere"):
        PostgresStore(url).check()


def test_a_store_without_a_schema_is_named_as_such(open_postgres, postgres_url):
    for where in (postgres_url, postgres_url + "_elsewhere"):
        store = open_postgres(at=where, migrated=False)
        for verb in (store.check, store.look, store.counts, lambda store=store: store.trigger("job", by="ann")):
            with pytest.raises(SchemaMismatch, match="cronsensus db upgrade"):
                verb()
        store.close()


def test_a_newer_schema_is_refused(open_postgres):
    store = open_postgres()
    with store._write_transaction() as tx:
        tx.connection.execute_text(f"INSERT INTO {store._url.schema}.cronsensus_schema VALUES (999, 'm0999_later', 0)")
    for verb in (store.check, store.migrate, store.sibling().check):
        with pytest.raises(SchemaMismatch, match=r"version 999.*pip install --upgrade cronsensus"):
            verb()


# --- may not ----------------------------------------------------------------------------------------------------------


def test_a_schema_that_may_not_be_made_says_what_to_grant(open_postgres, role):
    with pytest.raises(StoreUnavailable, match=r"permission denied .*GRANT CREATE ON DATABASE"):
        open_postgres(at=with_query(role(), schema="not_mine"))


def test_tables_that_may_not_be_used_say_what_to_grant(open_postgres, role):
    mine = open_postgres()
    other = open_postgres(at=with_query(role(), schema=mine._url.schema), migrated=False)
    for verb in (other.check, other.look):
        with pytest.raises(StoreUnavailable, match=r"permission denied .*GRANT ALL ON SCHEMA"):
            verb()


def test_what_can_only_be_read_is_found_at_the_start(open_postgres):
    open_postgres()
    only = open_postgres("options=-c%20default_transaction_read_only%3Don", migrated=False)
    only.look()
    for verb in (only.check, lambda: work_with(only)):
        with pytest.raises(StoreReadOnly, match=r"can be read but not written .*target_session_attrs=read-write"):
            verb()


def test_a_server_without_free_connections_says_so(open_postgres, role):
    mine = open_postgres()
    url = with_query(role("CONNECTION LIMIT 1"), schema=mine._url.schema)
    store = open_postgres(at=url, migrated=False)
    with (
        psycopg.connect(url.partition("?")[0]),
        pytest.raises(StoreUnavailable, match=r"no connection left .*max_connections"),
    ):
        store.look()


# --- takes too long ---------------------------------------------------------------------------------------------------


def test_a_row_that_stays_locked_is_not_waited_for_for_ever(open_postgres, postgres_url):
    store = open_postgres("timeout=400ms")
    work_with(store)
    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"SELECT 1 FROM {store._url.schema}.cronsensus_jobs FOR UPDATE")
        with pytest.raises(StoreBusy, match=r"held a lock for longer than 0\.2 s.*pg_stat_activity"):
            store.pause("job", by="ann", why="")
    assert store.pause("job", by="ann", why="")


def test_a_statement_that_takes_too_long_is_cancelled(open_postgres):
    store = open_postgres("timeout=200ms")
    with pytest.raises(StoreBusy, match=r"took longer than 0\.2 s .*\?timeout="), store._read_transaction() as tx:
        tx.connection.execute_text("SELECT pg_sleep(30)")
    assert store.counts().jobs == 0


def test_transaction_left_idle_blocks_no_other(open_postgres):
    """As of a process that is stopped in the middle of a verb."""
    stopped, other = open_postgres(), open_postgres("timeout=6s")
    work_with(stopped)
    said = "stood still in a transaction"
    with pytest.raises(TryAgain, match=said), stopped._write_transaction() as tx:  # noqa: PT012 - the end of the block is the point
        tx.connection.execute_text(f"SELECT 1 FROM {stopped._url.schema}.cronsensus_jobs FOR UPDATE")
        assert other.pause("job", by="ann", why="")  # waits for less than its patience
        tx.connection.execute_text("SELECT 1")


def test_a_verb_that_stood_still_in_its_transaction_is_done_again(open_postgres, monkeypatch):
    store = open_postgres()
    work_with(store)
    send, begun = store._dialect.send_statements, []

    def stand_still_once(connection, queue, *, begin, commit):
        answer = send(connection, queue, begin=begin, commit=commit)
        if begin:
            begun.append(connection)
        if len(begun) == 1:
            connection.execute_text("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            select.select([driver_of(connection)], [], [], 30)  # until the server hangs up
        return answer

    monkeypatch.setattr(store._dialect, "send_statements", stand_still_once)
    assert store.enqueue([Item(job="job")])[0].created
    assert len(begun) == 2


def test_a_migration_may_pause_for_longer(open_postgres, monkeypatch):
    store = open_postgres(migrated=False)
    seen: list[str] = []
    take = migrations.apply_step

    def asked(step, connection, now):
        [(limit,)] = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout")
        seen.append(limit)
        take(step, connection, now)

    monkeypatch.setattr(migrations, "apply_step", asked)
    assert store.migrate()
    assert set(seen) == {"5min"}
    with store._write_transaction() as tx:
        [(limit,)] = tx.connection.execute_text("SHOW idle_in_transaction_session_timeout")
    assert limit == "2s"


def test_a_server_that_says_nothing_is_given_up(server, open_postgres, monkeypatch):
    monkeypatch.setattr("cronsensus.stores.sql.postgres.postgres_driver.BEYOND", 0.2)
    store = open_postgres("timeout=300ms&schema=silent", at=server.url)
    store.look()
    server.pause()
    try:
        with pytest.raises(StoreUnavailable, match=r"no answer came in time .*pg_isready"):
            store.look()
    finally:
        server.resume()
    assert store.look().jobs == ()


# --- goes away --------------------------------------------------------------------------------------------------------


def test_connections_that_were_cut_while_they_lay_idle_are_replaced(open_postgres):
    store = open_postgres()
    work_with(store)
    for verb in (
        lambda: store.renew("s1", lease=LEASE).alive,
        lambda: store.look().now is not None,
        lambda: len(store.jobs()) == 1,
        lambda: store.enqueue([Item(job="job")])[0].created,
    ):
        cut(store)
        assert verb()


def test_a_connection_that_is_cut_within_a_verb_leaves_nothing_half_done(open_postgres):
    store = open_postgres()
    work_with(store)
    with pytest.raises(StoreUnavailable, match="connection"), store._write_transaction() as tx:  # noqa: PT012
        tx.connection.execute_text(f"DELETE FROM {store._url.schema}.cronsensus_jobs")
        cut(store)
        tx.connection.execute_text("SELECT 1")
    assert len(store.jobs()) == 1


def test_runs_that_cannot_be_recorded_are_left_out_and_the_rest_is_taken_over(open_postgres):
    """Where a part of a transaction is undone, what the connection has prepared is still there."""
    store = open_postgres()
    work_with(store)
    store.enqueue([Item(job="job") for _ in range(8)])
    first, second, *held = take(store, "s1", 8, {"f"}, lease=LEASE)
    settle(store, [an_end(id=one.id, token=one.token, state=State.SUCCEEDED) for one in (first, second)])
    with store._write_transaction() as tx:  # their numbers are those of other runs, which are recorded
        for over, one in ((first, held[2]), (second, held[4])):
            tx.connection.execute_text(
                f"UPDATE {store._url.schema}.cronsensus_occurrences SET token = {over.token} WHERE id = {one.id}"
            )
    store.close_session("s1")
    assert len(store.unreadable) == 2
    waits, stays = State.PENDING, State.RUNNING
    assert [store.occurrence(one.id).state for one in held] == [waits, waits, stays, waits, stays, waits]
    store.open_session(a_session("s2"), lease=LEASE)
    assert len(take(store, "s2", 8, {"f"}, lease=LEASE)) == 4


def test_a_commit_whose_answer_is_lost_is_resolved_by_asking_again(open_postgres, monkeypatch):
    store = open_postgres()
    work_with(store)
    made = store.enqueue([Item(job="job", key="mine")])[0]
    [claim] = take(store, "s1", 1, {"f"}, lease=LEASE)
    outcome = an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)
    commit = psycopg.Connection.commit

    def commit_and_lose(self: psycopg.Connection) -> None:
        commit(self)
        self.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr("cronsensus.stores.sql.postgres.postgres_driver.BoundedConnection.commit", commit_and_lose)
        with pytest.raises(StoreUnavailable, match="connection was lost"):
            settle(store, [outcome])
    assert [answer.accepted for answer in settle(store, [outcome])] == [True]
    assert len(store.runs(made.id)) == 1


def test_a_server_that_is_killed_and_comes_back_has_what_it_said(open_postgres):
    with PostgresServer() as durable:
        store = open_postgres(at=durable.url)
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


def test_a_store_that_was_closed_says_so(open_postgres):
    store = open_postgres()
    store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.look()
    assert store.wait(0.01) is False


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_takes_its_own_connections_and_leaves_the_parents_alone(open_postgres):
    import os

    store = open_postgres()
    work_with(store)
    store.wait(0.0)
    pids = backends(store)
    child = os.fork()
    if child == 0:
        ok = store.look().now is not None and len(store.jobs()) == 1
        store.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.jobs()) == 1
    heard = threading.Event()
    thread = threading.Thread(target=lambda: heard.set() if store.wait(20) else None)
    thread.start()
    other = open_postgres()
    eventually(lambda: (other.notify(), heard.wait(0.05))[1])
    thread.join()
    assert pids & backends(store), "the ear was not cut off by the child"


def backends(store: PostgresStore) -> set[int]:
    driver = store._wake_ups._driver
    return set() if driver is None else {driver.info.backend_pid}


def cut(store: PostgresStore) -> None:
    """End all connections to the store's schema but our own, as an administrator or a failover does."""
    with psycopg.connect(store._url_and_clock[0].partition("?")[0], autocommit=True) as connection:
        pids = [driver_of(idle).info.backend_pid for idle in store._connections._idle]
        pids += _in_transaction(connection, store)
        for pid in pids:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def _in_transaction(connection: psycopg.Connection, store: PostgresStore) -> list[int]:
    rows = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE %s",
        [f"%{store._url.schema}%"],
    )
    return [pid for (pid,) in rows]


def eventually(condition: Callable[[], object], seconds: float = 60) -> object:
    """Return what a condition says once it is true; look again and again, as nobody tells."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.01)
    return found


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
