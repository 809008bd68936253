"""A call that would block the event loop of the jobs is refused, with the one that does not."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from cronsensus import ConfigurationError, Scheduler

_names = count()


@pytest.fixture
def scheduler():
    return Scheduler(f"memory://blocking-{next(_names)}")


def declare(scheduler: Scheduler):
    @scheduler.job()
    async def inner() -> int:
        return 5

    @scheduler.job()
    async def outer(how: str) -> int:
        handle = inner.enqueue()
        if how == "aresult":
            return await handle.aresult()
        return handle.result() if how == "result" else handle.wait().id

    return inner, outer


@pytest.mark.parametrize(("how", "instead"), [("result", "await handle.aresult()"), ("wait", "await handle.await_()")])
def test_an_async_job_that_blocks_its_loop_to_wait_for_another_is_told_what_to_write(scheduler, how, instead):
    _, outer = declare(scheduler)
    with scheduler:
        one = outer.enqueue(how).wait("60s")
        assert one.error is not None
        assert instead in one.error.message
        assert outer.enqueue("aresult").result("60s") == 5


def test_so_is_the_application_on_its_own_loop_while_jobs_run_there_and_not_elsewhere(scheduler):
    inner, _ = declare(scheduler)

    async def with_jobs() -> None:
        async with scheduler:
            handle = inner.enqueue()
            with pytest.raises(ConfigurationError, match="aresult"):
                handle.result("60s")
            assert await handle.aresult("60s") == 5
            assert handle.result() == 5  # it is there, so there is no wait

    async def without_jobs() -> None:
        handle = inner.enqueue()
        assert handle.result("60s") == 5  # as in a notebook, whose cells run on a loop

    asyncio.run(with_jobs())
    scheduler.start()
    asyncio.run(without_jobs())
    scheduler.stop()


@pytest.mark.parametrize(("how", "instead"), [("acquire", "await lock.aacquire()"), ("with", "async with lock")])
def test_an_async_job_that_blocks_its_loop_to_wait_for_a_lock_is_told_what_to_write(scheduler, how, instead):
    @scheduler.job()
    async def locks() -> int:
        lock = scheduler.lock("name")
        if how == "acquire":
            lock.acquire()
            lock.release()
        else:
            with lock:
                pass
        return 5

    with scheduler:
        assert locks.enqueue().result("60s") == 5  # it is free, so there is no wait
        with scheduler.lock("name"):
            one = locks.enqueue().wait("60s")
        assert one.error is not None
        assert instead in one.error.message
        assert locks.enqueue().result("60s") == 5


def test_where_no_jobs_run_a_loop_may_be_blocked_by_a_lock(scheduler):
    other = scheduler.lock("name", ttl="200ms", renew=False)

    async def main() -> bool:
        await other.aacquire()
        return bool(scheduler.lock("name").acquire(blocking_timeout="20s"))

    with scheduler:
        assert asyncio.run(main())


def test_an_async_job_that_blocks_its_loop_to_wait_for_a_guarded_call_is_told_what_to_write(scheduler):
    begun, go_on = threading.Event(), threading.Event()

    @scheduler.once("k", name="guarded")
    def guarded() -> int:
        begun.set()
        go_on.wait(20)
        return 5

    @scheduler.job()
    async def calls() -> int:
        return int(guarded())

    with scheduler, ThreadPoolExecutor(1) as pool:
        first = pool.submit(guarded)
        assert begun.wait(60)
        one = calls.enqueue().wait("60s")
        go_on.set()
        assert one.error is not None
        assert "asyncio.to_thread" in one.error.message
        assert first.result(20) == 5
        assert calls.enqueue().result("60s") == 5  # it is recorded, so there is no wait
