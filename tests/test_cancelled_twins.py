"""A task is cancelled at each await of the async twins: nothing is half done, and nothing stays behind."""

import threading
from itertools import count

from cronsensus import Run, Scheduler
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.stores.sql.handle import SqlHandle
from tests.cancelling import CutTask, each_await

_names = count()


def new_scheduler() -> Scheduler:
    return Scheduler(f"memory://cancelled-twins-{next(_names)}", lease="30s")


def test_a_cancelled_enqueue_is_done_whole_or_not_at_all_and_can_be_said_again():
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()

        @scheduler.job()
        def work() -> None: ...

        await cut(work.aenqueue(key="k"))
        again = await work.aenqueue(key="k")
        assert again.look().state == "pending"
        assert len(scheduler.store.occurrences(OccurrenceFilter(job=again.job))) == 1
        scheduler._close_store()

    assert each_await(scenario) >= 1


def test_a_cancelled_wait_for_a_result_takes_nothing_from_the_next_one():
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()

        @scheduler.job()
        async def work() -> int:
            return 42

        async with scheduler:
            handle = await work.aenqueue()
            await cut(handle.aresult("30s"))
            assert await handle.aresult("30s") == 42
        assert not scheduler.started

    assert each_await(scenario, most=3, may_be_more=True) >= 1


def test_a_cancelled_start_leaves_no_node_behind_and_it_can_be_started_again():
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()
        await cut(scheduler.astart())
        if cut.error is not None:
            assert not scheduler.started
            assert scheduler.store.sessions() == []
            await scheduler.astart()
        await scheduler.astop("30s")
        assert not scheduler.started

    assert each_await(scenario) >= 2


def test_a_cancelled_stop_goes_on_to_its_end():
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()
        await scheduler.astart()
        await cut(scheduler.astop("30s"))
        await scheduler.astop("30s")
        assert not scheduler.started
        assert scheduler.store.sessions() == []

    assert each_await(scenario) >= 1


def test_a_transaction_cancelled_at_each_await_is_committed_whole_or_not_at_all(tmp_path):
    async def scenario(cut: CutTask) -> None:
        from sqlalchemy import text

        scheduler = Scheduler(f"sqlite:///{tmp_path}/{next(_names)}.db?synchronous=normal", lease="30s")

        @scheduler.job(retries=0)
        async def work(run: Run) -> None:
            async def write() -> None:
                async with run.atransaction() as connection:
                    await connection.execute(text("INSERT INTO marks VALUES (1)"))
                    await connection.execute(text("INSERT INTO marks VALUES (2)"))

            await cut(write())

        store = scheduler.store
        assert isinstance(store, SqlHandle)
        store.migrate()
        with store._writing() as tx:
            tx.connection.execute(text("CREATE TABLE marks (mark INTEGER)"))
        async with scheduler:
            handle = await work.aenqueue()
            ended = await handle.await_("30s")
            with store._reading() as tx:
                marks = tx.connection.execute(text("SELECT mark FROM marks ORDER BY mark")).scalars().all()
        assert ended.state == "succeeded"  # what was cancelled is the task inside of it
        assert marks in ([1, 2], [1, 2] if cut.error is None else [])
        assert not [one.name for one in threading.enumerate() if "transaction" in one.name]
        scheduler._close_store()

    assert each_await(scenario) >= 4
