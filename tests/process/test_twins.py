"""A task is cancelled at each await of the async twins: nothing is half done, and nothing stays behind."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

import cronsensus
from cronsensus import LeaseLost, Run, Scheduler, every
from cronsensus.integrations.startup_coordinator import StartupCoordinator
from cronsensus.jobs.enqueuing import JobWithOptions
from cronsensus.jobs.handle import Handle
from cronsensus.jobs.job import Job
from cronsensus.lock.lease import Lease
from cronsensus.lock.lock import Lock
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.once.once import Once
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.sql.sql_handle import SqlHandle
from tests.cancelling import CutTask, each_await
from tests.quiet import nothing_runs, quiet

_names = count()


def new_scheduler() -> Scheduler:
    return quiet(Scheduler(f"memory://cancelled-twins-{next(_names)}", lease="30s"))


def test_a_cancelled_enqueue_is_done_whole_or_not_at_all_and_can_be_said_again():
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()

        @scheduler.job()
        def work() -> None: ...

        await cut(work.options(key="k").aenqueue())
        again = await work.options(key="k").aenqueue()
        assert again.look().state == "pending"
        assert len(scheduler.store.occurrences(OccurrenceFilter(job=again.job))) == 1
        scheduler._opened.close()

    assert each_await(scenario) >= 1


def test_a_cancelled_look_takes_nothing_from_the_next_one():
    async def scenario(cut: CutTask) -> None:
        place = Place()
        handle = await place.scheduler.options("work", key="k").aenqueue()
        await cut(place.scheduler.afind("work", key="k"))
        await cut(handle.aprogress())
        await cut(place.scheduler.aruns("work"))
        await cut(place.scheduler.jobs["work"].anext_time())
        found = await place.scheduler.afind("work", key="k")
        assert found is not None
        assert found.id == handle.id
        assert (await handle.aprogress()).total == 0
        assert found.id in {one.id for one in await place.scheduler.aruns("work")}
        await place.scheduler.jobs["work"].anext_time()
        await asyncio.get_running_loop().shutdown_default_executor()
        place.close()

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


@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_a_cancelled_start_leaves_no_node_behind_and_it_can_be_started_again(cancels):
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()
        await cut(scheduler.astart())
        if cut.error is not None:
            await asyncio.to_thread(nothing_runs, scheduler)
            await scheduler.astart()
        assert scheduler.started
        await scheduler.astop("30s")
        nothing_runs(scheduler)

    assert each_await(scenario, cancels=cancels) >= 2


def test_a_start_that_is_cancelled_twice_while_it_is_under_way_starts_nothing(monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    scheduler = new_scheduler()
    ready = scheduler._opened.ready

    def slowly() -> Any:
        began.set()
        assert go_on.wait(60)
        return ready()

    monkeypatch.setattr(scheduler._opened, "ready", slowly)

    async def main() -> None:
        task = asyncio.create_task(scheduler.astart())
        await asyncio.to_thread(began.wait, 60)
        for _ in range(2):
            task.cancel()
            for _ in range(5):  # it is to be in the middle of what it does about the first one
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(main())
    nothing_runs(scheduler)


@pytest.mark.parametrize("dropped_when", ["under way", "answered"])
def test_a_start_whose_task_is_dropped_with_its_loop_starts_nothing(monkeypatch, dropped_when):
    began, go_on = threading.Event(), threading.Event()
    scheduler = new_scheduler()
    new_node = scheduler._part._new_node

    def slowly(*given: Any) -> Any:
        began.set()
        assert go_on.wait(60)
        return new_node(*given)

    monkeypatch.setattr(scheduler._part, "_new_node", slowly)
    loop = asyncio.new_event_loop()
    starting = scheduler.astart()

    async def first_steps() -> None:
        while starting.send(None) is None:  # until it waits for something
            pass

    loop.run_until_complete(first_steps())
    assert began.wait(60)
    if dropped_when == "answered":
        go_on.set()
        while not scheduler.started:
            threading.Event().wait(0.01)
    starting.close()
    go_on.set()
    nothing_runs(scheduler)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.mark.parametrize("fails", [1])
def test_a_start_that_waits_for_its_store_and_is_cancelled_starts_nothing(monkeypatch, fails):
    migrate = MemoryStore.migrate

    async def scenario(cut: CutTask) -> None:
        scheduler, left = new_scheduler(), [1] * fails

        def not_yet(store: MemoryStore) -> list[str]:
            if left:
                left.pop()
                raise cronsensus.StoreUnavailable("not there yet")
            return migrate(store)

        monkeypatch.setattr(MemoryStore, "migrate", not_yet)
        await cut(scheduler.astart(wait="1m"))
        if cut.error is None:
            assert scheduler.started
            await scheduler.astop()
        await asyncio.to_thread(nothing_runs, scheduler)

    assert each_await(scenario) >= 2 * (fails + 1)


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_stop_goes_on_to_its_end(cancels):
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()
        await scheduler.astart()
        await cut(scheduler.astop("30s"))
        await scheduler.astop("30s")
        nothing_runs(scheduler)

    assert each_await(scenario, cancels=cancels) >= 1


def test_a_stop_that_its_loop_cuts_off_at_its_first_await_goes_on_to_its_end():
    scheduler = new_scheduler()

    async def main() -> None:
        await scheduler.astart()
        task = asyncio.create_task(scheduler.astop("30s"))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(main())
    nothing_runs(scheduler)


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_block_leaves_no_node_behind(cancels):
    async def scenario(cut: CutTask) -> None:
        scheduler = new_scheduler()

        async def block() -> None:
            async with scheduler:
                await asyncio.sleep(0)

        await cut(block())
        await asyncio.to_thread(nothing_runs, scheduler)

    assert each_await(scenario, cancels=cancels) >= 4


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
        with store._write_transaction() as tx:
            tx.connection.execute_text("CREATE TABLE marks (mark INTEGER)")
        async with scheduler:
            handle = await work.aenqueue()
            ended = await handle.await_("30s")
            with store._read_transaction() as tx:
                marks = [mark for [mark] in tx.connection.execute_text("SELECT mark FROM marks ORDER BY mark")]
        assert ended.state == "succeeded"  # what was cancelled is the task inside of it
        assert marks in ([1, 2], [1, 2] if cut.error is None else [])
        assert not [one.name for one in threading.enumerate() if "transaction" in one.name]
        scheduler._opened.close()

    assert each_await(scenario) >= 4


# --- the verbs: done whole, or not at all -----------------------------------------------------------------------------


PAST = ("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z")
VERBS: dict[tuple[type, str], Callable[[Callable[..., Any], Any, Any, Any], Any]] = {
    (Scheduler, "enqueue"): lambda verb, job, *_: verb(job),
    (Scheduler, "enqueue_many"): lambda verb, job, *_: verb([job.call(), job.call()]),
    (Scheduler, "pause"): lambda verb, job, *_: verb(job, reason="x"),
    (Scheduler, "resume"): lambda verb, *_: verb("paused"),
    (Scheduler, "rewind"): lambda verb, *_: verb("ahead", reason="x"),
    (Scheduler, "trigger"): lambda verb, job, *_: verb(job),
    (Scheduler, "backfill"): lambda verb, job, *_: verb(job, *PAST),
    (Scheduler, "cancel"): lambda verb, _, waits, __: verb(waits, reason="x"),
    (Scheduler, "retry"): lambda verb, _, __, final: verb(final),
    (Scheduler, "break_lock"): lambda verb, *_: verb("held", reason="x"),
    (Scheduler, "define"): lambda verb, *_: verb(),
    (Scheduler, "add_job"): lambda verb, *_: verb("work", name="more"),
    (Scheduler, "change_job"): lambda verb, *_: verb("added", trigger=every("2h")),
    (Scheduler, "remove_job"): lambda verb, *_: verb("added"),
    (Job, "enqueue"): lambda verb, *_: verb(),
    (Job, "enqueue_many"): lambda verb, job, *_: verb([job.call(), job.call()]),
    (JobWithOptions, "enqueue"): lambda verb, *_: verb(),
    (Job, "enqueue_batch"): lambda verb, *_: verb([1, 2]),
    (Scheduler, "enqueue_batch"): lambda verb, job, *_: verb(job, [1, 2]),
    (Handle, "cancel"): lambda verb, *_: verb(reason="x"),
    (Handle, "retry"): lambda verb, _, __, final: getattr(final, verb.__name__)(),
    (Job, "pause"): lambda verb, *_: verb(reason="x"),
    (Job, "resume"): lambda verb, *_: verb(),
    (Job, "trigger"): lambda verb, *_: verb(),
    (Job, "backfill"): lambda verb, *_: verb(*PAST),
    (Once, "forget"): lambda verb, *_: verb(),
}
"""What has an async twin of the same name with an ``a``, and how to call it."""
ELSEWHERE = {
    (Scheduler, "astart"), (Scheduler, "astop"), (Handle, "await_"), (Handle, "aresult"),
    (Scheduler, "afind"), (Scheduler, "aruns"), (Job, "anext_time"), (Handle, "aprogress"), (Handle, "alook"),
    # In a transaction of the caller's own, which a cancelled caller does not commit.
    *((kind, "aenqueue_in") for kind in (Scheduler, Job, JobWithOptions)),
    *((kind, "aenqueue_many_in") for kind in (Scheduler, Job)),
    (Scheduler, "arun_startup"),  # tests/once/test_startup.py
    (StartupCoordinator, "acquire"), (StartupCoordinator, "release"),  # tests/once/test_coordinator.py
    *((kind, name) for kind in (Lock, Lease) for name in ("aacquire", "arelease", "aextend", "areacquire", "aowned",
    "alocked")),  # tests/lock/test_cancelled.py
}  # fmt: skip
"""The other async functions, each with a test in which it is cancelled at each of its awaits."""


class Place:
    """A scheduler in a store with something for each verb to act on."""

    def __init__(self) -> None:
        self.scheduler = scheduler = new_scheduler()

        @scheduler.job(every("1h"))
        def work(_number: int = 0) -> None: ...

        scheduler.job(every("1h"), name="paused")(lambda: None)
        scheduler.job(every("1h"), name="not in the store")(lambda: None)
        waits, final = (scheduler.enqueue(name) for name in ("work", "paused"))
        scheduler.cancel(final, reason="so that it is final")
        scheduler.pause("paused", reason="to be resumed")
        scheduler.add_job("work", every("1h"), name="added")
        scheduler.add_job("work", every("1h"), name="ahead")
        space = cast("MemoryStore", scheduler.store)._space
        space.jobs["ahead"].watermark += timedelta(hours=3)  # as after a clock that was set back
        space.schedule_job(space.jobs["ahead"])
        once = scheduler.once("fixed", name="guarded")(lambda: None)
        once()
        self._lock = scheduler.lock("held")
        self._lock.acquire()
        self.acting: dict[type, Any] = {
            Scheduler: scheduler,
            Job: work,
            JobWithOptions: work.options(priority=1),
            Once: once,
            Handle: waits,
        }
        self.given = [work, waits, final]

    def call(self, kind: type, verb: str, prefix: str = "") -> Any:
        return VERBS[kind, verb](getattr(self.acting[kind], prefix + verb), *self.given)

    def close(self) -> Any:
        """Return all that the verbs may have changed, but for keys that are made up."""
        store = self.scheduler.store
        jobs = [(one.spec.name, one.spec.trigger, one.paused_at, one.retired_at) for one in store.jobs()]
        occurrences = [(one.job, str(one.state)) for one in store.occurrences(OccurrenceFilter())]
        stands = (
            sorted((name, str(trigger), paused is None, retired is None) for name, trigger, paused, retired in jobs),
            sorted(occurrences),
            len(store.locks()),
            [one.spec.name for one in store.jobs() if one.watermark > store.now()],
        )
        with suppress(LeaseLost):
            self._lock.release()
        self.scheduler._opened.close()
        return stands


@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_a_verb_that_is_cancelled_is_done_whole_or_not_at_all(kind, verb):
    before = Place().close()
    place = Place()
    place.call(kind, verb)
    after = place.close()
    assert before != after or (kind, verb) == (Job, "resume")

    async def scenario(cut: CutTask) -> None:
        place = Place()
        await cut(place.call(kind, verb, prefix="a"))
        await asyncio.get_running_loop().shutdown_default_executor()
        assert place.close() in ([after] if cut.error is None else [before, after])

    assert each_await(scenario) >= 1


def test_each_async_function_is_cancelled_somewhere():
    kinds = [Scheduler, Job, JobWithOptions, Handle, Once, Lock, Lease, StartupCoordinator]
    found = {
        (kind, name)
        for kind in kinds
        for name in dir(kind)
        if not name.startswith("_") and inspect.iscoroutinefunction(getattr(kind, name))
    }
    cancelled = {(kind, f"a{verb}") for kind, verb in VERBS} | ELSEWHERE
    assert found <= cancelled, found - cancelled


def test_each_twin_has_the_name_of_its_method_with_an_a_and_a_docstring_that_names_it():
    kinds = [Scheduler, Job, JobWithOptions, Handle, Once, Lock, Lease]
    twins = [
        one
        for kind in kinds
        for name in dir(kind)
        if not name.startswith("_") and hasattr(one := getattr(kind, name), "__wrapped__") and name.startswith("a")
        if inspect.iscoroutinefunction(one)
    ]
    assert len(twins) > 30
    for one in twins:
        assert one.__name__ == f"a{one.__wrapped__.__name__}"
        assert f"``{one.__wrapped__.__name__}``" in one.__doc__


def test_each_verb_of_a_scheduler_is_that_of_the_same_name():
    verbs = [name for name, one in vars(Scheduler).items() if type(one).__name__ == "_Of"]
    assert len(verbs) > 50
    assert [getattr(Scheduler, name).__name__ for name in verbs] == verbs
