"""Behind PgBouncer, which gives a client another server connection for each transaction: the same verbs, but no
notifications."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from cronsensus.stores import Store
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.testing.conformance import Basics, Claiming, Racing
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, settle, take
from cronsensus.timing.clock import Clock
from tests.servers.fixtures import with_query
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

LEASE = timedelta(minutes=5)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=False) as made:
        yield made


@pytest.fixture(scope="module")
def bouncer(server: PostgresServer) -> Iterator[PgBouncer]:
    # Few, so that clients do share them.
    with PgBouncer(server, pool_size=3) as made:
        yield made


@pytest.fixture
def schema(server: PostgresServer) -> Iterator[str]:
    name = f"test_{time.monotonic_ns()}"
    yield name
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def store(bouncer: PgBouncer, schema: str) -> Iterator[PostgresStore]:
    made = PostgresStore(with_query(bouncer.url, schema=schema))
    made.migrate()
    yield made
    made.close()


class TestBehindAPooler(Racing, Claiming, Basics):
    @pytest.fixture(autouse=True)
    def _place(self, bouncer: PgBouncer, schema: str) -> None:
        self.url = with_query(bouncer.url, schema=schema)

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        store = PostgresStore(self.url, namespace=namespace, clock=clock)
        store.now()  # a store knows only after the first look that somebody is between
        return store


def test_a_pooler_is_noticed_and_named(store, server, schema):
    assert not store.capabilities.notify
    assert not store.sibling().capabilities.notify
    described = store.describe()
    assert "pooler" in described["pooler"]
    assert "none through a pooler" in described["wake_ups"]
    assert "none through a pooler" in described["evidence_of_death"]
    direct = PostgresStore(with_query(server.url, schema=schema))
    assert direct.describe()["pooler"] == "none"
    assert direct.capabilities.notify
    direct.close()


@pytest.mark.parametrize("verb", ["lock", "unlock"])
def test_a_lock_is_the_first_verb_of_a_process_that_does_not_know_of_a_pooler(
    bouncer: PgBouncer, store: PostgresStore, schema: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = store.lock("lock", "somebody", ttl=LEASE)
    assert held is not None
    monkeypatch.setattr("cronsensus.stores.sql.postgres.postgres_dialect._pooled", {})
    fresh = PostgresStore(with_query(bouncer.url, schema=schema))
    if verb == "lock":
        assert fresh.lock("other", "me", ttl=LEASE) is not None
    else:
        assert fresh.unlock(held)
    fresh.close()


def test_a_pooler_may_be_declared(server, schema):
    """One that keeps a connection for each client, or one that cannot be noticed."""
    with PgBouncer(server) as another:  # what is set for a session would stay in connections that others get
        session = PostgresStore(with_query(another.url, schema=schema, pooler="session"))
        session.now()
        assert session.capabilities.notify
        session.close()
    told = PostgresStore(with_query(server.url, schema=schema, pooler="transaction"))
    assert not told.capabilities.notify
    told.now()
    assert not told.capabilities.notify
    told.close()


@pytest.mark.parametrize("queued", [False, True], ids=["a trip for itself", "with what waits"])
def test_settings_behind_a_pooler_last_for_one_transaction(store, bouncer, queued):
    with psycopg.connect(bouncer.url, autocommit=True, prepare_threshold=None) as other:
        other.execute("RESET ALL")  # a store that was told of a session's pooler may have been here before
    with store._write_transaction(queued=queued) as tx:
        assert tx.now
        ours = tx.connection.execute_text("SHOW enable_seqscan").fetchone()[0]
    with psycopg.connect(bouncer.url, autocommit=True, prepare_threshold=None) as other:
        theirs = [other.execute("SHOW enable_seqscan").fetchone() for _ in range(5)]
    assert ours == "off"
    assert set(theirs) == {("on",)}


def test_pooled_connections_keep_no_prepared_statement(store, server):
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    for number in range(12):
        store.enqueue([Item(job="job", key=str(number))])
        [claim] = take(store, "s1", 1, {"f"}, lease=LEASE)
        assert settle(store, [an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)])[0].accepted
    assert store.look().absent == ()
    for _ in range(6):
        with store._write_transaction() as tx:
            assert tx.connection.execute_text("SELECT count(*) FROM pg_prepared_statements").fetchone()[0] == 0


def test_waiting_is_only_waiting_and_ends_at_the_close(store):
    begun = time.monotonic()
    store.notify()
    assert store.wait(0.1) is False
    assert time.monotonic() - begun >= 0.09
    ended = threading.Event()

    def wait() -> None:
        store.wait(600)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    assert ended.wait(60)
    thread.join()


def test_no_sign_of_life_is_shown_and_none_is_missed(store, server):
    store.register_presence("s1")
    store.wait(0.0)
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    store.enqueue([Item(job="job")])
    for name in ("s1", "s2"):
        store.open_session(a_session(name), lease=LEASE)
    take(store, "s1", 1, {"f"}, lease=LEASE)
    assert store.look().absent == ()
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert row == (0,)


def test_a_run_is_enqueued_in_a_transaction_behind_the_pooler(store: PostgresStore, bouncer: PgBouncer) -> None:
    store.define_jobs([JobSpec(name="bill", function="bill")], release="r1")
    with psycopg.connect(bouncer.url, prepare_threshold=None) as users:
        for ends in (users.rollback, users.commit):
            [made] = store.enqueue_in(users, [Item(job="bill", key="k")])
            assert made.created
            assert store.occurrence(made.id) is None
            ends()
    assert store.counts().pending == 1
