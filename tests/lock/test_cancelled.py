"""Interruptions while locks are acquired, held and released: no lock stays held, and no waiter is forgotten."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType

import pytest

from cronsensus import Lock
from cronsensus.lock import opening, worker_pool
from tests.cancelling import CutCall, CutTask, Interrupted, each_await, each_line
from tests.lock.places import lock_at
from tests.servers.distance import patience

PATIENCE = patience(60.0)
"""Seconds until a test gives up, and far below the TTL of an hour: what is free sooner was freed."""
TTL = "1h"
SHORT = "1s"
"""Of what may stay for its TTL."""
_numbers = count()


def new_name() -> str:
    return f"name-{next(_numbers)}"


async def freed(where: str, name: str) -> bool:
    other = lock_at(where, name, ttl=TTL)
    got = await other.aacquire(blocking_timeout=PATIENCE)
    if got:
        await other.arelease()
    return got


def freed_here(where: str, name: str) -> bool:
    other = lock_at(where, name, ttl=TTL)
    got = other.acquire(blocking_timeout=PATIENCE)
    if got:
        other.release()
    return got


# --- cancelled at each await ------------------------------------------------------------------------------------------


def test_a_cancelled_acquire_holds_nothing(where):
    async def scenario(cut: CutTask) -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=TTL)
        await cut(lock.aacquire())
        if cut.error is None:
            await lock.arelease()
        assert await freed(where, name)

    assert each_await(scenario) >= 2


def test_a_cancelled_wait_holds_nothing_and_the_next_waiter_gets_the_lock(where):
    async def scenario(cut: CutTask) -> None:
        name = new_name()
        holder = lock_at(where, name, ttl=TTL)
        await holder.aacquire()
        waiter = asyncio.create_task(freed(where, name))
        tasks: list[asyncio.Task[None]] = []

        def free() -> None:
            tasks.append(asyncio.create_task(holder.arelease()))

        freeing = asyncio.get_running_loop().call_later(0.02, free)
        lock = lock_at(where, name, ttl=TTL)
        await cut(lock.aacquire())
        if cut.error is None:
            await lock.arelease()
        assert await waiter
        freeing.cancel()
        await asyncio.gather(*tasks)
        assert await freed(where, name)

    assert each_await(scenario, most=8, may_be_more=True) >= 3


def test_a_cancelled_release_frees_the_lock(where):
    async def scenario(cut: CutTask) -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=TTL)
        await lock.aacquire()
        await cut(lock.arelease())
        assert await freed(where, name)

    assert each_await(scenario) >= 2


def test_a_cancelled_block_frees_the_lock(where):
    async def scenario(cut: CutTask) -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=TTL)

        async def block() -> None:
            async with lock:
                await asyncio.sleep(0)

        await cut(block())
        assert await freed(where, name)
        assert lock.lease is None

    assert each_await(scenario) >= 4


def test_a_cancelled_release_waits_until_the_lock_is_free(where):
    """Cancelled while all threads of the pool are busy, so that none has begun with it."""

    async def main() -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=TTL)
        await lock.aacquire()
        go_on = threading.Event()
        busy = [
            asyncio.create_task(worker_pool.on_worker(lambda: go_on.wait(PATIENCE))) for _ in range(worker_pool.THREADS)
        ]
        await asyncio.sleep(0)
        leaving = asyncio.create_task(lock.arelease())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        assert not leaving.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await asyncio.gather(*busy)
        assert not await lock.alocked()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.parametrize("act", ["aextend", "areacquire", "aowned", "alocked"])
def test_a_cancelled_question_leaves_the_lock_held(where, act):
    async def scenario(cut: CutTask) -> None:
        lock = lock_at(where, new_name(), ttl=TTL)
        async with lock:
            await cut(lock.aextend("1h") if act == "aextend" else getattr(lock, act)())
            assert await lock.aowned()

    each_await(scenario, moments=("begun",))


# --- an exception out of a signal handler, at each line ---------------------------------------------------------------


EVERY = {"memory": 1, "sqlite": 9, "files": 1, "redis": 7}
"""Which share of the lines is tried; servers are slow, and their lines are those of every store."""


@pytest.fixture(params=["memory", "sqlite", "redis", "files"])
def interrupted_at(request: pytest.FixtureRequest, tmp_path) -> Iterator[tuple[str, int]]:
    kind = request.param
    url = {"memory": f"memory://cut-{next(_numbers)}", "sqlite": f"sqlite:///{tmp_path}/cut.db?synchronous=normal"}
    url["files"] = f"file://{tmp_path}/locks"
    yield url[kind] if kind in url else request.getfixturevalue("redis_url"), EVERY[kind]
    opening.close_all()


class Soft(Exception):
    """As Celery raises when a task has used up its soft time limit."""


@pytest.mark.parametrize("raises", [Interrupted, Soft])
def test_a_block_that_is_interrupted_anywhere_holds_nothing_longer_than_its_ttl(interrupted_at, raises):
    where, every = interrupted_at

    def scenario(cut: CutCall) -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=SHORT)

        def block() -> None:
            with lock:
                pass

        cut(block)
        assert freed_here(where, name)

    each_line(scenario, raises=raises, every=9 * every)


def test_acquire_that_is_interrupted_anywhere_holds_nothing_longer_than_its_ttl(interrupted_at):
    """Also while the program goes on and keeps the ``Lock``: what no caller knows of is not renewed."""
    where, every = interrupted_at

    def scenario(cut: CutCall) -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=SHORT)
        cut(lock.acquire)
        if cut.error is None:
            lock.release()
        assert freed_here(where, name)

    each_line(scenario, every=7 * every)


def test_release_that_is_interrupted_anywhere_frees_the_lock(interrupted_at):
    where, every = interrupted_at

    def scenario(cut: CutCall) -> None:
        name = new_name()
        lock = lock_at(where, name, ttl=TTL)
        lock.acquire()
        cut(lock.release)
        assert freed_here(where, name)

    each_line(scenario, every=every)


def test_a_wait_that_is_interrupted_anywhere_holds_nothing_and_forgets_no_other_waiter(interrupted_at):
    where, every = interrupted_at

    def scenario(cut: CutCall) -> None:
        name = new_name()
        holder = lock_at(where, name, ttl=TTL)
        holder.acquire()
        lock = lock_at(where, name, ttl=SHORT)
        cut(lambda: lock.acquire(blocking_timeout=0.005))
        holder.release()
        assert freed_here(where, name)

    each_line(scenario, every=2 * every)


def test_the_library_works_on_after_an_interruption(interrupted_at):
    where, _ = interrupted_at
    lock = Lock(where, new_name())
    for _ in range(3):
        with lock:
            pass


# --- where CPython raises before the first line of ours ---------------------------------------------------------------


@contextmanager
def interrupted_before(method: Callable[..., object]) -> Iterator[None]:
    """Raise where this method is entered, the next time that it is."""

    code = getattr(method, "__code__")  # noqa: B009 - mypy does not know that it is a function

    def entered(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code is code and event == "call":
            sys.settrace(None)
            raise Interrupted

    former = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(former)


@pytest.mark.parametrize("ends_by", ["block", "release"])
def test_a_release_that_is_interrupted_before_it_begins_is_made_up_for_when_the_lock_is_collected(
    interrupted_at, ends_by
):
    where, _ = interrupted_at
    name = new_name()
    lock = lock_at(where, name, ttl=TTL)
    with pytest.raises(Interrupted):  # noqa: PT012 - it comes out of the end
        if ends_by == "block":
            with interrupted_before(Lock.__exit__), lock:
                pass
        else:
            lock.acquire()
            with interrupted_before(Lock.release):
                lock.release()
    assert lock.locked()
    del lock
    gc.collect()
    assert freed_here(where, name)


def test_a_lock_that_is_dropped_is_freed_without_a_line_of_ours_on_that_thread(interrupted_at):
    """So there is none that a signal handler could cut off, or whose exception would be lost in a ``__del__``."""
    where, _ = interrupted_at
    name = new_name()
    lock = lock_at(where, name, ttl=TTL)
    lock.acquire()
    entered: list[str] = []

    def enters(frame: FrameType, *_: object) -> None:
        if "/cronsensus/lock/" in frame.f_code.co_filename:
            entered.append(frame.f_code.co_qualname)

    former = sys.gettrace()
    sys.settrace(enters)
    del lock
    gc.collect()
    sys.settrace(former)
    assert entered == []
    assert freed_here(where, name)
