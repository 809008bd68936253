"""The scheduler as users hold it: start and stop, enqueue and operate, jobs at run time, on both stores."""

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Run, RunFailed, Scheduler, State, any_of, current_run, every, open_store
from cronsensus.errors import (
    ConfigurationError,
    DuplicateJob,
    InvalidOption,
    InvalidTransition,
    StoreCorrupt,
    UnknownJob,
    UnknownStore,
    UnsupportedFunction,
)
from cronsensus.lifecycle.signals import StopSignals
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import Origin
from tests.quiet import only_these_run

LONG_AGO = every("1h", end="2026-01-01T00:00:00Z")
_names = count()


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path: Path) -> str:
    return f"memory://scheduler-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def scheduler(url: str):
    scheduler = Scheduler(url, node="me")
    scheduler.store.migrate()
    yield scheduler
    scheduler.stop("0s")


# --- enqueue ---------------------------------------------------------------------------------------------------------


def test_an_enqueued_call_runs_and_its_result_comes_back(scheduler):
    @scheduler.job()
    def add(a: int, b: int = 0) -> dict[str, int]:
        return {"sum": a + b}

    with scheduler:
        assert add.enqueue(1, b=2).result("60s") == {"sum": 3}
        assert add.enqueue(5).wait("60s").state is State.SUCCEEDED


def test_one_key_is_one_run_whatever_became_of_it(scheduler):
    calls = []

    @scheduler.job()
    def charge(order: int) -> int:
        calls.append(order)
        return order

    with scheduler:
        first = charge.options(key="order:1").enqueue(1)
        assert first.created
        assert first.result("60s") == 1
        again = charge.options(key="order:1").enqueue(1)
        assert (again.created, again.id, again.state) == (False, first.id, State.SUCCEEDED)
        assert again.result("0s") == 1
    assert calls == [1]


def test_enqueueing_needs_no_node_and_defines_the_job_where_it_is_new(url):
    producer, worker = Scheduler(url), Scheduler(url)
    ran = threading.Event()

    def work() -> None:
        ran.set()

    handle = producer.job()(work).enqueue()
    assert handle.look().state is State.PENDING
    worker.job()(work)
    with worker:
        assert ran.wait(60)
        handle.wait("60s")
    producer.stop()


def test_a_delayed_call_is_due_later_on_the_stores_clock(scheduler):
    @scheduler.job()
    def work() -> None: ...

    before = scheduler.store.now()
    assert work.options(delay="1h").enqueue().look().due_at >= before + timedelta(hours=1)
    noon = datetime(2099, 1, 1, 12, tzinfo=UTC)
    assert work.options(at=noon).enqueue().look().due_at == noon
    assert work.options(at="2099-01-01T12:00:00Z").enqueue().look().due_at == noon


def test_enqueue_many_takes_calls_with_options_of_their_own(scheduler):
    @scheduler.job()
    def send(shop: str, copies: int = 1) -> None: ...

    handles = send.enqueue_many(
        [send.call("a"), send.options(key="shop:b", priority=3).call("b", 2), send.options(key="shop:c").call(shop="c")]
    )
    assert [handle.key for handle in handles[1:]] == ["shop:b", "shop:c"]
    assert [(one.args, one.kwargs, one.priority) for one in (handle.look() for handle in handles)] == [
        (("a",), {}, 0),
        (("b", 2), {}, 3),
        ((), {"shop": "c"}, 0),
    ]
    again = send.enqueue_many(send.options(key=f"shop:{shop}", on_mismatch="return").call(shop) for shop in "bcd")
    assert [one.created for one in again] == [False, False, True]
    assert scheduler.store.counts().pending == 4


def test_enqueue_many_takes_calls_of_several_jobs_and_of_jobs_by_name(url):
    scheduler, elsewhere = Scheduler(url), Scheduler(url)
    extract = scheduler.job(name="extract")(lambda day: None)
    load = scheduler.job(name="load")(lambda day: None)
    handles = scheduler.enqueue_many([extract.call(1), load.options(key="l").call(2)])
    assert [(one.job, one.look().args) for one in handles] == [("extract", (1,)), ("load", (2,))]
    by_name = elsewhere.enqueue_many([elsewhere.call("load", 3), elsewhere.options("load", key="l").call(2)])
    assert [(one.created, one.look().args) for one in by_name] == [(True, (3,)), (False, (2,))]
    with pytest.raises(UnknownJob, match="no job is called 'unload'"):
        elsewhere.enqueue_many([elsewhere.call("load"), elsewhere.call("unload")])
    with pytest.raises(InvalidOption, match=r"'extract' was given a call of 'load'; write scheduler.enqueue_many"):
        extract.enqueue_many([load.call(1)])


def test_enqueue_many_refuses_what_is_no_call_and_enqueues_nothing(scheduler):
    @scheduler.job()
    def send(shop: str) -> None: ...

    for items in ([("a",)], [send.call("a"), "b"]):
        with pytest.raises(InvalidOption, match=r"takes calls, and .* is none; write enqueue_many\(job.call\(one\)"):
            send.enqueue_many(items)
    with pytest.raises(InvalidOption, match="missing a required argument"):
        send.call()
    assert send.enqueue_many([]) == []
    assert scheduler.store.counts().pending == 0


def test_more_than_a_thousand_are_enqueued_in_several_steps(scheduler):
    @scheduler.job()
    def work() -> None: ...

    handles = work.enqueue_many([work.call()] * 2500)
    assert len({handle.id for handle in handles}) == 2500


def test_the_end_that_is_no_success_is_an_error_with_its_reason(scheduler):
    @scheduler.job()
    def broken() -> None:
        raise ValueError("no such shop")

    with scheduler:
        handle = broken.enqueue()
        with pytest.raises(
            RunFailed, match=r"is failed: ValueError: no such shop; more with `cronsensus runs"
        ) as error:
            handle.result("60s")
    assert getattr(error.value.occurrence, "state", None) is State.FAILED


def test_waiting_ends_at_its_time_limit(scheduler):
    handle = scheduler.job()(_nothing).enqueue()
    with pytest.raises(TimeoutError, match="not final after 50ms: it is pending, and no node is alive"):
        handle.wait("50ms")


def _nothing() -> None: ...


# --- operating -------------------------------------------------------------------------------------------------------


def test_pause_needs_a_reason_and_says_whether_it_did_something(scheduler):
    job = scheduler.job(every("1h"))(_nothing)
    with pytest.raises(InvalidOption, match='reason="…"'):
        job.pause(reason=" ")
    assert (job.pause(reason="stocktaking"), job.pause(reason="again")) == (True, False)
    view = scheduler.store.job("_nothing")
    assert (view.paused_by, view.paused_why) == ("me", "stocktaking")
    assert (job.resume(by="ada"), job.resume()) == (True, False)


def test_a_job_is_triggered_beside_its_schedule(scheduler):
    origins = []

    @scheduler.job(every("1h", start="2099-01-01T00:00:00Z"), kwargs={"shop": "a"})
    def report(shop: str, run: Run) -> None:
        origins.append((shop, run.origin, run.scheduled_for))

    with scheduler:
        assert report.trigger(by="ada", reason="asked for").wait("60s").state is State.SUCCEEDED
    assert origins == [("a", Origin.MANUAL, None)]


def test_a_backfill_runs_each_nominal_time_once(scheduler):
    nominal: list[Any] = []
    lock = threading.Lock()

    @scheduler.job(every("1h", end="2026-01-01T00:00:00Z"), overlap="allow")
    def report(run: Run) -> None:
        with lock:
            nominal.append(run.scheduled_for)

    with scheduler:
        handles = report.backfill("2025-12-31T20:00:00Z", "2026-01-01T05:00:00Z", reason="lost")
        for handle in handles:
            handle.wait("60s")
        again = report.backfill("2025-12-31T20:00:00Z", "2026-01-01T05:00:00Z")
    assert sorted(nominal) == [datetime(2025, 12, 31, hour, tzinfo=UTC) for hour in range(20, 24)] + [
        datetime(2026, 1, 1, tzinfo=UTC)
    ]
    assert [handle.created for handle in again] == [False] * 5


def test_a_backfill_is_bounded_and_of_the_past(scheduler):
    job = scheduler.job(every("1s"))(_nothing)
    plain = scheduler.job(name="plain")(_nothing)
    with pytest.raises(InvalidOption, match=r"more than 10,000 nominal times.*up to 2020-01-01T02:46:39Z first"):
        job.backfill("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z")
    with pytest.raises(InvalidOption, match="lies in the future"):
        job.backfill("2020-01-01T00:00:00Z", "2199-01-01T00:00:00Z")
    with pytest.raises(InvalidOption, match="the other way"):
        job.backfill("2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z")
    with pytest.raises(InvalidOption, match="has no trigger"):
        plain.backfill("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z")


def test_a_long_backfill_is_made_in_several_steps(scheduler, monkeypatch):
    job = scheduler.job(every("1s"))(_nothing)
    steps = []
    backfill = scheduler.store.backfill

    def counted(name, times, **how):
        steps.append(len(times))
        return backfill(name, times, **how)

    monkeypatch.setattr(scheduler.store, "backfill", counted)
    handles = job.backfill("2020-01-01T00:00:00Z", "2020-01-01T00:41:39Z")
    assert (steps, len(handles)) == ([1000, 1000, 500], 2500)
    assert [handle.created for handle in job.backfill("2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z")] == [False] * 2


def test_pending_run_is_cancelled_and_final_run_is_retried(scheduler):
    job = scheduler.job()(_nothing)
    handle = job.options(key="a").enqueue()
    assert scheduler.cancel(handle, reason="not today") is State.CANCELLED
    with pytest.raises(InvalidTransition):
        scheduler.cancel(handle.id, reason="twice")
    with pytest.raises(LookupError):
        scheduler.cancel(10**9, reason="none")
    again = scheduler.retry(handle)
    assert again.id != handle.id
    assert again.look().retry_of == handle.id
    assert (handle.retry().id, handle.retry().created) == (again.id, False)
    with scheduler:
        again.wait("60s")
        assert not handle.retry().created
        with pytest.raises(InvalidTransition, match="again=True"):
            again.retry()
        more = asyncio.run(handle.aretry(again=True, reason="once more"))
        assert (more.created, more.wait("60s").retry_of) == (True, again.id)


# --- jobs at run time ------------------------------------------------------------------------------------------------


def test_a_job_is_added_changed_and_removed_while_nodes_run(url):
    nodes = [Scheduler(url, node=name) for name in "ab"]
    seen: list[tuple[str, str]] = []
    told = threading.Semaphore(0)

    def snapshot(shop: str, run: Run) -> None:
        seen.append((run.job, shop))
        told.release()

    for node in nodes:
        node.function()(snapshot)
    with nodes[0], nodes[1]:
        added = nodes[0].add_job("snapshot", every("200ms"), name="shop-a", kwargs={"shop": "a"}, by="ada")
        assert added.name == "shop-a"
        assert told.acquire(timeout=60)
        nodes[1].change_job("shop-a", kwargs={"shop": "A"}, timeout="5s")
        while ("shop-a", "A") not in seen:
            assert told.acquire(timeout=60)
        view = nodes[0].store.job("shop-a")
        assert view is not None
        assert (view.spec.trigger, view.spec.policies.timeout) == (every("200ms"), timedelta(seconds=5))
        assert nodes[0].remove_job("shop-a", reason="closed")
        assert not nodes[1].remove_job("shop-a")
        with pytest.raises(UnknownJob):
            added.enqueue()
        with pytest.raises(UnknownJob):
            nodes[1].change_job("shop-a", timeout="1s")


def test_adding_the_same_twice_changes_nothing_and_another_is_refused(scheduler):
    scheduler.function()(_nothing)
    scheduler.add_job(_nothing, every("1h"), name="hourly")
    scheduler.add_job("_nothing", every("1h"), name="hourly")
    assert scheduler.store.job("hourly").revision == 1
    with pytest.raises(DuplicateJob, match="use change_job"):
        scheduler.add_job(_nothing, every("2h"), name="hourly")


def test_a_name_at_run_time_is_of_a_registered_function_and_imports_nothing(scheduler):
    scheduler.function(name="snapshot")(_nothing)
    with pytest.raises(UnknownJob, match="did you mean 'snapshot'"):
        scheduler.add_job("snapshop", name="x")
    with pytest.raises(UnsupportedFunction, match=r"put @scheduler\.function\(\) above it"):
        scheduler.add_job(lambda: None, name="x")
    with pytest.raises(UnknownJob, match=r"registered here as 'os\.system'"):
        scheduler.add_job("os.system", name="x", args=("true",))


def test_job_declared_in_code_cannot_be_changed_at_run_time(scheduler):
    scheduler.job(every("1h"))(_nothing)
    with scheduler:
        with pytest.raises(DuplicateJob, match="declared in code at"):
            scheduler.add_job("_nothing", name="_nothing")
        with pytest.raises(InvalidOption, match="declared in code; change it there"):
            scheduler.change_job("_nothing", timeout="1s")
        with pytest.raises(InvalidOption, match="remove it there, or pause it"):
            scheduler.remove_job("_nothing")


def test_a_job_declared_on_a_started_scheduler_works_and_survives_a_restart_without_it(url):
    scheduler = Scheduler(url)
    scheduler.job()(_nothing)
    with scheduler:

        @scheduler.job()
        def late() -> str:
            return "better late"

        assert late.enqueue().result("60s") == "better late"
    other = Scheduler(url)
    other.job()(_nothing)
    with other:
        view = other.store.job("late")
        assert view is not None
        assert view.retired_at is None


# --- start and stop --------------------------------------------------------------------------------------------------


def test_starting_twice_is_an_error_and_stopping_twice_is_nothing(scheduler):
    scheduler.start()
    with pytest.raises(ConfigurationError, match="started already"):
        scheduler.start()
    assert scheduler.stop()
    assert scheduler.stop()
    scheduler.start()
    assert scheduler.stop()


def test_a_stopped_node_leaves_no_thread_and_no_live_session(scheduler):
    before = set(threading.enumerate())
    scheduler.job()(_nothing)
    with scheduler:
        scheduler.jobs["_nothing"].enqueue().wait("60s")
    only_these_run(before, "cronsensus-job", "cronsensus-memory")
    assert scheduler.store.sessions() == []


def test_async_jobs_run_on_the_loop_of_the_application(url):
    async def main() -> None:
        scheduler = Scheduler(url)
        here = asyncio.get_running_loop()

        @scheduler.job()
        async def where() -> bool:
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is here

        async with scheduler:
            handle = await where.aenqueue()
            assert (await handle.await_("10s")).state is State.SUCCEEDED
            assert await handle.aresult() is True
            with pytest.raises(ConfigurationError, match=r"await astop\(\)"):
                scheduler.stop()
        scheduler.start()
        assert await (await where.aenqueue()).aresult("60s") is False
        await scheduler.astop()

    asyncio.run(main())


def test_every_blocking_call_has_a_twin_that_leaves_the_loop_free(url):
    async def main() -> None:
        scheduler = Scheduler(url)
        job = scheduler.job(LONG_AGO)(_nothing)
        scheduler.function(name="more")(_nothing)
        handle = await scheduler.options("_nothing", key="a").aenqueue()
        assert await scheduler.acancel(handle, reason="x") is State.CANCELLED
        again = await scheduler.aretry(handle)
        assert again.created
        found = await scheduler.afind("_nothing", key="a")
        assert found is not None
        assert (found.id, found.look().id) == (handle.id, again.id)
        assert (await scheduler.atrigger(job)).created
        assert await job.apause(reason="x")
        assert await job.aresume()
        assert len(await scheduler.abackfill(job, "2025-12-31T22:00:00Z", "2026-01-01T00:00:00Z")) == 3
        assert len(await job.aenqueue_many([job.call(), job.call()])) == 2
        assert [one.id for one in await scheduler.aruns(job, state="cancelled", limit=1)]
        assert await job.anext_time() == datetime(2026, 1, 1, tzinfo=UTC)
        await scheduler.aadd_job("more", name="hourly")
        await scheduler.achange_job("hourly", trigger=any_of(every("1h"), every("7h")))
        assert await scheduler.aremove_job("hourly")
        await scheduler.astop()

    asyncio.run(main())
    blocking = {"enqueue", "enqueue_many", "pause", "resume", "trigger", "backfill", "cancel", "retry", "add_job"}
    for name in blocking | {"change_job", "find", "remove_job", "start", "stop"}:
        assert inspect.iscoroutinefunction(getattr(Scheduler, f"a{name}"))


def test_a_start_that_is_cancelled_leaves_no_node_behind(url, monkeypatch):
    async def main() -> None:
        scheduler = Scheduler(url)
        began, go_on = threading.Event(), threading.Event()
        ready = scheduler._opened.ready

        def slowly():
            began.set()
            go_on.wait(10)
            return ready()

        monkeypatch.setattr(scheduler._opened, "ready", slowly)
        task = asyncio.create_task(scheduler.astart())
        await asyncio.to_thread(began.wait, 10)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert scheduler._part.node is None
        await scheduler.astop()

    asyncio.run(main())


def test_a_start_that_fails_leaves_nothing_behind(tmp_path):
    (tmp_path / "jobs.db").write_bytes(b"this is no database, and certainly not one of SQLite's" * 100)
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    before = set(threading.enumerate())
    with pytest.raises(StoreCorrupt, match=r"jobs\.db"):
        scheduler.start()
    only_these_run(before)  # the one that began the node has raised, and is about to end
    scheduler.stop()


def test_a_url_that_no_store_answers_to_is_an_error_that_says_which_do():
    with pytest.raises(UnknownStore, match="did you mean sqlite://"):
        Scheduler("sqllite:///jobs.db").start()
    with pytest.raises(UnknownStore, match=r"write sqlite:///jobs\.db"):
        Scheduler("jobs.db").start()


def test_eight_nodes_that_start_in_one_instant_on_an_empty_file_share_the_work(tmp_path):
    nodes = [Scheduler(f"sqlite:///{tmp_path}/jobs.db", node=str(number)) for number in range(8)]
    together = threading.Barrier(8)
    lock, seen, enough = threading.Lock(), [], threading.Event()

    def work(run: Run) -> None:
        with lock:
            seen.append(run.scheduled_for)
            if len(seen) >= 5:
                enough.set()

    def start(scheduler: Scheduler) -> None:
        scheduler.job(every("100ms"), overlap="allow", catch_up="all")(work)
        together.wait(20)
        scheduler.start()

    threads = [threading.Thread(target=start, args=[scheduler], daemon=True) for scheduler in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    try:
        assert [scheduler.started for scheduler in nodes] == [True] * 8
        assert enough.wait(60)
    finally:
        for scheduler in nodes:
            scheduler.stop("0s")
    assert len(set(seen)) == len(seen)


def test_the_current_run_is_known_without_a_parameter_in_threads_and_tasks(url):
    def tell() -> tuple[str, int] | None:
        run = current_run()
        return None if run is None else (run.job, run.attempt)

    async def main() -> None:
        scheduler = Scheduler(url)

        @scheduler.job()
        def in_a_thread() -> list[object]:
            return [tell()]

        @scheduler.job()
        async def in_tasks() -> list[object]:
            async def inner() -> object:
                return tell()

            return [tell(), await asyncio.create_task(inner()), await asyncio.to_thread(tell)]

        async with scheduler:
            assert await (await in_a_thread.aenqueue()).aresult("60s") == [["in_a_thread", 1]]
            assert await (await in_tasks.aenqueue()).aresult("60s") == [["in_tasks", 1]] * 3
            assert tell() is None

    asyncio.run(main())


def test_log_of_a_job_is_kept_with_its_run(scheduler, caplog):
    caplog.set_level(logging.INFO)

    @scheduler.job()
    def talk() -> None:
        logging.getLogger("shop").info("counting %d", 3)

    with scheduler:
        handle = talk.enqueue()
        handle.wait("60s")
        assert [(attempt, line.level, line.text) for _, attempt, line in scheduler.store.logs(handle.id)] == [
            (1, "INFO", "counting 3")
        ]
    assert not any(type(handler).__name__ == "RunLogHandler" for handler in logging.getLogger().handlers)


def test_a_line_is_kept_once_however_many_nodes_the_process_has(url):
    nodes = Scheduler(url), Scheduler(url)

    def talk() -> None:
        logging.getLogger("shop").warning("once")

    jobs = [each.job()(talk) for each in nodes]
    with nodes[0], nodes[1]:
        handle = jobs[0].enqueue()
        handle.wait("60s")
        assert [line.text for _, _, line in nodes[0].store.logs(handle.id)] == ["once"]


# --- whole programs --------------------------------------------------------------------------------------------------

PROGRAM = """
    import sys, threading
    from cronsensus import Run, Scheduler, every
    scheduler = Scheduler("sqlite:///{folder}/jobs.db", node="it")
    def say(text):
        print(text, flush=True)
"""


def program(tmp_path: Path, text: str) -> list[str]:
    source = tmp_path / "program.py"
    source.write_text(textwrap.dedent(PROGRAM.format(folder=tmp_path)) + textwrap.dedent(text))
    return [sys.executable, "-W", "error::ResourceWarning", str(source)]


@contextlib.contextmanager
def started(command: list[str], **options: Any):
    """A program that is gone afterwards, whatever the test found."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def run(tmp_path: Path, text: str, code: int = 0) -> str:
    done = subprocess.run(program(tmp_path, text), capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def left_over(tmp_path: Path) -> list[str]:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    sessions = scheduler.store.sessions(ended=True)
    scheduler.stop()
    return [session.state for session in sessions]


def test_signal_before_the_wait_is_not_lost():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signals.request_stop()
        assert [signals.wait(10**9), signals.wait(10), signals.wait(0)] == [signal.SIGTERM, None, None]
    signals.request_stop()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_program_goes_on_after_run(tmp_path, number):
    text = """
        go_on = threading.Event()
        @scheduler.job()
        def work(run: Run):
            say("runs")
            sys.stdin.readline()
            return "done"
        work.options(key="a").enqueue()
        say(("drained", scheduler.run()))
        say(work.options(key="a").enqueue().look().state)
        scheduler.stop()
    """
    with started(program(tmp_path, text), stdin=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "runs\n"
        process.send_signal(number)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "('drained', True)\nsucceeded\n"
        assert process.wait(60) == 0
    assert left_over(tmp_path) == ["closed"]


def test_a_program_that_configures_no_log_hears_of_its_jobs_all_the_same(tmp_path):
    text = """
        @scheduler.job()
        def work(run: Run):
            raise ValueError("no such shop")
        work.options(key="a").enqueue()
        again = work.options(key="a")
        threading.Thread(target=lambda: (again.enqueue().wait("60s"), scheduler.stop()), daemon=True).start()
        scheduler.run()
    """
    done = subprocess.run(program(tmp_path, text), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0
    assert f"store sqlite:///{tmp_path}/jobs.db, 1 job" in done.stderr
    assert "failed at attempt 1: ValueError: no such shop" in done.stderr


def test_a_changed_schedule_is_told(url, caplog):
    caplog.set_level(logging.INFO)
    for interval in ("1h", "2h"):
        scheduler = Scheduler(url)
        scheduler.job(every(interval), name="hourly")(lambda: None)
        with scheduler:
            pass
    told = [record.getMessage() for record in caplog.records if record.name == "cronsensus.scheduler"]
    assert told.count("new in the store: hourly") == 1
    assert told.count("changed for all nodes: hourly") == 1


def test_a_second_signal_gives_back_what_runs_and_leaves(tmp_path):
    text = """
        @scheduler.job()
        def work(run: Run):
            say("runs")
            run.cancelled.wait()
            threading.Event().wait()
        work.options(key="a").enqueue()
        import logging
        class Tell(logging.Handler):
            def emit(self, record):
                if "at once" in record.getMessage():
                    say(record.getMessage())
        logging.getLogger("cronsensus.scheduler").addHandler(Tell())
        logging.getLogger("cronsensus.scheduler").setLevel("INFO")
        from cronsensus.lifecycle import signals
        signals.SAME_SIGNAL_SECONDS = 0
        ended = scheduler.run()
        one = work.options(key="a").enqueue().look()
        say((ended, one.state.value, one.attempt))
        scheduler.stop()
    """
    with started(program(tmp_path, text)) as process:
        assert process.stdout
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGTERM)
        assert "once more to leave at once" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert "leaving at once" in process.stdout.readline()
        assert process.stdout.read() == "(False, 'pending', 1)\n"
        assert process.wait(60) == 0
    assert left_over(tmp_path) == ["closed"]


def test_run_ends_when_the_node_is_drained_or_stopped(url):
    for way in ("drain", "stop"):
        scheduler = Scheduler(url)
        scheduler.job()(_nothing)
        ended: list[bool] = []
        thread = threading.Thread(target=lambda it=scheduler, to=ended: to.append(it.run()), daemon=True)
        thread.start()
        scheduler.jobs["_nothing"].enqueue().wait("60s")
        if way == "drain":
            (session,) = scheduler.store.sessions()
            scheduler.store.drain(session.id, by="ada", why="upgrade")
            scheduler.store.notify()
        else:
            scheduler.stop()
        thread.join(20)
        assert (thread.is_alive(), ended) == (False, [True])


def test_a_started_scheduler_is_stopped_in_order_when_the_interpreter_exits(tmp_path):
    text = """
        @scheduler.job()
        def work(): return 1
        @scheduler.job()
        async def awork(): return 2
        running = threading.Event()
        @scheduler.job()
        def endless():
            say("runs")
            running.set()
            threading.Event().wait()
        scheduler.start()
        say(work.enqueue().result("60s"))
        say(awork.enqueue().result("60s"))
        endless.enqueue()
        running.wait(10)
    """
    source = program(tmp_path, text)
    done = subprocess.run(source, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n2\nruns\n")
    assert "the interpreter exits while jobs run" in done.stderr
    assert left_over(tmp_path) == ["closed"]


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("", True),
        ("sys.exit(0)", True),
        ("work.enqueue().result('60s')", False),
        ("scheduler.stop()", False),
        ("raise ValueError('of its own')", False),
    ],
)
def test_a_program_that_ends_before_its_node_ran_anything_is_told_to_write_run(tmp_path, rest, told):
    text = f"""
        @scheduler.job()
        def work(): return 1
        scheduler.start()
        {rest}
    """
    done = subprocess.run(program(tmp_path, text), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == ("raise" in rest)
    assert ("write scheduler.run() in its place" in done.stderr) is told, done.stderr


def test_a_program_that_only_enqueues_or_only_declares_ends_silently(tmp_path):
    assert run(tmp_path, "scheduler.job()(say).enqueue('x')\n") == ""


def test_an_exception_in_the_main_program_still_closes_the_session(tmp_path):
    text = """
        scheduler.job()(say)
        scheduler.start()
        sys.exit(3)
    """
    done = subprocess.run(program(tmp_path, text), capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert left_over(tmp_path) == ["closed"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_before_the_start_works_in_the_child_and_one_after_it_is_refused(tmp_path):
    text = """
        import os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        @scheduler.job()
        def work(): return os.getpid()
        work.options(key="before").enqueue()     # opens the store in the parent

        def child(do):
            pid = os.fork()
            if pid == 0:
                do()
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(pid, 0)

        def works():
            with scheduler:
                assert work.options(key="child").enqueue().result("60s") == os.getpid()
                say(work.options(key="before").enqueue().result("60s") == os.getpid())
        child(works)

        scheduler.start()
        def refused():
            try:
                scheduler.start()
            except Exception as error:
                say(type(error).__name__)
                say("post_worker_init" in str(error))
            say(work.options(key="after").enqueue().created)
            scheduler.stop()
        child(refused)
        child(lambda: sys.exit())
        say(work.options(key="after").enqueue().result("60s") == os.getpid())
        scheduler.stop()
    """
    assert run(tmp_path, text).split() == ["True", "ConfigurationError", "True", "True", "True"]
    assert left_over(tmp_path) == ["closed", "closed"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_store_that_was_given_open_is_not_carried_over_a_fork(tmp_path):
    text = """
        import os, warnings
        from cronsensus import open_store
        warnings.simplefilter("ignore", DeprecationWarning)
        store = open_store("sqlite:///jobs.db")
        scheduler = Scheduler(store)
        job = scheduler.job()(say)
        job.options(key="a").enqueue("x")
        if os.fork() == 0:
            try:
                job.options(key="b").enqueue("x")
            except Exception as error:
                say((type(error).__name__, "give the scheduler a URL" in str(error)))
            os._exit(0)
        os.wait()
        say(job.options(key="a").enqueue("x").created)
        store.close()
    """
    command = program(tmp_path, text)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("('ConfigurationError', True)\nFalse\n", "")


def test_a_module_that_starts_a_scheduler_at_import_can_still_have_process_jobs(tmp_path):
    text = """
        def work(): return 5
        job = scheduler.job(executor="process")(work)
        work = job
        scheduler.start()
        if __name__ == "__main__":
            say(job.enqueue().result("60s"))
            scheduler.stop()
    """
    assert run(tmp_path, text) == "5\n"
    assert len(left_over(tmp_path)) == 1


@pytest.mark.parametrize("makes_work", ["job.enqueue()", "job.trigger()"])
def test_a_program_without_a_guard_does_not_multiply_its_work(tmp_path, makes_work):
    text = f"""
        import logging
        from cronsensus.model.occurrence import OccurrenceFilter
        logging.getLogger("cronsensus.runs").disabled = True
        def work(): return 5
        job = scheduler.job(executor="process")(work)
        work = job
        with scheduler:
            error = {makes_work}.wait("60s").error
            say(error.type)
            say(error.message)
            say(len(scheduler.store.occurrences(OccurrenceFilter())))
    """
    kind, message, number = run(tmp_path, text).splitlines()
    assert kind == "ConfigurationError"
    assert 'put what the program does under  if __name__ == "__main__":' in message
    assert number == "1"


def test_a_program_without_a_guard_may_enqueue_under_a_key(tmp_path):
    text = """
        def work(): return 5
        job = scheduler.job(executor="process")(work)
        work = job
        scheduler.start()
        handle = job.options(key="once").enqueue()
        if __name__ == "__main__":
            say(handle.result("60s"))
            scheduler.stop()
    """
    assert run(tmp_path, text) == "5\n"


def test_a_flag_decides_which_store_it_is_also_when_another_was_opened_or_given(tmp_path):
    scheduler = Scheduler("memory://")
    scheduler.job()(_nothing).enqueue()
    scheduler.configure({"lease": "3s"})
    assert scheduler.store.counts().pending == 1
    scheduler.configure({"url": f"sqlite:///{tmp_path}/jobs.db"})
    scheduler.store.migrate()
    assert scheduler.store.counts().pending == 0
    scheduler.stop()
    given = open_store("memory://")
    scheduler = Scheduler(given, namespace="ignored")
    assert (scheduler.store, scheduler.settings.namespace) == (given, "default")
    scheduler.configure({"url": "memory://"})
    assert scheduler.store is not given


def test_items_and_filters_of_the_store_are_at_hand(scheduler):
    scheduler.job()(_nothing).options(key="a").enqueue()
    scheduler.store.enqueue([Item(job="_nothing", key="b")])
    assert len(scheduler.store.occurrences(OccurrenceFilter(job="_nothing"))) == 2
