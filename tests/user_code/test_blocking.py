"""A call that would block the event loop of the jobs is refused, with the one that does not."""

import asyncio
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
        one = outer.enqueue(how).wait("20s")
        assert one.error is not None
        assert instead in one.error.message
        assert outer.enqueue("aresult").result("20s") == 5


def test_so_is_the_application_on_its_own_loop_while_jobs_run_there_and_not_elsewhere(scheduler):
    inner, _ = declare(scheduler)

    async def with_jobs() -> None:
        async with scheduler:
            handle = inner.enqueue()
            with pytest.raises(ConfigurationError, match="aresult"):
                handle.result("20s")
            assert await handle.aresult("20s") == 5
            assert handle.result() == 5  # it is there, so there is no wait

    async def without_jobs() -> None:
        handle = inner.enqueue()
        assert handle.result("20s") == 5  # as in a notebook, whose cells run on a loop

    asyncio.run(with_jobs())
    scheduler.start()
    asyncio.run(without_jobs())
    scheduler.stop()
