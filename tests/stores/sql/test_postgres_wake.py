"""Wake-ups by LISTEN and NOTIFY: heard by the others, of one namespace, and again after the connection was cut."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from cronsensus.errors import StoreUnavailable
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores import poller
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres import postgres_dialect as dialect
from cronsensus.stores.sql.postgres.pipeline import Part, run_pipeline
from tests.servers.fixtures import with_query
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy


class Ear:
    """A thread that waits on a handle, again and again, as a node's listener does."""

    def __init__(self, store: PostgresStore, patience: float = 60) -> None:
        self.store, self._patience = store, patience
        self.heard = threading.Semaphore(0)
        self.errors: list[StoreUnavailable] = []
        self._stopped = threading.Event()
        store.wait(0.0)  # from here on nothing is missed
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                if self.store.wait(self._patience):
                    self.heard.release()
            except StoreUnavailable as error:
                self.errors.append(error)
                self._stopped.wait(0.02)

    @property
    def pid(self) -> int:
        driver = self.store._wake_ups._driver
        return 0 if driver is None else driver.info.backend_pid

    def hears(self, seconds: float = 20) -> bool:
        return self.heard.acquire(timeout=seconds)

    def stop(self) -> None:
        self._stopped.set()
        self.store.close()
        self._thread.join(20)
        assert not self._thread.is_alive()


def wait_until(holds: Callable[[], Any], what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what}: in vain"
        time.sleep(0.01)


@pytest.fixture
def ear_on(open_postgres) -> Iterator[Callable[..., Ear]]:
    made: list[Ear] = []

    def listen(store: PostgresStore, patience: float = 60) -> Ear:
        made.append(Ear(store, patience))
        return made[-1]

    yield listen
    for ear in made:
        ear.stop()


def test_notification_reaches_other_handles_and_not_its_own(open_postgres, ear_on):
    ear, teller = ear_on(open_postgres()), open_postgres()
    teller.notify()
    assert ear.hears()
    ear.store.notify()
    assert not ear.hears(0.1)
    teller.notify()
    assert ear.hears()


def test_a_connection_that_is_open_and_delivers_nothing_is_noticed_and_made_anew(
    open_postgres, ear_on, monkeypatch, postgres_url, caplog
):
    monkeypatch.setattr(poller, "SILENT", 0.2)
    with Proxy(postgres_url) as proxy:
        store, teller = PostgresStore(with_query(proxy.url, timeout="1s")), open_postgres()
        ear = ear_on(store, 0.1)
        assert not ear.hears(1.0)  # it is asked, answers, and stays
        driver = store._wake_ups._driver
        assert driver is not None
        assert not driver.closed
        proxy.drop("down")
        wait_until(lambda: driver.closed, "the end of the deaf connection", 30)
        # It is told an instant later.
        wait_until(lambda: "delivers nothing; it is made anew" in caplog.text, "a word on the deaf connection", 30)
        proxy.pass_on()

        def hears_another() -> bool:
            teller.notify()
            return bool(ear.hears(0.1))

        wait_until(hears_another, "a notification on the new connection", 60)


def test_enqueue_notifies_in_the_trip_of_its_commit_and_after_it(open_postgres, ear_on, monkeypatch):
    ear, store = ear_on(open_postgres()), open_postgres()
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    trips: list[list[str]] = []

    def noted(driver: Any, parts: Sequence[Part]) -> list[Sequence[Any]]:
        trips.append([one.pending.query.name if one.pending else one.text.text.decode() for one in parts])
        return run_pipeline(driver, parts)

    store.enqueue([Item(job="job")])  # reads the definition
    assert ear.hears()
    monkeypatch.setattr(dialect, "run_together", noted)
    store.enqueue([Item(job="job")])
    assert ear.hears()
    assert len(trips) == 1
    assert trips[-1][-2:] == ["COMMIT", "notify_nodes"], "a transaction that notifies holds a lock of the whole server"


@pytest.mark.parametrize("pipelines", [True, False])
def test_notification_that_fails_after_the_commit_fails_no_verb(open_postgres, monkeypatch, pipelines):
    store = open_postgres()
    store.define_jobs([JobSpec(name="job", function="f")], release="r1")
    monkeypatch.setattr(dialect, "has_pipeline", lambda: pipelines)
    store._wake_ups.channel = "x" * 64  # the server refuses it
    for _ in range(2):
        (one,) = store.enqueue([Item(job="job")])
        assert store.occurrence(one.id).state == "pending"
    assert len(store._connections._idle) == 1


def test_notification_stays_within_its_namespace_and_schema(postgres_url, open_postgres, ear_on):
    ear = ear_on(open_postgres())
    here, there = open_postgres(), PostgresStore(postgres_url, namespace="another")
    elsewhere = PostgresStore(with_query(postgres_url.partition("?")[0], schema="test_elsewhere"))
    for other in (there, elsewhere):
        other.notify()
        other.close()
    assert not ear.hears(0.1)
    here.notify()
    assert ear.hears()


def test_the_name_of_a_channel_fits_whatever_the_namespace_is_called(postgres_url):
    names = {PostgresStore(postgres_url, namespace=name)._wake_ups.channel for name in ("a", "é" * 200, 'x"y', "A")}
    assert len(names) == 4
    assert max(len(name.encode()) for name in names) <= 63


def test_cut_connection_counts_as_a_notification_and_is_replaced_at_once(open_postgres, ear_on, postgres_server_url):
    ear, teller = ear_on(open_postgres()), open_postgres()
    before = ear.pid
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", [before])
    assert ear.hears(), "what was sent meanwhile is lost, so it has to look"
    assert ear.pid not in {0, before}
    assert ear.errors == []
    teller.notify()
    assert ear.hears()


def test_while_the_server_is_away_waiting_says_so_and_later_it_hears_again(open_postgres, ear_on):
    with PostgresServer(durable=False) as server:
        ear, teller = ear_on(open_postgres(at=server.url)), open_postgres(at=server.url)
        server.kill9()
        until = time.monotonic() + 20
        while not ear.errors:
            assert time.monotonic() < until
            threading.Event().wait(0.01)
        server.start()
        while not ear.hears(0.05):
            assert time.monotonic() < until + 20
            teller.notify()
        ear.stop()
        teller.close()


def test_notify_never_raises(open_postgres):
    with PostgresServer(durable=False) as server:
        store = open_postgres(at=server.url)
        server.kill9()
        store.notify()
        store.close()
        store.notify()


def test_closing_ends_a_wait(open_postgres):
    store = open_postgres()
    store.wait(0.0)
    ended = threading.Event()

    def wait() -> None:
        store.wait(600)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    assert ended.wait(60)
    thread.join()
    assert store._wake_ups._driver is None


def test_a_wait_ends_when_its_time_is_up(open_postgres):
    store = open_postgres()
    begun = time.monotonic()
    assert store.wait(0.2) is False
    assert 0.19 <= time.monotonic() - begun < 10


def test_waiting_asks_the_server_nothing(open_postgres):
    """An idle cluster lets its database sleep."""
    store = open_postgres()
    store.wait(0.0)
    driver = store._wake_ups._driver
    assert driver is not None
    sent: list[object] = []
    execute = psycopg.RawCursor.execute

    def noted(*args, **more):
        sent.append(args)
        return execute(*args, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(psycopg.RawCursor, "execute", noted)
        store.wait(0.3)
    assert sent == []
