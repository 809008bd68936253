"""A signal handler of the user's raises while a verb waits for the server: that is what the caller gets."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from cronsensus.model.job import JobSpec
from cronsensus.stores import open_store
from cronsensus.testing.conformance.fixtures import LEASE, a_session
from tests.servers.fixtures import mysql_connection
from tests.stores.sql.lock_waits import waits_for_a_lock

PATIENCE = 30.0


class Soft(Exception):
    """As Celery raises when a task has used up its soft time limit."""


class Blocker:
    """Keeps a table to itself, on a connection beside the store."""

    def __init__(self, url: str, table: str) -> None:
        self._url = url
        self._table = f"cronsensus_{table}"
        self._is_postgres = url.startswith("postgresql")
        if self._is_postgres:
            self._schema = make_url(url).query["schema"]
            self._connection: Any = psycopg.connect(
                make_url(url).difference_update_query(["schema"]).render_as_string(hide_password=False)
            )
        else:
            self._connection = mysql_connection(url)
            self._connection.begin()

    def block(self) -> None:
        table = f"{self._schema}.{self._table}" if self._is_postgres else self._table
        self._ask(
            f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE" if self._is_postgres else f"SELECT * FROM {table} FOR UPDATE"
        )

    @property
    def is_waited_for(self) -> bool:
        if not self._is_postgres:
            return waits_for_a_lock(self._url)
        relation = f"'{self._schema}.{self._table}'::regclass"
        return bool(self._ask(f"SELECT 1 FROM pg_locks WHERE NOT granted AND relation = {relation}"))

    def _ask(self, question: str) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(question)
        return cursor.fetchall() if cursor.description else None

    def close(self) -> None:
        self._connection.rollback()
        self._connection.close()


@contextmanager
def signalled_when(happened: Callable[[], bool], number: int) -> Iterator[None]:
    """Send this thread a signal once something is so."""
    ended, target = threading.Event(), threading.main_thread().ident
    assert target is not None

    def watch() -> None:
        while not ended.wait(0.01):
            if happened():
                signal.pthread_kill(target, number)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(PATIENCE)


@pytest.fixture(params=["postgres", "mysql"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.mark.parametrize("raises", [Soft, KeyboardInterrupt])
def test_an_exception_out_of_a_handler_while_a_verb_waits_is_what_the_caller_gets(url, raises):
    def handler(*_: object) -> None:
        raise raises

    store = open_store(url)
    store.migrate()
    store.define_jobs([JobSpec(name="job", function="f")], release="r")
    blocker = Blocker(url, "jobs")
    blocker.block()
    former = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(raises), signalled_when(lambda: blocker.is_waited_for, signal.SIGUSR1):
            store.pause("job", by="ann", why="w")
    finally:
        signal.signal(signal.SIGUSR1, former)
        blocker.close()
    view = store.job("job")
    assert view is not None
    assert view.paused_at is None
    assert store.pause("job", by="ann", why="w")
    store.close()


@pytest.mark.parametrize("raises", [Soft, KeyboardInterrupt])
def test_an_exception_out_of_a_handler_while_statements_wait_together_is_what_the_caller_gets(url, raises):
    """The server has all of them, and is told that nobody waits any more; the next verb has a connection that works."""

    def handler(*_: object) -> None:
        raise raises

    store = open_store(url)
    store.migrate()
    store.open_session(a_session("s1"), lease=LEASE)
    blocker = Blocker(url, "sessions")
    blocker.block()
    former = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(raises), signalled_when(lambda: blocker.is_waited_for, signal.SIGUSR1):
            store.renew("s1", lease=2 * LEASE)
    finally:
        signal.signal(signal.SIGUSR1, former)
        blocker.close()
    assert store.renew("s1", lease=LEASE).beats == 1
    store.close()
