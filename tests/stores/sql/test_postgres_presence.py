"""Signs of life: seen while a process lives, gone when it dies, and never missed without having been there."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from cronsensus import Scheduler
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.postgres.presence import key_of
from cronsensus.testing.conformance.scene import a_session
from tests.servers.postgres import PostgresServer

LEASE = timedelta(minutes=5)
NODE = """
import sys, threading
from datetime import timedelta
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.testing.conformance.scene import a_session

url, name = sys.argv[1:3]
store, ear = PostgresStore(url), PostgresStore(url)
store.open_session(a_session(name), lease=timedelta(minutes=5))
ear.attend(name)
ear.wait(0.0)

def listen():
    while True:
        try:
            ear.wait(60)
        except Exception:
            threading.Event().wait(0.05)

threading.Thread(target=listen, daemon=True).start()
store.claim(name, 1, {"f"}, lease=timedelta(minutes=5))
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Node:
    """A process with a session that shows a sign of life and holds a run."""

    def __init__(self, url: str, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, what: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def start_node(postgres_url):
    made: list[Node] = []

    def start(name: str, url: str = postgres_url) -> Node:
        made.append(Node(url, name))
        return made[-1]

    yield start
    for node in made:
        node.kill()


@pytest.fixture
def watcher(open_postgres) -> PostgresStore:
    store: PostgresStore = open_postgres()
    prepare(store)
    return store


def prepare(store: PostgresStore) -> None:
    store.put_jobs([JobSpec(name="job", function="f")], release="r1")
    store.enqueue([Item(job="job") for _ in range(4)])
    store.open_session(a_session("watcher"), lease=LEASE)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.01)


def test_who_lives_is_not_absent_and_who_was_killed_is_at_once(watcher, start_node):
    alive, killed = start_node("alive"), start_node("killed")
    assert watcher.look().absent == ()
    killed.kill()
    until(lambda: watcher.look().absent == ("killed",), 5)
    assert {holder.id for holder in watcher.look().holders} == {"alive", "killed"}
    assert alive.ask("store.look().absent") == "('killed',)" or alive.ask("store.look().absent") == "()"
    assert watcher.look().absent == ("killed",)


def test_who_was_never_seen_to_live_is_not_missed(watcher, start_node, open_postgres):
    start_node("killed").kill()
    until(lambda: not signs(watcher, "killed"))
    assert watcher.look().absent == ()
    open_postgres().open_session(a_session("mute"), lease=LEASE)  # shows no sign, as behind a pooler
    assert watcher.look().absent == ()
    assert watcher.look().absent == ()


def test_who_was_seen_through_another_connection_is_not_missed(watcher, start_node):
    """As after a restart of the server, when everybody comes back at a time of his own."""
    node = start_node("killed")
    assert watcher.look().absent == ()
    watcher._connections.forget_idle()
    node.kill()
    until(lambda: not signs(watcher, "killed"))
    assert watcher.look().absent == ()


def test_a_process_that_was_frozen_is_not_absent(watcher, start_node):
    node = start_node("frozen")
    assert watcher.look().absent == ()
    os.kill(node.process.pid, signal.SIGSTOP)
    assert watcher.look().absent == ()
    os.kill(node.process.pid, signal.SIGCONT)


def test_a_living_process_whose_connection_was_cut_comes_back_at_once(watcher, start_node, postgres_server_url):
    node = start_node("alive")
    pid = node.ask("ear._wake._driver.info.backend_pid")
    assert watcher.look().absent == ()
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    until(lambda: signs(watcher, "alive") == 1)  # where nothing else runs, after 10 ms
    assert watcher.look().absent == ()


def test_a_process_is_missed_only_when_both_of_its_connections_are_gone(watcher, start_node, postgres_server_url):
    node = start_node("alive")
    node.ask("store.attend('alive')")
    node.ask("store.renew('alive', lease=timedelta(minutes=5))")
    assert signs(watcher, "alive") == 2
    assert watcher.look().absent == ()
    ear = node.ask("(ear.close(), store._connections._idle[-1].connection.dbapi_connection.info.backend_pid)[1]")
    until(lambda: signs(watcher, "alive") == 1)
    assert watcher.look().absent == ()
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [ear])
    assert watcher.look().absent == ("alive",)
    node.ask("store.renew('alive', lease=timedelta(minutes=5))")
    assert watcher.look().absent == ()


def test_a_node_shows_its_sign_of_life_on_two_connections(watcher, postgres_url):
    scheduler = Scheduler(postgres_url)
    scheduler.job(name="idle")(lambda: None)
    scheduler.start()
    try:
        [session] = [one.id for one in watcher.sessions() if one.id != "watcher"]
        until(lambda: signs(watcher, session) == 2)
    finally:
        scheduler.stop()


def test_a_session_that_follows_another_takes_its_place(watcher, start_node):
    node = start_node("first")
    node.ask("store.open_session(a_session('second'), lease=timedelta(minutes=5))")
    node.ask("ear.attend('second')")
    until(lambda: node.ask("ear._wake._shown") == "second")
    assert watcher.look().absent == ()
    assert (signs(watcher, "first"), signs(watcher, "second")) == (0, 1)
    node.kill()
    until(lambda: watcher.look().absent == ("second",), 5)


def test_after_a_restart_of_the_server_nobody_is_missed_and_then_the_dead_are(open_postgres, start_node):
    with PostgresServer(durable=False) as server:
        watcher = open_postgres(at=server.url)
        prepare(watcher)
        node = start_node("alive", server.url)
        assert watcher.look().absent == ()
        server.restart()
        assert watcher.look().absent == ()
        until(lambda: signs(watcher, "alive") == 1)
        assert watcher.look().absent == ()
        node.kill()
        until(lambda: watcher.look().absent == ("alive",), 5)
        watcher.close()


def test_a_forked_child_does_not_keep_the_sign_of_its_dead_parent(watcher, start_node):
    node = start_node("parent")
    assert watcher.look().absent == ()
    child = int(node.ask("__import__('os').fork() or __import__('signal').pause()"))
    try:
        node.kill()
        until(lambda: watcher.look().absent == ("parent",), 5)
    finally:
        os.kill(child, signal.SIGKILL)


def test_looking_for_signs_costs_nothing_where_nobody_holds_anything(open_postgres, monkeypatch):
    store = open_postgres()
    store.open_session(a_session("s1"), lease=LEASE)
    store.open_session(a_session("s2"), lease=LEASE)
    store.look()
    sent: list[str] = []
    execute = psycopg.RawCursor.execute

    def noted(cursor, query, *args, **more):
        sent.append(query)
        return execute(cursor, query, *args, **more)

    monkeypatch.setattr(psycopg.RawCursor, "execute", noted)
    store.look()
    assert len(sent) == 1
    assert "pg_locks" not in sent[0]


def signs(store: PostgresStore, session: str) -> int:
    """Count the processes that show that a session lives. Other tests use the same server at the same time."""
    with psycopg.connect(store._given[0].partition("?")[0]) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON database = pg_database.oid "
            "WHERE locktype = 'advisory' AND datname = current_database() "
            "AND (classid::bigint << 32) | objid::bigint = %s",
            [key_of(*store._place, session)],
        ).fetchone()
    return int(row[0]) if row else 0
