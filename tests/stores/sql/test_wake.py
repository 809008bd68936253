"""Wake-ups between processes on one host, and the hand-over of the write lock: notifications may be lost."""

import contextlib
import os
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.sql.sqlite import SqliteStore, pipes, write_lock_queue
from cronsensus.stores.sql.sqlite import sqlite_dialect as dialect
from cronsensus.stores.sql.sqlite import sqlite_wake as wake
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import take
from cronsensus.timing.clock import ManualClock

LONG = 60.0
"""Seconds that no test waits for unless something is broken."""

LISTEN = """
store = SqliteStore(url, namespace=sys.argv[2] if len(sys.argv) > 2 else "default")
store.wait(0)
say("listening")
while hear() == "go":
    say("woken" if store.wait(60) else "slept")
"""


@pytest.fixture
def store(open_sqlite: Callable[..., SqliteStore]) -> SqliteStore:
    return open_sqlite()


def listeners(place) -> list[str]:
    return sorted(path.name for path in (place / "jobs.db-wake").glob("*") if path.name != write_lock_queue.NAME)


def in_thread(act: Callable[[], object]) -> Callable[[], object]:
    """Begin to ``act``; what is returned waits for the answer."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(act()))
    thread.start()

    def answer() -> object:
        thread.join(LONG)
        assert answers, "it did not end"
        return answers[0]

    return answer


# --- between processes ------------------------------------------------------------------------------------------------


def test_a_process_wakes_another(store, run_child):
    child = run_child(LISTEN)
    assert child.hear() == "listening"
    for _ in range(3):
        child.say()
        store.notify()
        assert child.hear() == "woken"


def test_a_hint_that_came_since_the_last_wait_counts(store, run_child):
    child = run_child(LISTEN)
    assert child.hear() == "listening"
    store.notify()
    child.say()
    assert child.hear() == "woken"


def test_one_notify_wakes_all_listeners(store, run_child):
    children = [run_child(LISTEN) for _ in range(3)]
    assert [child.hear() for child in children] == ["listening"] * 3
    store.notify()
    for child in children:
        child.say()
    assert [child.hear() for child in children] == ["woken"] * 3


def test_pipe_of_a_killed_process_is_removed_when_found(store, run_child, place):
    dead, living = run_child(LISTEN), run_child(LISTEN)
    assert [dead.hear(), living.hear()] == ["listening"] * 2
    assert len(listeners(place)) == 2
    dead.process.send_signal(signal.SIGKILL)
    dead.process.wait()
    assert len(listeners(place)) == 2
    store.notify()
    assert len(listeners(place)) == 1
    living.say()
    assert living.hear() == "woken"


def test_frozen_process_delays_no_other_and_is_notified_when_it_goes_on(store, run_child, place):
    child = run_child(LISTEN)
    assert child.hear() == "listening"
    child.process.send_signal(signal.SIGSTOP)
    [name] = listeners(place)
    pipe = os.open(place / "jobs.db-wake" / name, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"!" * 4096)
    os.close(pipe)
    store.notify()
    child.process.send_signal(signal.SIGCONT)
    child.say()
    assert child.hear() == "woken"
    assert len(listeners(place)) == 1


def test_a_listener_that_ends_in_order_leaves_nothing_behind(open_sqlite, place):
    handle = open_sqlite()
    handle.wait(0)
    assert len(listeners(place)) == 1
    handle.close()
    assert listeners(place) == []


def test_telling_a_dead_listener_does_not_end_in_a_signal(store, run_child, place):
    """Command-line programs restore SIGPIPE's default, which kills."""
    dead = run_child(LISTEN)
    assert dead.hear() == "listening"
    dead.process.send_signal(signal.SIGKILL)
    dead.process.wait()
    teller = run_child("""
        import signal
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        store = SqliteStore(url)
        store.notify()
        store.migrate()
        say("alive")
    """)
    assert teller.hear() == "alive"


# --- whom it is for ---------------------------------------------------------------------------------------------------


def test_the_own_handle_is_not_woken_but_its_sibling_is(store):
    sibling = store.sibling()
    store.wait(0)
    sibling.wait(0)
    store.notify()
    assert not store.wait(0)
    assert sibling.wait(0)
    assert not sibling.wait(0)
    sibling.close()


def test_another_namespace_is_not_woken(store, open_sqlite):
    here, there = open_sqlite(), open_sqlite(namespace="another/../one")
    here.wait(0)
    there.wait(0)
    store.notify()
    assert here.wait(0)
    assert not there.wait(0)


def test_notify_without_listeners_does_nothing(store, place):
    store.notify()
    assert not (place / "jobs.db-wake").exists()


# --- lost, stale, unfinished ------------------------------------------------------------------------------------------


def test_removed_pipe_is_made_again(store, open_sqlite, place):
    listener = open_sqlite()
    listener.wait(0)
    [name] = listeners(place)
    (place / "jobs.db-wake" / name).unlink()
    assert not listener.wait(0)
    assert listeners(place) not in ([], [name])
    store.notify()
    assert listener.wait(0)


def test_the_directory_may_go_too(store, open_sqlite, place):
    listener = open_sqlite()
    listener.wait(0)
    for path in (place / "jobs.db-wake").iterdir():
        path.unlink()
    (place / "jobs.db-wake").rmdir()
    store.notify()
    assert not listener.wait(0)
    store.notify()
    assert listener.wait(0)


def test_a_pipe_that_is_being_made_is_left_alone_until_it_is_old(store, open_sqlite, place):
    listener = open_sqlite()
    listener.wait(0)
    [name] = listeners(place)
    unfinished = place / "jobs.db-wake" / f".new-{name}"
    os.mkfifo(unfinished)
    store.notify()
    open_sqlite().wait(0)
    assert unfinished.exists()
    os.utime(unfinished, (0, 0))
    open_sqlite().wait(0)
    assert not unfinished.exists()


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_waiting_ends_with_the_time_given(store):
    assert not store.wait(0.01)
    assert not store.wait(0)


def test_closing_ends_a_wait_in_another_thread(open_sqlite, place):
    handle = open_sqlite()
    handle.wait(0)
    answer = in_thread(lambda: handle.wait(LONG))
    handle.close()
    assert answer() is False
    assert listeners(place) == []
    assert not handle.wait(LONG), "and there is nothing to wait for any more"


def test_a_wait_in_a_thread_is_woken(store):
    listener = store.sibling()
    listener.wait(0)
    answer = in_thread(lambda: listener.wait(LONG))
    store.notify()
    assert answer() is True
    listener.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_listens_for_itself(run_child, store, place):
    child = run_child("""
        store = SqliteStore(url)
        store.wait(0)
        grandchild = os.fork()
        if grandchild == 0:
            store.wait(0)
            say("listening")
            say("child woken" if store.wait(60) else "child slept")
            store.close()
            os._exit(0)
        os.waitpid(grandchild, 0)
        say("parent woken" if store.wait(60) else "parent slept")
    """)
    assert child.hear() == "listening"
    assert len(listeners(place)) == 2
    store.notify()
    assert [child.hear(), child.hear()] == ["child woken", "parent woken"]


# --- permissions and systems without pipes ----------------------------------------------------------------------------


def test_users_of_the_database_file_may_use_its_pipes(store, open_sqlite, place):
    (place / "jobs.db").chmod(0o660)
    open_sqlite().wait(0)
    directory = place / "jobs.db-wake"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o770
    [name] = listeners(place)
    assert stat.S_IMODE((directory / name).stat().st_mode) == 0o660


def test_where_there_are_no_pipes_it_sleeps_and_says_so(monkeypatch, open_sqlite):
    monkeypatch.setattr(wake, "SUPPORTED", False)
    monkeypatch.setattr(write_lock_queue, "SUPPORTED", False)
    store, other = open_sqlite(), open_sqlite()
    assert not store.capabilities.notify
    assert "look by themselves" in store.describe()["wake_ups"]
    other.notify()
    assert not store.wait(0.01)
    answer = in_thread(lambda: store.wait(LONG))
    store.close()
    assert answer() is False


def test_where_a_pipe_cannot_be_made_it_sleeps_and_says_so(monkeypatch, open_sqlite):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mkfifo", refuse)
    store = open_sqlite()
    assert store.capabilities.notify
    assert not store.wait(0)
    assert not store.capabilities.notify


# --- handing over the write lock --------------------------------------------------------------------------------------


@pytest.mark.parametrize("supported", [True, False])
def test_writers_take_turns(supported, monkeypatch, open_sqlite):
    monkeypatch.setattr(write_lock_queue, "SUPPORTED", supported)
    stores = [open_sqlite("?busy_timeout=60s") for _ in range(3)]
    stores[0].define_jobs([JobSpec(name="queue", function="f")], release="r1")

    def work(store: SqliteStore) -> int:
        return len([store.enqueue([Item(job="queue")]) for _ in range(50)])

    answers = [in_thread(partial(work, store)) for store in stores]
    assert [answer() for answer in answers] == [50, 50, 50]
    assert stores[0].counts().pending == 150


def test_a_waiter_for_the_write_lock_is_notified_when_it_comes_free(place, monkeypatch):
    """With pauses of a minute between two tries, only the notification can have ended the wait."""
    (place / "jobs.db").touch()
    waiter, holder = (
        write_lock_queue.WriteLockQueue(place / "jobs.db", lambda _: None),
        write_lock_queue.WriteLockQueue(place / "jobs.db", print),
    )
    holder.released()
    assert not (place / "jobs.db-wake").exists(), "nobody ever waited, so nothing was made"
    pauses: list[float] = []
    monkeypatch.setattr(holder, "_pause", pauses.append)
    monkeypatch.setattr(write_lock_queue, "_CLOCK", clock := ManualClock())
    with waiter.waiting() as wait:
        answer = in_thread(lambda: wait(LONG))
        holder.released()
        answer()
        holder.released()
    clock.advance(2 * write_lock_queue.JUST_BEFORE)
    holder.step_back()
    assert pauses == [], "the waiter has had its chance"
    with waiter.waiting():
        holder.released()
    holder.step_back()
    holder.step_back()
    assert pauses == [write_lock_queue.STEP_BACK], "who handed over leaves the lock to others, once"
    holder.released()
    holder.step_back()
    assert len(pauses) == 1, "nobody waits any more"


def test_a_claim_lets_the_writer_before_it_go_on_and_joins_the_queue_only_then(place, open_sqlite, monkeypatch):
    store, other = open_sqlite(), open_sqlite()
    store.define_jobs([JobSpec(name="queue", function="f")], release="r1")
    store.open_session(a_session("s1"), lease=timedelta(minutes=1))
    other.enqueue([Item(job="queue")])
    holder = sqlite3.connect(place / "jobs.db", isolation_level=None)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        holder.execute("ROLLBACK")

    joined = threading.Event()
    waiting = store._sqlite._write_lock_queue.waiting

    def join() -> Any:
        joined.set()
        return waiting()

    monkeypatch.setattr(store._sqlite, "_pause", pause)
    monkeypatch.setattr(store._sqlite._write_lock_queue, "waiting", join)
    holder.execute("BEGIN IMMEDIATE")
    assert len(take(store, "s1", 1, {"f"}, lease=timedelta(minutes=1))) == 1
    assert (pauses, joined.is_set()) == ([dialect.ASIDE], False)
    holder.execute("BEGIN IMMEDIATE")
    answer = in_thread(lambda: store.enqueue([Item(job="queue")]))
    assert joined.wait(LONG)
    holder.execute("ROLLBACK")
    answer()
    assert other.counts().pending == 1
    assert len(pauses) == 1, "who enqueues joins the queue at once"
    holder.close()


def test_tell_without_a_reader_returns_false(place):
    assert not pipes.write_notification(place / "nothing")
    os.mkfifo(place / "unread")
    assert not pipes.write_notification(place / "unread")
