"""How many may hold a lock where its holders say different limits, and where others look at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from cronsensus import Lock
from cronsensus.lock import opening
from tests.servers.distance import patience

PATIENCE = patience(60.0)

Answer = TypeVar("Answer")


def in_thread(act: Callable[[], Answer]) -> Answer:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result(PATIENCE)


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis", "files"])
def several(request, tmp_path):
    """Return an empty place where several may hold a lock."""
    kind = request.param
    own = {"memory": f"memory://{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/l.db", "files": f"file://{tmp_path}/l"}
    yield own[kind] if kind in own else request.getfixturevalue(f"{kind}_url")
    opening.close_all()


def test_a_limit_that_is_lowered_counts_while_holders_with_the_higher_one_are_left(several):
    first, second, third = (Lock(several, "name", limit=limit) for limit in (3, 3, 1))
    assert in_two_threads(first, second)
    first_left, second_left, alone = threading.Event(), threading.Event(), third

    def hold(lock: Lock, inside: threading.Event, leave: threading.Event) -> None:
        with lock:
            inside.set()
            assert leave.wait(PATIENCE)

    insides = [threading.Event(), threading.Event()]
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(hold, first, insides[0], first_left)
        assert insides[0].wait(PATIENCE)
        other = pool.submit(hold, second, insides[1], second_left)
        assert insides[1].wait(PATIENCE)
        first_left.set()
        one.result(PATIENCE)
        assert not alone.acquire(blocking=False)
        second_left.set()
        other.result(PATIENCE)
    assert alone.acquire(blocking=False)
    assert not in_thread(lambda: first.acquire(blocking=False))
    assert alone.locked()
    alone.release()


def in_two_threads(first: Lock, second: Lock) -> bool:
    """Take the lock for several twice at a time, and free it."""
    with first:

        def act() -> bool:
            got = second.acquire(blocking=False)
            second.release()
            return got

        return in_thread(act)


def test_holder_with_limit_one_is_alone_beside_higher_limits(several):
    inside: list[int] = []
    guard = threading.Lock()
    wrong: list[list[int]] = []

    def work(limit: int) -> None:
        lock = Lock(several, "name", limit=limit, blocking_timeout=PATIENCE)
        for _ in range(6):
            with lock:
                with guard:
                    inside.append(limit)
                    if len(inside) > min(inside):
                        wrong.append(list(inside))
                threading.Event().wait(0.001)
                with guard:
                    inside.remove(limit)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, limit) for limit in (1, 2, 3, 3, 3, 1)]:
            done.result(PATIENCE)
    assert wrong == []


def test_reading_holders_of_a_file_lock_fails_no_acquire(tmp_path):
    lock, asks, stop = Lock(f"file://{tmp_path}", "name"), Lock(f"file://{tmp_path}", "name"), threading.Event()
    with lock:
        pass

    def ask() -> None:
        while not stop.is_set():
            asks.locked()

    refused = 0
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for _ in range(300):
            if lock.acquire(blocking=False):
                lock.release()
            else:
                refused += 1
        stop.set()
        asking.result(PATIENCE)
    assert refused == 0
