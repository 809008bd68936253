import asyncio
import contextvars
import random
import subprocess
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest

from cronsensus.errors import Cancel
from cronsensus.node.executors import threads
from cronsensus.node.executors.threads import BURST_WINDOW, YIELD_TO_WORKER, ThreadExecutor
from cronsensus.node.run import current_run
from cronsensus.process.interrupts import Event
from cronsensus.timing.clock import ManualClock

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def executor(bench, clock):
    executor = ThreadExecutor(bench.done, clock)
    yield executor
    executor.close()


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("cronsensus-job")]


def test_a_function_gets_its_arguments_and_its_value_comes_back(bench, executor):
    ending = bench.run(executor, lambda a, *, b: {"a": a, "b": b}, 1, b=[2])
    assert (ending.kind, ending.result, ending.error) == ("returned", '{"a":1,"b":[2]}', None)
    assert timedelta(0) < ending.elapsed < timedelta(seconds=bench.patience)


def test_the_run_is_given_to_the_parameter_that_wants_it_whatever_a_row_says(bench, executor):
    seen = []
    call = bench.call(lambda a, run: seen.append((a, run)), 1, run="from a row", run_parameter="run")
    executor.start(call)
    bench.wait(call)
    assert seen == [(1, call.run)]


def test_elapsed_is_by_the_clock_given(bench):
    clock = ManualClock()
    executor = ThreadExecutor(bench.done, clock)
    assert bench.run(executor, lambda: clock.advance(5)).elapsed == timedelta(seconds=5)
    executor.close()


def test_a_thread_is_used_again(bench, executor):
    names = set()
    for _ in range(50):
        bench.run(executor, lambda: names.add(threading.current_thread().name))
        bench.until(lambda: executor._idle, "idleness")
    assert len(names) == 1


def test_a_call_that_begins_alone_need_not_wait_until_its_caller_waits(bench, executor):
    bench.run(executor, lambda: None)  # has a thread made
    before = sys.getswitchinterval()
    begun: list[None] = []
    sys.setswitchinterval(10)  # nobody has to give the interpreter up
    try:
        for _ in range(200):
            bench.until(lambda: executor._idle, "idleness")
            executor._began_at -= BURST_WINDOW
            call = bench.call(lambda: begun.append(None))
            executor.start(call)
            if begun:
                break
            bench.wait(call)
            begun.clear()
    finally:
        sys.setswitchinterval(before)
    assert begun, "none of them began before its caller went on"
    bench.wait(call)


def test_of_calls_that_begin_one_after_the_other_only_the_first_has_its_caller_wait(bench, executor, monkeypatch):
    waits = []
    monkeypatch.setattr(Event, "wait", lambda self, seconds: waits.append(seconds))
    bench.run(executor, lambda: None)  # has a thread made
    bench.until(lambda: executor._idle, "idleness")
    moments = iter([1.0, 1.001, 1.002])
    monkeypatch.setattr(threads, "_CLOCK", SimpleNamespace(monotonic=lambda: next(moments)))
    executor._began_at = 0.0
    for _ in range(3):
        bench.until(lambda: executor._idle, "idleness")
        bench.run(executor, lambda: None)
    assert waits == [YIELD_TO_WORKER]


def test_a_call_begun_while_a_thread_reports_an_end_runs_on_that_thread(bench, clock):
    names, calls = [], [bench.call(lambda: names.append(threading.current_thread().name)) for _ in range(20)]
    left = list(calls)

    def done(call, ending):
        bench.done(call, ending)
        if left:
            executor.start(left.pop())

    executor = ThreadExecutor(done, clock)
    executor.start(left.pop())
    assert [bench.wait(call).kind for call in calls] == ["returned"] * 20
    assert len(set(names)) == 1
    executor.close()


def test_a_thread_that_may_begin_no_more_in_its_report_leaves(bench, clock):
    before, refused = len(workers()), threading.Event()

    def done(call, ending):
        closed._attempts._closed = True
        with pytest.raises(RuntimeError, match="closed"):
            closed.start(bench.call(lambda: None))
        bench.done(call, ending)
        refused.set()

    closed = ThreadExecutor(done, clock)
    closed.start(bench.call(lambda: None))
    assert refused.wait(bench.patience)
    bench.until(lambda: len(workers()) <= before, "leaving")
    closed.close()


def test_calls_run_side_by_side(bench, executor):
    barrier = threading.Barrier(8)
    calls = [bench.call(lambda: barrier.wait(bench.patience)) for _ in range(8)]
    for call in calls:
        executor.start(call)
    assert {bench.wait(call).kind for call in calls} == {"returned"}


def test_an_idle_thread_leaves_after_a_while(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.threads.IDLE_SECONDS", 0.01)
    executor = ThreadExecutor(bench.done, clock)
    before = len(workers())
    bench.run(executor, lambda: None)
    bench.until(lambda: len(workers()) <= before, "leaving")
    assert bench.run(executor, lambda: 7).result == "7"
    executor.close()


def test_threads_that_leave_lose_no_call(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.threads.IDLE_SECONDS", 0.0005)
    executor = ThreadExecutor(bench.done, clock)
    rest = threading.Event()
    for number in range(300):
        assert bench.run(executor, lambda number=number: number).result == str(number)
        rest.wait(random.random() / 1000)
    executor.close()


def test_each_call_has_a_fresh_context_with_its_run(bench, executor):
    VARIABLE.set("the application's")
    seen = []

    def job():
        seen.append((current_run(), VARIABLE.get()))
        VARIABLE.set("a job's")

    for _ in range(3):
        call = bench.call(job)
        executor.start(call)
        bench.wait(call)
        assert seen.pop() == (call.run, "unset")
    assert current_run() is None


def test_the_run_is_current_in_threads_and_tasks_that_the_job_starts(bench, executor):
    seen = []

    def in_a_thread():
        seen.append(current_run())

    async def in_a_task():
        seen.append(current_run())

    async def on_a_loop():
        await asyncio.gather(asyncio.create_task(in_a_task()), asyncio.to_thread(in_a_thread))

    def job():
        thread = threading.Thread(target=contextvars.copy_context().run, args=(in_a_thread,))
        thread.start()
        thread.join()
        asyncio.run(on_a_loop())

    call = bench.call(job)
    executor.start(call)
    bench.wait(call)
    assert seen == [call.run] * 3


def test_an_async_function_is_run_to_its_end(bench, executor):
    async def job():
        await asyncio.sleep(0)
        run = current_run()
        assert run is not None
        return run.token

    call = bench.call(job)
    executor.start(call)
    assert bench.wait(call).result == str(call.claim.token)


def test_a_stuck_job_is_told_at_its_timeout_and_ends_as_timed_out_when_it_returns(bench, clock, watch, caplog):
    executor = ThreadExecutor(bench.done, clock, watch.timer)
    release, threads = threading.Event(), []
    begun = threading.Barrier(4)

    def stuck():
        threads.append(threading.current_thread())
        begun.wait(bench.patience)
        release.wait(bench.patience)
        return "too late"

    calls = [bench.call(stuck, timeout=0.05) for _ in range(3)]
    for call in calls:
        executor.start(call)
    begun.wait(bench.patience)
    watch.let_pass(0.05)
    for call in calls:
        assert call.run.cancelled.wait(bench.patience)
        assert call.run.cancel_reason == "timeout"
    assert bench.run(executor, lambda: 7).result == "7"
    bench.until(lambda: caplog.text.count("is over its timeout and still working") == 3, "the warnings")
    assert [bench.of(call) for call in calls] == [[], [], []]
    assert executor.abandoned_count == 0
    assert not any(thread.daemon is False for thread in threads)
    release.set()
    for call in calls:
        ending = bench.wait(call)
        assert (ending.kind, ending.reason, ending.result) == ("timed_out", "timeout", None)
        assert ending.error.message.startswith("the attempt ran longer than timeout=50ms; its thread cannot be stopped")
        assert "in stuck" in ending.error.traceback
    executor.close()


def test_a_job_that_ends_in_time_is_not_disturbed_by_its_timeout(bench, executor):
    call = bench.call(lambda: 7, timeout=3600)
    executor.start(call)
    assert bench.wait(call).kind == "returned"
    assert len(executor._attempts.timer) == 0
    assert not call.run.cancelled.is_set()


def test_a_job_that_notices_its_timeout_is_still_reported_as_timed_out(bench, executor):
    def job(run):
        run.cancelled.wait(bench.patience)
        run.check()

    for _ in range(50):
        assert bench.run(executor, job, timeout=0.001, run_parameter="run").kind == "timed_out"


@pytest.mark.parametrize(
    ("how", "kind", "reason"),
    [
        ("notices", "cancelled", "operator: enough"),
        ("returns", "returned", None),
        ("fails", "cancelled", "operator: enough"),
        ("says so", "cancelled", "operator: enough"),
    ],
)
def test_a_job_that_is_asked_to_stop(bench, executor, how, kind, reason):
    begun = threading.Event()

    def job(run):
        begun.set()
        run.cancelled.wait(bench.patience)
        if how == "notices":
            run.check()
        if how == "fails":
            raise OSError("broken")
        if how == "says so":
            raise Cancel("my own words")
        return "done"

    call = bench.call(job, run_parameter="run")
    executor.start(call)
    assert begun.wait(bench.patience)
    executor.stop(call, "operator: enough")
    executor.stop(call, "a second reason")
    ending = bench.wait(call)
    assert (ending.kind, ending.reason) == (kind, reason)
    assert (ending.error is not None) == (how == "fails")
    executor.stop(call, "too late")


def test_a_lost_lease_is_told(bench, executor):
    def job(run):
        run.lease_lost.wait(bench.patience)
        run.check()

    call = bench.call(job, run_parameter="run")
    executor.start(call)
    executor.stop(call, "lease lost", lease_lost=True)
    ending = bench.wait(call)
    assert (ending.kind, ending.reason) == ("cancelled", "lease lost")


def test_what_was_stopped_before_it_began_is_never_called(bench, executor):
    call = bench.call(lambda: 1 / 0)
    call.run.request_stop("operator")
    executor.start(call)
    ending = bench.wait(call)
    assert (ending.kind, ending.reason) == ("cancelled", "operator (before it began)")


def test_sys_exit_leaves_the_thread_to_others(bench, executor):
    assert bench.run(executor, lambda: sys.exit(3)).error.type == "SystemExit"
    assert bench.run(executor, lambda: 7).result == "7"


def test_end_timeout_and_stop_at_the_same_moment_give_one_report(bench, clock):
    executor = ThreadExecutor(bench.done, clock)
    dice = random.Random(1)
    calls = []
    for _ in range(300):
        sleep = threading.Event()
        call = bench.call(lambda sleep=sleep: sleep.wait(0.003 * dice.random()), timeout=0.003 * dice.random() + 1e-6)
        calls.append(call)
        executor.start(call)
        if dice.random() < 0.5:
            executor.stop(call, "operator")
    for call in calls:
        bench.wait(call)
    executor.close()
    assert bench.each_once()
    assert {bench.of(call)[0].kind for call in calls} <= {"returned", "timed_out", "cancelled"}


def test_no_thread_to_be_had_is_a_failure_of_the_run(bench, executor, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    ending = bench.run(executor, lambda: None)
    assert ending.kind == "raised"
    assert "the node cannot start another thread: can't start new thread; lower --concurrency" in ending.error.message


def test_close_reports_nothing_more_and_lets_idle_threads_go(bench, clock):
    before = len(workers())
    executor = ThreadExecutor(bench.done, clock)
    begun, threads = threading.Barrier(4), []

    def job(run):
        threads.append(threading.current_thread())
        begun.wait(bench.patience)
        run.cancelled.wait(bench.patience)

    calls = [bench.call(job, run_parameter="run") for _ in range(3)]
    for call in calls:
        executor.start(call)
    begun.wait(bench.patience)
    bench.run(executor, lambda: None)
    executor.close()
    executor.close()
    for thread in threads:
        thread.join(bench.patience)
    bench.until(lambda: len(workers()) <= before, "leaving")
    assert [bench.of(call) for call in calls] == [[], [], []]
    assert all(call.run.cancelled.is_set() for call in calls)
    with pytest.raises(RuntimeError, match="closed"):
        executor.start(bench.call(lambda: None))


def test_an_idle_thread_keeps_nothing_of_its_last_call_alive(bench, executor):
    import gc
    import weakref

    class Precious:
        pass

    def job():
        return None

    job.precious = Precious()  # type: ignore[attr-defined]
    held = weakref.ref(job.precious)  # type: ignore[attr-defined]
    bench.run(executor, job)
    bench.until(lambda: executor._idle, "idleness")
    del job
    gc.collect()
    assert held() is None


def test_a_stuck_job_does_not_hold_the_process(bench):
    program = """
import threading
from datetime import UTC, datetime, timedelta
from cronsensus.timing.clock import SystemClock
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim
from cronsensus.model.states import Origin
from cronsensus.node.executors.base import Call
from cronsensus.node.registered import Registered
from cronsensus.node.executors.threads import ThreadExecutor
from cronsensus.run import Run

now = datetime.now(UTC)
claim = Claim(id=1, spec=JobSpec(name="j", function="j"), key="k", origin=Origin.ENQUEUE, scheduled_for=None,
              due_at=now, attempt=1, token=1, session="s", args=(), kwargs={}, claimed_at=now,
              created_at=now)
begun = threading.Event()
def stuck():
    begun.set()
    threading.Event().wait()
executor = ThreadExecutor(lambda call, ending: None, SystemClock())
executor.start(Call(claim, Run(claim), Registered("j", stuck, "thread")))
begun.wait()
executor.close()
print("leaving")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=bench.patience, check=True
    )
    assert (ran.stdout, ran.stderr) == ("leaving\n", "")
