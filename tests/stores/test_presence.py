"""Signs of life: there while a process lives, gone when it dies, and never missed without having been there."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psutil
import psycopg
import pytest
import redis

from cronsensus import Scheduler
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores import Store, open_store
from cronsensus.stores.presence import MOST_UNANSWERED_LOOKS
from cronsensus.stores.sql.mysql.mysql_presence import names_of
from cronsensus.stores.sql.postgres.postgres_presence import key_of
from cronsensus.testing.conformance.fixtures import a_session
from tests.servers.fixtures import mysql_connection
from tests.servers.mysql import mysql_or_mariadb
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

LEASE = timedelta(minutes=5)
SERVERS: dict[str, Callable[..., Any]] = {"postgres": PostgresServer, "mysql": mysql_or_mariadb, "redis": RedisServer}
NODE = """
import os, signal, sys, threading
from datetime import timedelta
import psutil
from cronsensus.model.step import Step, Want
from cronsensus.stores import open_store
from cronsensus.testing.conformance.fixtures import a_session

LEASE = timedelta(minutes=5)

def ports():
    return {one.laddr.port for one in psutil.Process().net_connections()}

url, name = sys.argv[1:3]
store, ear = open_store(url), open_store(url)
ear.register_presence(name)
ear.wait(0.0)
if not (EAR := ports()):  # where a wait that is over has shown nothing
    raise SystemExit("no connection is kept for the sign")

closed = threading.Event()

def listen():
    while not closed.is_set():
        try:
            ear.wait(60)
        except Exception:
            threading.Event().wait(0.05)

threading.Thread(target=listen, daemon=True).start()
store.open_session(a_session(name), lease=LEASE)
store.step(name, Step(want=Want(limit=1, functions=["f"], lease=LEASE)))
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
SCHEDULER = """
import sys, threading
from cronsensus import Scheduler

scheduler = Scheduler(sys.argv[1], lease="60s")

@scheduler.job()
def work() -> None:
    print("runs", flush=True)
    threading.Event().wait()

scheduler.start()
work.options(key="a").enqueue()
sys.stdin.read()
"""


class Node:
    """A process with a session that shows a sign of life and holds a run."""

    def __init__(self, url: str, name: str, script: str = NODE, ready: str = "ready") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == ready + "\n"

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


class Place:
    """An empty place on a server; handles on it, processes that use it, and what its server says and does."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self.opened: list[Store] = []
        self.nodes: list[Node] = []

    def open(self) -> Any:
        self.opened.append(open_store(self.url))
        return self.opened[-1]

    def start(self, name: str) -> Node:
        self.nodes.append(Node(self.url, name))
        return self.nodes[-1]

    def watcher(self) -> Any:
        store = self.open()
        store.migrate()
        store.define_jobs([JobSpec(name="job", function="f")], release="r1")
        store.enqueue([Item(job="job") for _ in range(4)])
        store.open_session(a_session("watcher"), lease=LEASE)
        return store

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        for store in self.opened:
            store.close()

    def signs(self, session: str) -> int:
        """Count the connections that show that a session lives. Other tests use the same server at the same time."""
        store: Any = self.opened[0]
        match self.kind:
            case "postgres":
                with psycopg.connect(self.url.partition("?")[0]) as connection:
                    row = connection.execute(
                        "SELECT count(*) FROM pg_locks JOIN pg_database ON database = pg_database.oid "
                        "WHERE locktype = 'advisory' AND datname = current_database() "
                        "AND (classid::bigint << 32) | objid::bigint = %s",
                        [key_of(*store._place, session)],
                    ).fetchone()
                return int(row[0]) if row else 0
            case "mysql":
                with mysql_connection(self.url) as mysql, mysql.cursor() as cursor:
                    names = names_of(store._place, session)
                    cursor.execute("SELECT " + " + ".join(f"IF(IS_FREE_LOCK('{name}'), 0, 1)" for name in names))
                    return int(cursor.fetchall()[0][0])
            case _:
                with redis.Redis.from_url(self.url.partition("?")[0]) as client:
                    return int(client.pubsub_numsub(store._keyspace.sign_channel(session))[0][1])

    def cut(self, ports: set[int]) -> None:
        """Have the server end the connections that come from these ports, as an administrator may."""
        match self.kind:
            case "postgres":
                with psycopg.connect(self.url.partition("?")[0], autocommit=True) as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE client_port = ANY(%s)",
                        [list(ports)],
                    )
            case "mysql":
                with mysql_connection(self.url) as mysql, mysql.cursor() as cursor:
                    cursor.execute("SELECT id, host FROM information_schema.processlist")
                    for thread, host in cursor.fetchall():
                        if int(host.partition(":")[2] or 0) in ports:  # the server's own threads have no port
                            cursor.execute(f"KILL {thread}")
            case _:
                with redis.Redis.from_url(self.url.partition("?")[0]) as client:
                    for one in client.client_list():
                        if int(one["addr"].rpartition(":")[2]) in ports:
                            client.client_kill(one["addr"])


@pytest.fixture(params=["postgres", "mysql", "redis"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.param, request.getfixturevalue(f"{request.param}_url"))
    yield made
    made.close()


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        threading.Event().wait(0.01)


def connect_anew(store: Any) -> None:
    """Have a handle use connections that it has not used before."""
    if hasattr(store, "_connections"):
        store._connections.forget_idle()
    else:
        store._client._cool_down()
        store._client._route.pool().disconnect()


def test_a_killed_process_is_absent_and_one_that_lives_or_is_frozen_is_not(place: Place) -> None:
    watcher, stranger = place.watcher(), place.open()
    alive, killed = place.start("alive"), place.start("killed")
    killed.ask("(store.register_presence('killed'), store.renew('killed', lease=LEASE))")
    assert watcher.look().absent == ()
    killed.kill()
    until(lambda: watcher.look().absent == ("killed",), 5)
    assert {holder.id for holder in watcher.look().holders} == {"alive", "killed"}
    # It was never seen to live through these connections, as after a restart of the server.
    assert stranger.look().absent == ()
    connect_anew(watcher)
    assert watcher.look().absent == ()
    os.kill(alive.process.pid, signal.SIGSTOP)
    assert watcher.look().absent == ()
    os.kill(alive.process.pid, signal.SIGCONT)
    place.open().open_session(a_session("mute"), lease=LEASE)  # shows no sign, as behind a pooler
    assert watcher.look().absent == ()
    assert watcher.look().absent == ()


def test_the_sign_of_a_killed_process_is_missed_by_one_that_asks_for_the_first_time(place: Place) -> None:
    place.watcher()
    alive, killed, mute = place.start("alive"), place.start("killed"), place.start("mute")
    for name, node in {"alive": alive, "killed": killed}.items():
        node.ask(f"(store.register_presence('{name}'), store.renew('{name}', lease=LEASE))")
    mute.ask("store." + note(place, "mute", False))
    names = ["alive", "killed", "mute", "nobody"]
    assert place.open().signs(names) == {"alive": True, "killed": True, "mute": True}
    for node in (killed, mute):
        node.kill()
    until(lambda: place.open().signs(names) == {"alive": True, "killed": False}, 5)


def note(place: Place, session: str, shown: bool) -> str:
    """Return what a handle says to write down whether a session shows its sign."""
    verb = "_write_script('note_sign', '{}', {})" if place.kind == "redis" else "_note_sign('{}', shown={})"
    return verb.format(session, shown)


def test_a_process_that_wrote_down_its_sign_is_absent_where_none_has_seen_it(place: Place) -> None:
    watcher = place.watcher()
    assert watcher.look().absent == ()  # from here on this connection is open
    nodes = {name: place.start(name) for name in ("noted", "silent", "withdrawn")}
    nodes["noted"].ask("(store.register_presence('noted'), store.renew('noted', lease=LEASE))")
    nodes["withdrawn"].ask("store." + note(place, "withdrawn", False))
    for name, node in nodes.items():
        node.kill()
        until(lambda name=name: place.signs(name) == 0)  # type: ignore[misc]
    # This connection is younger than all of them, as after a restart of the server.
    assert place.open().look().absent == ()
    assert watcher.look().absent == ("noted",)


def test_a_withdrawn_sign_is_not_missed(place: Place) -> None:
    watcher, node = place.watcher(), place.start("node")
    assert watcher.look().absent == ()
    node.ask("store." + note(place, "node", False))
    node.kill()
    until(lambda: place.signs("node") == 0)
    assert watcher.look().absent == ()


def test_a_session_says_that_it_shows_a_sign_only_where_the_server_shows_it(place: Place) -> None:
    store: Any = place.watcher()
    write = {shown: f"store.{note(place, 'watcher', shown)}" for shown in (True, False)}
    assert not eval(write[True])
    store.register_presence("watcher")
    store.renew("watcher", lease=LEASE)
    assert eval(write[True])
    assert not eval(write[False])


def test_a_living_process_is_missed_only_while_both_of_its_connections_are_gone(place: Place) -> None:
    watcher, node = place.watcher(), place.start("alive")
    assert watcher.look().absent == ()
    place.cut(eval(node.ask("EAR")))
    until(lambda: place.signs("alive") == 1)  # where nothing else runs, after 10 ms
    assert watcher.look().absent == ()
    node.ask("(store.register_presence('alive'), store.renew('alive', lease=LEASE))")
    assert place.signs("alive") == 2
    node.ask("(closed.set(), ear.close())")
    until(lambda: place.signs("alive") == 1)
    assert watcher.look().absent == ()
    place.cut(eval(node.ask("ports()")))
    until(lambda: watcher.look().absent == ("alive",), 5)
    node.ask("store.renew('alive', lease=LEASE)")
    assert watcher.look().absent == ()


def test_the_sign_follows_the_session_and_is_not_kept_by_a_forked_child(place: Place) -> None:
    watcher, node = place.watcher(), place.start("first")
    node.ask("store.open_session(a_session('second'), lease=LEASE)")
    node.ask("ear.register_presence('second')")
    until(lambda: (place.signs("first"), place.signs("second")) == (0, 1))
    assert watcher.look().absent == ()
    child = int(node.ask("os.fork() or signal.pause()"))
    try:
        assert place.signs("second") == 1
        node.kill()
        until(lambda: watcher.look().absent == ("second",), 5)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_node_whose_connections_are_all_cut_keeps_its_runs(place: Place) -> None:
    survivor = Scheduler(place.url, lease="60s")

    def work() -> None:
        raise AssertionError("it was taken over")

    survivor.job()(work)
    place.open()
    victim = Node(place.url, "", SCHEDULER, "runs")
    place.nodes.append(victim)
    with survivor:
        [mine, its] = sorted(place.opened[0].sessions(), key=lambda one: one.pid != os.getpid())
        until(lambda: (place.signs(mine.id), place.signs(its.id)) == (2, 2))
        for _ in range(3):
            place.cut({one.laddr.port for one in psutil.Process(victim.process.pid).net_connections()})
            until(lambda: place.signs(its.id) >= 1)
        threading.Event().wait(1)
        [session] = [one for one in place.opened[0].sessions() if one.id == its.id]
        assert (session.state, session.holds) == ("alive", 1)


def test_a_node_that_dies_as_soon_as_it_runs_something_is_missed_by_one_that_never_saw_it(place: Place) -> None:
    watcher = place.open()
    watcher.migrate()
    watcher.look()
    place.nodes.append(Node(place.url, "", SCHEDULER, "runs"))
    place.nodes[0].kill()
    [session] = watcher.sessions()
    until(lambda: place.signs(session.id) == 0)
    assert watcher.look().absent == (session.id,)


def test_sign_first_shown_after_another_session_was_opened_is_missed_by_that_one_in_its_first_look(
    place: Place,
) -> None:
    place.watcher()
    older = place.start("older")
    observer = place.start("observer")
    younger = place.start("younger")
    for name, node in (("older", older), ("younger", younger)):
        node.ask(f"(store.register_presence('{name}'), store.renew('{name}', lease=LEASE))")
        node.kill()
        until(lambda name=name: place.signs(name) == 0)  # type: ignore[misc]
        # Its sign is older than the session of this one, and may have gone with a restart of the server.
        assert name not in place.start(f"later-than-{name}").ask("store.look().absent")
    assert observer.ask("store.look().absent") == "('older', 'younger')"


@pytest.mark.parametrize("kind", SERVERS)
def test_after_a_restart_of_the_server_nothing_is_missed_and_then_the_dead_are(kind: str) -> None:
    with SERVERS[kind](durable=True) as server:
        place = Place(kind, server.url)
        try:
            watcher, node = place.watcher(), place.start("alive")
            assert watcher.look().absent == ()
            server.restart()
            assert watcher.look().absent == ()
            until(lambda: place.signs("alive") == 1)
            assert watcher.look().absent == ()
            node.kill()
            until(lambda: watcher.look().absent == ("alive",), 5)
        finally:
            place.close()


def test_looking_for_signs_costs_nothing_while_no_other_session_holds_anything(place: Place) -> None:
    store = place.open()
    store.migrate()
    for session in ("s1", "s2"):
        store.open_session(a_session(session), lease=LEASE)
    for _ in range(MOST_UNANSWERED_LOOKS):  # another session may show its sign a moment after it was opened
        store.look()
    asked: list[object] = []
    with pytest.MonkeyPatch.context() as patched:
        if place.kind == "redis":

            def note(*seen: object) -> tuple[str, ...]:
                asked.append(seen[2])
                return ()

            patched.setattr(store._observer, "note_signs", note)
        else:
            patched.setattr(store, "_list_present", lambda *_: asked.append("asked"))
        store.look()
    assert asked == ([None] if place.kind == "redis" else [])
