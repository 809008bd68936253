"""Holders that die, freeze, fork or leave, as real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cronsensus import open_store
from tests.lock.places import lock_at
from tests.scratch import make_tables
from tests.servers.distance import patience

PATIENCE = patience(60.0)
ROOT = Path(__file__).parents[2]


class Holder:
    """A process that holds the lock."""

    def __init__(self, where: str, ttl: str = "30s", what: str = "") -> None:
        make_tables(where)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.lock.holding", where, "name", ttl, what or "-"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.token = int(self.hear())

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait()


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    made: list[Holder] = []

    def make(*args: str) -> Holder:
        made.append(Holder(*args))
        return made[-1]

    yield make
    for holder in made:
        holder.end()


def test_the_lock_of_a_dead_process_is_free_at_once(shared, hold):
    holder = hold(shared)
    lock = lock_at(shared, "name")
    assert not lock.acquire(blocking=False)
    holder.process.kill()
    holder.process.wait()
    assert lock.acquire(blocking=False)
    assert lock.token > holder.token
    lock.release()


def test_waiter_for_a_dead_process_acquires_before_the_ttl(shared, hold):
    holder = hold(shared)
    lock, waits = lock_at(shared, "name"), threading.Event()
    got: list[float] = []

    def wait() -> None:
        assert not lock.acquire(blocking=False)
        waits.set()
        with lock:
            got.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waits.wait(PATIENCE)
    holder.process.kill()
    died_at = time.monotonic()
    waiter.join(PATIENCE)
    assert got[0] - died_at < 10


def test_a_process_that_leaves_frees_its_locks(shared_url, hold):
    holder = hold(shared_url)
    holder.ask("exit")
    assert holder.process.wait(PATIENCE) == 0
    assert open_store(shared_url).locks() == []
    assert [one.state for one in open_store(shared_url).sessions(ended=True)] == ["closed"]


def test_release_wakes_a_waiter_in_another_process(shared, hold):
    lock = lock_at(shared, "name")
    lock.acquire()
    got: list[Holder] = []
    waiter = threading.Thread(target=lambda: got.append(hold(shared)))
    waiter.start()
    threading.Event().wait(1)  # until it waits, or not: it must get the lock in either case
    assert not got
    lock.release()
    waiter.join(PATIENCE)
    assert got[0].token > 0
    assert got[0].ask("release") == "released"
    assert lock.acquire(blocking_timeout=PATIENCE)
    lock.release()


def test_release_after_a_freeze_beyond_the_lease_keeps_the_new_holder(shared_timed, hold):
    holder = hold(shared_timed, "1s", "threads")
    holder.process.send_signal(signal.SIGSTOP)
    lock = lock_at(shared_timed, "name")
    assert lock.acquire(blocking_timeout=PATIENCE)
    assert lock.token > holder.token
    holder.process.send_signal(signal.SIGCONT)
    said = {holder.ask("look"), holder.hear()}
    assert said == {"True False", "lost"}
    assert holder.ask("release").startswith("LeaseLost: the lock 'name' is no longer held under token")
    assert lock.owned()
    lock.release()
    assert holder.ask("acquire") == "True"


def test_a_child_does_not_hold_what_its_parent_holds(shared, hold):
    holder = hold(shared)
    refused = "'NotTheHolder', 'NotTheHolder', 'NotTheHolder'"
    assert holder.ask("fork") == f"[True, False, False, {refused}, False, True]"
    assert holder.ask("look") == "False True"
    assert not lock_at(shared, "name").acquire(blocking=False)
    assert holder.ask("release") == "released"
    assert lock_at(shared, "name").acquire(blocking=False)


def test_lock_of_a_dead_process_is_free_although_its_child_lives(shared, hold):
    """A forked child has copies of its parent's files and connections."""
    holder = hold(shared)
    child = int(holder.ask("child"))
    try:
        holder.process.kill()
        holder.process.wait()
        lock = lock_at(shared, "name")
        assert lock.acquire(blocking_timeout=PATIENCE / 4), "the child holds it"
        assert lock.token > holder.token
        lock.release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_thread_that_works_on_after_the_main_one_locks_renews_releases_and_guards(shared_timed):
    make_tables(shared_timed)
    ttl = f"{patience(1.0 if ',' not in shared_timed else 2.0, trips=40)}s"
    done = subprocess.run(
        [sys.executable, "-m", "tests.lock.afterwards", shared_timed, ttl],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    guarded = [] if "," in shared_timed else ["guarded"]
    assert done.stdout.strip() == ", ".join(["renewed and released", *guarded]), done.stderr
