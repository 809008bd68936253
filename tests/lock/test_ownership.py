"""Whose a lease is: a block's, a thread's, a Lock's or a run's, and with what it ends."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from contextvars import Context
from typing import Any, TypeVar

import pytest

from cronsensus import LeaseLost, Lock, NotTheHolder, Run, Scheduler
from cronsensus.lock import Lease
from cronsensus.lock.in_store import StoreLockBackend
from tests.lock.places import lock_at, shortest
from tests.servers.distance import patience

PATIENCE = patience(60.0)
TTL = "1h"
"""So long that what is free within ``PATIENCE`` was freed."""

Answer = TypeVar("Answer")


def in_thread(act: Callable[[], Answer]) -> Answer:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result(PATIENCE)


@pytest.fixture
def lock(where: str) -> Lock:
    return lock_at(where, "name", ttl=TTL)


def is_free(where: str) -> bool:
    def acquire() -> bool:
        other = lock_at(where, "name", ttl=TTL)
        got = other.acquire(blocking_timeout=PATIENCE)
        if got:
            other.release()
        return got

    return in_thread(acquire)


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_a_block_left_in_another_thread_frees_the_lock(lock, where):
    stack = ExitStack()
    lease = stack.enter_context(lock)
    in_thread(stack.close)
    assert lease.released
    assert is_free(where)


def test_a_block_left_in_another_task_frees_the_lock(lock, where):
    async def main() -> None:
        stack = AsyncExitStack()
        lease = await stack.enter_async_context(lock)
        await asyncio.create_task(stack.aclose())
        assert lease.released

    asyncio.run(main())
    assert is_free(where)


def test_generators_entered_and_left_on_any_thread_of_a_pool_take_turns(lock):
    """As web frameworks run sync dependencies: ``def dep(): with lock: yield``."""
    inside, most, served = [0], [0], [0]
    guard = threading.Lock()

    def dependency() -> Iterator[int]:
        with lock as lease:
            with guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            yield lease.token
            with guard:
                inside[0] -= 1

    async def request() -> None:
        entered = dependency()
        assert await asyncio.to_thread(next, entered) > 0
        await asyncio.sleep(0)
        assert await asyncio.to_thread(next, entered, "over") == "over"
        served[0] += 1

    async def main() -> None:
        # More threads than requests at a time, or those that wait would leave none for the one that is to go on.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
        for _ in range(5):
            await asyncio.gather(*(request() for _ in range(5)))

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert (most[0], served[0]) == (1, 25)
    assert not lock.locked()


def test_each_thread_leaves_its_own_block_of_several_of_one_lock(url):
    lock = Lock(url, "name", limit=3, ttl=TTL)

    def dependency() -> Iterator[Lease]:
        with lock as lease:
            yield lease

    def go_on(pool: ThreadPoolExecutor, block: Iterator[Lease]) -> Any:
        return pool.submit(lambda: Context().run(lambda: next(block, None))).result(PATIENCE)

    blocks = [dependency() for _ in range(3)]
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        leases = [go_on(first, blocks[0]), go_on(second, blocks[1]), go_on(first, blocks[2])]
        go_on(second, blocks[0])
        assert [lease.released for lease in leases] == [True, False, False]
        go_on(first, blocks[1])
        assert [lease.released for lease in leases] == [True, True, False]
        next(blocks[2], None)
    assert all(lease.released for lease in leases)


def test_a_block_that_released_by_itself_does_not_free_the_one_of_another_thread(url):
    lock = Lock(url, "name", limit=2, ttl=TTL)
    with lock:
        stack = ExitStack()
        lease = in_thread(lambda: stack.enter_context(lock))
        lock.release()
    assert not lease.released
    stack.close()
    assert lease.released


def test_a_lease_of_a_block_may_be_extended_by_any_thread(lock):
    with lock as lease:
        assert in_thread(lambda: lease.extend("1h"))


# --- a bare aacquire --------------------------------------------------------------------------------------------------


def test_lease_of_a_finished_task_may_be_released_by_another(lock, where):
    """``wait_for`` runs what it waits for in a task of its own on Python 3.11."""

    async def main() -> None:
        assert await asyncio.create_task(lock.aacquire())
        assert await lock.aowned()
        assert lock.token > 0
        await lock.arelease()

    asyncio.run(main())
    assert is_free(where)


def test_each_task_releases_what_it_acquired_itself(url):
    lock = Lock(url, "name", limit=2, ttl=TTL)

    async def work(both: asyncio.Barrier) -> tuple[int, int]:
        await lock.aacquire()
        lease = lock.lease
        assert lease is not None
        await both.wait()
        await lock.arelease()
        return lease.token, lease.released

    async def main() -> list[tuple[int, int]]:
        both = asyncio.Barrier(2)
        return list(await asyncio.gather(work(both), work(both)))

    (first, first_released), (second, second_released) = asyncio.run(main())
    assert first != second
    assert first_released
    assert second_released


# --- what it ends with ------------------------------------------------------------------------------------------------


def test_a_lease_of_a_thread_that_ended_is_freed_at_once(lock, where, caplog):
    in_thread(lock.acquire)
    assert is_free(where)
    assert "the thread that acquired it ended without releasing it" in caplog.text or "file:" in where


def test_a_thread_with_the_number_of_one_that_ended_may_acquire(lock):
    for _ in range(5):
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()

    def acquire() -> bool:
        lock.acquire(blocking_timeout=PATIENCE)
        lock.release()
        return True

    for _ in range(5):
        assert in_thread(acquire)


def test_dropped_lock_object_frees_its_lease(lock, where, caplog):
    dropped = lock_at(where, "name", ttl=TTL)
    dropped.acquire()
    del dropped
    gc.collect()
    assert is_free(where)
    assert "its Lock object was dropped" in caplog.text or "file:" in where


def test_a_lease_is_kept_for_as_long_as_the_lease_itself_is(lock, where):
    lock.acquire()
    lease = lock.lease
    del lock
    gc.collect()
    assert lease.owned()
    lease.release()


def test_a_lease_that_is_not_renewed_ends_with_its_ttl_and_not_with_its_owner(timed):
    def cool_down() -> None:
        assert lock_at(timed, "name", ttl=TTL, renew=False).acquire(blocking=False)

    in_thread(cool_down)
    gc.collect()
    assert lock_at(timed, "name").locked()
    assert not lock_at(timed, "name").acquire(blocking=False)


def test_dropped_lease_needs_no_session_after_its_ttl(url):
    lock = Lock(url, "name", ttl="200ms", renew=False)
    lock.acquire()
    backend = lock._backend()
    assert isinstance(backend, StoreLockBackend)
    lost = lock.lost
    assert lost.wait(PATIENCE)
    assert not backend.is_idle
    del lock, lost
    gc.collect()
    backend._host._heartbeat.wake_thread()
    until = time.monotonic() + PATIENCE
    while not backend.is_idle:
        assert time.monotonic() < until
        threading.Event().wait(0.01)


def test_after_its_lease_ran_out_a_thread_may_acquire_again(timed):
    lock = lock_at(timed, "name", ttl=shortest(timed), renew=False)
    lock.acquire()
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        lost = lock.lost
        assert lost.wait(PATIENCE)
        assert lock.acquire(blocking_timeout=PATIENCE)
        assert lock.lost is not lost
        with suppress(LeaseLost):  # on a busy machine this one has run out too, and it may acquire again
            lock.release()
            break
    with pytest.raises(NotTheHolder):
        lock.release()


def test_after_its_lease_ran_out_releasing_is_an_error_as_before(timed):
    lock = lock_at(timed, "name", ttl=shortest(timed), renew=False)
    lock.acquire()
    other = lock_at(timed, "name", ttl=TTL)
    assert in_thread(lambda: other.acquire(blocking_timeout=PATIENCE) and other.lease is not None)
    with pytest.raises(LeaseLost):
        lock.release()


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_job_that_acquires_and_raises_frees_the_lock_at_the_end_of_its_run(url, colour, caplog):
    with Scheduler(url) as scheduler:
        lock = scheduler.lock("name", ttl=TTL)
        if colour == "sync":

            @scheduler.job()
            def pay(number: int) -> str:
                if not lock.acquire(blocking_timeout=PATIENCE):
                    return "not to be had"
                if number == 1:
                    raise ValueError("refused")
                lock.release()
                return "paid"
        else:

            @scheduler.job()
            async def pay(number: int) -> str:
                if not await lock.aacquire(blocking_timeout=PATIENCE):
                    return "not to be had"
                if number == 1:
                    raise ValueError("refused")
                await lock.arelease()
                return "paid"

        assert pay.enqueue(1).wait(PATIENCE).state == "failed"
        assert pay.enqueue(2).result(PATIENCE) == "paid"
    assert "ended without releasing it" in caplog.text


def test_lease_of_a_run_may_be_released_by_any_of_its_tasks(url):
    with Scheduler(url) as scheduler:
        lock = scheduler.lock("name", ttl=TTL)

        @scheduler.job()
        async def work(run: Run) -> bool:
            await asyncio.create_task(lock.aacquire())
            await asyncio.create_task(lock.arelease())
            return await lock.alocked()

        assert work.enqueue().result(PATIENCE) is False


def test_lease_of_a_guarded_function_ends_with_it(url):
    with Scheduler(url) as scheduler:
        lock = scheduler.lock("name", ttl=TTL)

        @scheduler.once(key="{number}")
        def pay(number: int) -> bool:
            return lock.acquire(blocking_timeout=PATIENCE)

        assert [pay(1), pay(2)] == [True, True]
        assert not lock.locked()


# --- waiting for oneself ----------------------------------------------------------------------------------------------


def test_two_objects_of_one_name_nested_in_one_thread_are_refused_at_once(lock, where):
    with lock:
        with pytest.raises(NotTheHolder, match="through another Lock object"):
            lock_at(where, "name").acquire()
        with pytest.raises(NotTheHolder, match="wait for itself"), lock_at(where, "name"):
            pass
        assert not lock_at(where, "name").acquire(blocking_timeout=0.01)
        assert not lock_at(where, "name").acquire(blocking=False)
    lock.acquire()
    with pytest.raises(NotTheHolder, match="through another Lock object"), lock_at(where, "name"):
        pass
    lock.release()
    with lock_at(where, "name"):
        pass


def test_two_objects_of_one_name_nested_in_one_task_are_refused_at_once(lock, where):
    @contextmanager
    def unrelated() -> Iterator[None]:
        yield

    async def main() -> None:
        async with lock:
            with unrelated(), pytest.raises(NotTheHolder, match="this task holds"):
                async with lock_at(where, "name"):
                    pass
            # Another task may wait: this one goes on and leaves.
            waiter = asyncio.create_task(lock_at(where, "name", ttl=TTL).aacquire())
            await asyncio.sleep(0)
        assert await waiter

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_lock_for_several_may_be_nested_until_it_is_full(url):
    first, second, third = (Lock(url, "name", limit=2) for _ in range(3))
    with first, second, pytest.raises(NotTheHolder, match="through another Lock object"):
        third.acquire()


def test_wait_for_an_own_lease_without_renewal_is_allowed(timed):
    short = lock_at(timed, "name", ttl=shortest(timed), renew=False)
    short.acquire()
    with lock_at(timed, "name"):
        pass
