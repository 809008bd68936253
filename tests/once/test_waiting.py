"""Calls that wait for a guarded function are notified of its end, also by another process; and can be called off."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cronsensus import Scheduler, StoreUnavailable
from cronsensus.lock.local_queue import QueuedWaiter
from cronsensus.once import acquiring
from tests.servers.distance import patience

PATIENCE = patience(60.0)
TOO_LATE = 60.0


@pytest.fixture
def joined(monkeypatch):
    """No call in the wait queue polls for the length of a test. Released once by each call that joins it."""
    monkeypatch.setattr(acquiring, "POLL_IN_QUEUE", TOO_LATE)
    in_line, join = threading.Semaphore(0), acquiring._Waiting._join_queue

    def noted(self):
        join(self)
        in_line.release()

    monkeypatch.setattr(acquiring._Waiting, "_join_queue", noted)
    return in_line


@pytest.fixture
def schedulers(telling_url):
    """Return three that share nothing but the store, as in three processes."""
    made = [Scheduler(telling_url) for _ in range(3)]
    yield made
    for one in made:
        one._opened.close()


class Work:
    """A function that begins, waits to be let go, and counts."""

    def __init__(self, *, fails: int = 0) -> None:
        self.began, self.go, self.ran, self.fails = threading.Event(), threading.Event(), 0, fails

    def __call__(self) -> int:
        self.ran += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        if self.ran <= self.fails:
            raise ValueError("not yet")
        return self.ran

    async def twin(self) -> int:
        return self()


def test_waiting_call_in_another_process_is_notified_and_passes_it_on(schedulers, joined):
    work = Work()
    first, second, third = schedulers
    guarded = [one.once("k", name="w")(work) for one in (first, second)]
    other = third.once("k", name="w")(work.twin)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(guarded[0])]
        assert work.began.wait(PATIENCE)
        calls += [pool.submit(guarded[1]), pool.submit(guarded[1]), pool.submit(lambda: asyncio.run(other()))]
        for _ in range(3):
            assert joined.acquire(timeout=PATIENCE)
        work.go.set()
        assert [call.result(PATIENCE) for call in calls] == [1] * 4


def test_waiting_call_takes_over_a_failed_key(schedulers, joined):
    work = Work(fails=1)
    guarded = [one.once("k", name="w")(work) for one in schedulers]
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(guarded[0])
        assert work.began.wait(PATIENCE)
        others = [pool.submit(one) for one in guarded[1:]]
        for _ in others:
            assert joined.acquire(timeout=PATIENCE)
        work.go.set()
        with pytest.raises(ValueError, match="not yet"):
            first.result(PATIENCE)
        assert [other.result(PATIENCE) for other in others] == [2, 2]


def test_waiting_call_that_cannot_join_the_queue_polls(local, monkeypatch):
    tried = threading.Event()

    def full(_waiter: QueuedWaiter) -> None:
        tried.set()
        raise StoreUnavailable("too many connections")

    monkeypatch.setattr(QueuedWaiter, "join_queue", full)
    work = Work()
    guarded = local.once("k", name="w")(work)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(guarded), pool.submit(guarded)]
        assert tried.wait(PATIENCE)
        work.go.set()
        assert [call.result(PATIENCE) for call in calls] == [1, 1]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stopped_scheduler_watches_no_start_up_task(schedulers, joined, is_async):
    """The runner is another worker, and goes on; a worker that only watched has nothing left to wait for."""
    work = Work()
    runner, watcher, _ = schedulers
    for one in (runner, watcher):
        one.startup(name="w")(work.twin if is_async else work)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(runner.run_startup)
        assert work.began.wait(PATIENCE)
        before = set(threading.enumerate())
        watcher.start()
        assert joined.acquire(timeout=PATIENCE)
        watcher.stop()
        left = [one for one in threading.enumerate() if one not in before and one.name == "cronsensus-startup"]
        assert left == []
        assert watcher._opened._claims is None, "what the watcher used is let go of"
        work.go.set()
        running.result(PATIENCE)
    assert work.ran == 1
