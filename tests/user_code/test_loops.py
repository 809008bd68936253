"""The application's event loop ends while jobs run on it: they are given back, and the node takes no others."""

import asyncio
import signal
import threading
from itertools import count
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.node import active_runs
from tests.user_code.programs import started

_names = count()

PROGRAM = """
    @scheduler.job()
    async def slow():
        say("begins")
        await asyncio.sleep(60)

    async def crash():
        await scheduler.astart()
        slow.options(key="k").enqueue()
        await asyncio.sleep(1)
        raise RuntimeError("the web server could not bind its port")

    async def serve():
        async with scheduler:
            slow.options(key="k").enqueue()
            try:
                await asyncio.sleep(60)
            finally:
                asyncio.get_running_loop().call_later(0.5, say, "stops")

    asyncio.run({main}())
"""


def test_a_loop_that_shuts_down_because_its_program_fails_costs_its_runs_no_attempt(tmp_path):
    with started(tmp_path, PROGRAM.format(main="crash")) as program:
        assert program.end() == 1
        assert "could not bind" in program.errors()
    one = program.occurrences()["k"]
    assert (one.state, one.error) == ("pending", None)


def test_nor_does_one_that_ctrl_c_ends_in_the_middle_of_a_drain(tmp_path):
    with started(tmp_path, PROGRAM.format(main="serve"), options='drain_timeout="60s"') as program:
        program.read_until("begins")
        program.process.send_signal(signal.SIGINT)
        # The drain begins without a word. The second one leaves the loop waiting for the thread that drains.
        program.read_until("stops")
        program.process.send_signal(signal.SIGINT)
        program.end()
    one = program.occurrences()["k"]
    assert (one.state, one.error) == ("pending", None)


@pytest.mark.parametrize("close", [True, False])
def test_a_node_whose_loop_has_ended_leaves_async_jobs_to_others_and_runs_the_rest(caplog, monkeypatch, close):
    monkeypatch.setattr(active_runs, "LOOP_PAUSE", 0.0)
    url = f"memory://loops-{next(_names)}"

    def make() -> tuple[Scheduler, list[Any]]:
        scheduler = Scheduler(url)

        @scheduler.job()
        async def mail(number: int) -> int:
            return number

        @scheduler.job()
        def plain(number: int) -> int:
            return number

        return scheduler, [mail, plain]

    alone, (mail, plain) = make()
    beside, _ = make()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(alone.astart())
    if close:
        loop.close()
    assert [plain.enqueue(number).result("60s") for number in range(3)] == [0, 1, 2]
    waiting = [mail.enqueue(number) for number in range(20)]
    plain.enqueue(1).result("60s")
    assert {handle.look().state for handle in waiting} == {"pending"}
    beside.start()
    assert [handle.result("60s") for handle in waiting] == list(range(20))
    assert "async jobs are left to other nodes" in caplog.text
    alone.stop(1)
    beside.stop(1)
    loop.close()


def test_a_task_that_the_application_cancels_on_its_loop_has_failed():
    scheduler = Scheduler(f"memory://loops-{next(_names)}")
    tasks: list[Any] = []
    begun = threading.Event()

    @scheduler.job()
    async def work() -> None:
        tasks.append(asyncio.current_task())
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with scheduler:
            handle = await work.aenqueue()
            await asyncio.to_thread(begun.wait, 20)
            tasks[0].cancel()
            one = await handle.await_("20s")
            assert one.state == "failed"
            assert one.error is not None
            assert "not by cronsensus" in one.error.message

    asyncio.run(main())


def test_a_thread_that_a_cut_off_job_awaits_does_not_keep_the_process(tmp_path):
    text = """
        @scheduler.job()
        async def slow():
            say("begins")
            await asyncio.to_thread(time.sleep, 100)
        slow.options(key="k").enqueue()
        say("run", scheduler.run("10ms"))
    """
    with started(tmp_path, text) as program:
        program.read_until("begins")
        program.process.send_signal(signal.SIGTERM)
        assert program.end(60) == 0
        assert program.lines[-1] == "run False"
    assert program.occurrences()["k"].state == "pending"


def test_many_calls_on_threads_from_the_nodes_own_loop_come_back_in_order_with_what_they_raised():
    scheduler = Scheduler(f"memory://loops-{next(_names)}")

    @scheduler.job()
    async def work() -> list[Any]:
        async def one(number: int) -> Any:
            return await asyncio.to_thread(lambda: 10 // number)

        return [str(one) for one in await asyncio.gather(*map(one, range(100)), return_exceptions=True)]

    with scheduler:
        said = work.enqueue().result("60s")
    assert said == ["integer division or modulo by zero", *(str(10 // number) for number in range(1, 100))]


def test_start_on_the_thread_of_a_loop_runs_async_start_up_tasks():
    scheduler = Scheduler(f"memory://loops-{next(_names)}")
    ran = []

    @scheduler.startup(wait=True)
    async def prepare() -> None:
        await asyncio.sleep(0)
        ran.append(1)

    async def main() -> None:
        scheduler.start()
        await scheduler.astop()

    asyncio.run(main())
    assert ran == [1]
