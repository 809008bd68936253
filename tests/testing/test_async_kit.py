"""An async test of jobs: they run on its own event loop, in virtual time."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from cronsensus import Run, Scheduler, cron
from cronsensus.testing import kit

NIGHT = "2027-01-01 02:59"


def run_on_a_loop(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_an_async_job_shares_the_loop_of_the_test_and_sleeps_in_virtual_time() -> None:
    scheduler = Scheduler("postgresql://nobody@127.0.0.1:1/x")
    loops: list[object] = []
    pool = asyncio.Semaphore(1)  # bound to the first loop on which somebody waits

    @scheduler.job(cron("0 3 * * *"))
    async def load() -> None:
        loops.append(asyncio.get_running_loop())
        async with pool:
            await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(1800))

    @scheduler.job(cron("10 3 * * *"))
    async def report(run: Run) -> str:
        async with pool:
            return str(run.local_time)

    async def the_test() -> None:
        begun = time.monotonic()
        with kit(scheduler, start=NIGHT, nodes=2) as one:
            await one.atravel("3h")
            assert loops == [asyncio.get_running_loop()]
            [loaded], [reported] = one.attempts(load), one.attempts(report)
            assert loaded.ended_at is not None
            assert (loaded.ended_at - loaded.started_at).total_seconds() == pytest.approx(3600, abs=0.01)
            assert reported.ended_at is not None
            assert reported.ended_at - loaded.ended_at < reported.ended_at - reported.started_at
            one.assert_verdict(report, "2027-01-01 03:10", "succeeded")
            one.check()
        assert time.monotonic() - begun < 2
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        assert 0.01 <= asyncio.get_running_loop().time() - before < 5, "the loop is as it was"

    run_on_a_loop(the_test())


def test_a_job_that_waits_for_a_thread_or_a_socket_gets_its_answer_before_time_moves_on() -> None:
    scheduler = Scheduler("memory://")
    seen: list[bytes] = []

    @scheduler.job(cron("0 3 * * *"), timeout="1m")
    async def fetch() -> None:
        await asyncio.to_thread(time.monotonic)
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        seen.append(await asyncio.wait_for(reader.read(), 10))
        writer.close()
        server.close()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"42")
        writer.close()

    async def the_test() -> None:
        with kit(scheduler, start=NIGHT) as one:
            await one.atravel("10m")
            one.assert_ran_once(fetch)
            assert seen == [b"42"]

    run_on_a_loop(the_test())


def test_an_async_test_and_an_async_job_await_results_and_a_timeout_cancels() -> None:
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def double(number: int) -> int:
        await asyncio.sleep(600)
        return number * 2

    @scheduler.job()
    async def parent(number: int) -> int:
        return await (await double.aenqueue(number)).aresult("1h") + 1

    @scheduler.job(timeout="10m")
    async def endless() -> None:
        await asyncio.Event().wait()

    async def the_test() -> None:
        with kit(scheduler, start=NIGHT) as one:
            assert await (await parent.aenqueue(4)).aresult("2h") == 9
            assert one.now.strftime("%H:%M") in {"03:09", "03:10"}
            await endless.aenqueue()
            await one.atravel("1h")
            [attempt] = one.attempts(endless)
            assert attempt.ended_at is not None
            assert (attempt.ended_at - attempt.started_at).total_seconds() == pytest.approx(600, abs=1)
            assert one.runs(endless)[0].state == "failed"

    run_on_a_loop(the_test())


def test_a_job_stands_in_its_middle_while_its_node_is_killed_and_another_takes_it_over() -> None:
    scheduler = Scheduler("memory://")
    done: list[int] = []

    @scheduler.job(cron("0 3 * * *"))
    async def long(run: Run) -> None:
        await asyncio.sleep(3600)
        done.append(run.attempt)

    async def the_test() -> None:
        with kit(scheduler, start=NIGHT, nodes=2) as one:
            await one.atravel("30m")
            [attempt] = one.attempts(long)
            assert attempt.ended_at is None
            one.kill(attempt.node)
            await one.atravel("2h")
            assert done == [2]
            one.assert_ran_once(long)
            one.check()

    run_on_a_loop(the_test())


def test_a_process_dies_where_an_async_job_calls_out() -> None:
    scheduler = Scheduler("memory://")

    @scheduler.job(cron("0 3 * * *"))
    async def bill(run: Run) -> None:
        await asyncio.sleep(1)
        if run.attempt == 1:
            one.die()

    one = kit(scheduler, start=NIGHT)

    async def the_test() -> None:
        with one:
            await one.atravel("5m")
            assert [attempt.attempt for attempt in one.attempts(bill)] == [1, 2]
            one.assert_ran_once(bill)

    run_on_a_loop(the_test())
