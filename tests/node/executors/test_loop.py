import asyncio
import contextvars
import random
import sys
import threading
from datetime import timedelta

import pytest

from cronsensus.errors import Cancel
from cronsensus.node.executors.attempt import GRACE
from cronsensus.node.executors.loop import MOST_CANCELS, LoopExecutor, _LoopAttempt, _OwnHome
from cronsensus.node.executors.loop_watch import Pulse
from cronsensus.node.run import current_run

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
FOREVER = 3600


@pytest.fixture
def executor(bench, clock):
    """An executor with a loop of its own."""
    executor = LoopExecutor(bench.done, clock)
    yield executor
    executor.close()
    bench.until(lambda: not loops(), "the loop's end")


@pytest.fixture
def watched(bench, clock, watch):
    """The same, with timeouts that come when the test says so."""
    executor = LoopExecutor(bench.done, clock, watch.timer)
    yield executor
    executor.close()
    bench.until(lambda: not loops(), "the loop's end")


@pytest.fixture
def application(bench):
    """The event loop of an application, on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(bench.patience)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.fixture
def guest(bench, clock, application, watch):
    """An executor on the application's loop, with timeouts that come when the test says so."""
    executor = LoopExecutor(bench.done, clock, watch.timer, loop=application)
    yield executor
    executor.close()


def loops():
    return [thread for thread in threading.enumerate() if thread.name.startswith("cronsensus-loop")]


async def waits(begun=None):
    if begun is not None:
        begun.set()
    await asyncio.sleep(FOREVER)


def test_an_async_function_runs_on_a_daemon_thread_of_ours(bench, executor):
    async def job(a, *, b):
        await asyncio.sleep(0)
        return [a, b, threading.current_thread().name[:15], threading.current_thread().daemon]

    ending = bench.run(executor, job, 1, b=2)
    assert (ending.kind, ending.result) == ("returned", '[1,2,"cronsensus-loop",true]')
    assert ending.elapsed > timedelta(0)


def test_no_loop_is_made_before_it_is_needed(bench, clock):
    executor = LoopExecutor(bench.done, clock)
    assert not loops()
    executor.close()


def test_an_async_function_runs_on_the_applications_loop(bench, guest, application):
    async def job():
        return asyncio.get_running_loop() is application

    assert bench.run(guest, job).result == "true"
    assert not loops()


def test_a_sync_function_is_run_too(bench, executor):
    assert bench.run(executor, lambda: 7).result == "7"


def test_each_call_has_a_fresh_context_with_its_run(bench, executor):
    seen = []

    def in_a_thread():
        seen.append(current_run())

    async def in_a_task():
        seen.append(current_run())

    async def job(run):
        seen.append(run)
        assert VARIABLE.get() == "unset"
        VARIABLE.set("a job's")
        await asyncio.gather(asyncio.create_task(in_a_task()), asyncio.to_thread(in_a_thread))

    for _ in range(2):
        call = bench.call(job, run_parameter="run")
        executor.start(call)
        assert bench.wait(call).kind == "returned"
        assert seen == [call.run] * 3
        seen.clear()


def test_calls_run_side_by_side(bench, executor):
    async def job(number, here=[], all_here=asyncio.Event()):  # noqa: B006, B008
        here.append(number)
        if len(here) == 20:
            all_here.set()
        await all_here.wait()

    calls = [bench.call(job, number) for number in range(20)]
    for call in calls:
        executor.start(call)
    assert {bench.wait(call).kind for call in calls} == {"returned"}


def test_a_loop_that_is_called_already_is_not_called_again_for_each_attempt(bench, guest, application, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def blocks():
        begun.set()
        go_on.wait(bench.patience)

    first = bench.call(blocks)
    guest.start(first)
    assert begun.wait(bench.patience)
    calls, seen = [bench.call(int) for _ in range(20)], []
    call_soon = application.call_soon_threadsafe

    def counted(*what):
        seen.append(what)
        return call_soon(*what)

    monkeypatch.setattr(application, "call_soon_threadsafe", counted)
    for call in calls:
        guest.start(call)
    go_on.set()
    assert {bench.wait(call).result for call in calls} == {"0"}
    assert len(seen) == 1


def test_an_attempt_that_breaks_the_loops_callback_does_not_hold_up_those_behind_it(bench, guest, application):
    begun, go_on = threading.Event(), threading.Event()

    def blocks():
        begun.set()
        go_on.wait(bench.patience)

    application.call_soon_threadsafe(blocks)
    assert begun.wait(bench.patience)
    broken, good = bench.call(int), bench.call(int)
    begin = guest._start_task

    def begins(attempt):
        if attempt.call is broken:
            raise LookupError("in the callback itself")
        begin(attempt)

    guest._start_task = begins
    application.call_soon_threadsafe(application.set_exception_handler, lambda loop, context: None)
    guest.start(broken)
    guest.start(good)
    go_on.set()
    assert bench.wait(good).result == "0"


def test_timeout_cancels_lets_clean_up_and_tells_where_it_was(bench, watched, watch):
    begun, cleaned = threading.Event(), threading.Event()

    async def job(run):
        try:
            begun.set()
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(0)
            assert run.cancelled.wait(bench.patience)
            cleaned.set()

    call = bench.call(job, timeout=0.03, run_parameter="run")
    watched.start(call)
    assert begun.wait(bench.patience)
    watch.let_pass(0.03)
    ending = bench.wait(call)
    assert ending.kind == "timed_out"
    assert ending.error.message == "the attempt ran longer than timeout=30ms"
    assert "in job" in ending.error.traceback
    assert "await asyncio.sleep(FOREVER)" in ending.error.traceback
    assert cleaned.is_set()


def test_stop_cancels(bench, executor):
    begun = threading.Event()
    call = bench.call(waits, begun)
    executor.start(call)
    assert begun.wait(bench.patience)
    executor.stop(call, "operator: enough", lease_lost=True)
    ending = bench.wait(call)
    assert (ending.kind, ending.reason, ending.error) == ("cancelled", "operator: enough", None)
    assert call.run.lease_lost.is_set()
    executor.stop(call, "too late")


def test_what_was_stopped_before_it_began_is_never_called(bench, executor):
    call = bench.call(waits)
    call.run.request_stop("operator")
    executor.start(call)
    assert bench.wait(call).reason == "operator (before it began)"


def test_stop_between_start_and_the_first_step_is_reported(bench, executor):
    blocked, release = threading.Event(), threading.Event()

    async def blocks():
        blocked.set()
        release.wait(bench.patience)

    blocker, call = bench.call(blocks), bench.call(waits)
    executor.start(blocker)
    assert blocked.wait(bench.patience)
    executor.start(call)
    executor.stop(call, "operator")
    release.set()
    assert bench.wait(call).kind == "cancelled"
    bench.wait(blocker)


def test_what_returns_normally_after_a_stop_counts_as_returned(bench, executor):
    begun = threading.Event()

    async def job():
        begun.set()
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            return "finished anyway"

    call = bench.call(job)
    executor.start(call)
    assert begun.wait(bench.patience)
    executor.stop(call, "operator")
    assert bench.wait(call).result == '"finished anyway"'
    assert bench.run(executor, job, timeout=0.02).kind == "timed_out"


@pytest.mark.parametrize("way", ["timeout", "stop"])
def test_a_task_that_swallows_cancellation_is_cancelled_again_and_then_given_up(bench, watched, watch, way):
    swallowed: list[int] = []
    begun, done, gone = threading.Event(), threading.Event(), threading.Event()

    async def job():
        begun.set()
        while not done.is_set():
            try:
                await asyncio.sleep(0.001 if len(swallowed) == MOST_CANCELS else FOREVER)
            except asyncio.CancelledError:
                swallowed.append(1)
        gone.set()
        return "late"

    call = bench.call(job, timeout=1 if way == "timeout" else None)
    watched.start(call)
    assert begun.wait(bench.patience)
    if way == "stop":
        watched.stop(call, "operator")
    else:
        watch.let_pass(1)
    for times in range(1, MOST_CANCELS + 1):
        bench.until(lambda times=times: len(swallowed) == times, "another cancellation")
        assert bench.of(call) == []
        bench.until(lambda: len(watch.timer) == 3, "the next deadline, beside the looks for closed and blocked loops")
        watch.let_pass(GRACE)
    ending = bench.wait(call)
    assert ending.kind == ("timed_out" if way == "timeout" else "cancelled")
    message = ending.error.message if ending.error else ending.reason
    assert "it went on after it was cancelled, and is given up" in message
    done.set()
    assert gone.wait(bench.patience)
    bench.until(lambda: not watched._home.tasks, "its end")
    assert len(swallowed) == MOST_CANCELS


def test_a_blocked_loop_of_ours_is_reported_at_the_timeout_and_replaced(bench, watched, watch):
    blocked, release = threading.Event(), threading.Event()

    async def blocks():
        blocked.set()
        release.wait(bench.patience)
        return "late"

    async def thread_name():
        return threading.current_thread().name

    first = bench.run(watched, thread_name).result
    call, neighbour = bench.call(blocks, timeout=1), bench.call(thread_name)
    watched.start(call)
    assert blocked.wait(bench.patience)
    watched.start(neighbour)
    watch.let_pass_until(lambda: bench.of(call))
    ending = bench.wait(call)
    assert ending.kind == "timed_out"
    assert "something blocks its event loop" in ending.error.message
    assert "in blocks" in ending.error.traceback
    assert bench.run(watched, thread_name).result != first
    release.set()
    assert bench.wait(neighbour).result == first
    bench.until(lambda: len(loops()) == 1, "the blocked loop's end")


def test_user_code_that_blocks_the_applications_loop_blocks_no_other_run(bench, guest, watch):
    blocked, release = threading.Event(), threading.Event()

    async def blocks():
        blocked.set()
        release.wait(bench.patience)

    late, stopped = bench.call(blocks, timeout=1), bench.call(waits)
    guest.start(late)
    assert blocked.wait(bench.patience)
    guest.start(stopped)
    guest.stop(stopped, "operator")
    watch.let_pass_until(lambda: bench.of(late) and bench.of(stopped))
    assert bench.wait(late).kind == "timed_out"
    ending = bench.wait(stopped)
    assert (ending.kind, ending.reason[:27]) == ("cancelled", "operator (something blocks ")
    release.set()
    assert bench.run(guest, lambda: 7).result == "7"


def test_an_applications_loop_that_is_closed_is_no_failure_of_the_job(bench, clock):
    loop = asyncio.new_event_loop()
    loop.close()
    executor = LoopExecutor(bench.done, clock, loop=loop)
    assert not executor.is_able
    ending = bench.run(executor, waits)
    assert (ending.kind, ending.cut_off, ending.begun) == ("cancelled", True, False)
    assert "the application's event loop ended" in ending.reason
    executor.close()


def test_a_loop_that_is_closed_under_a_run_is_noticed(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.loop.CHECK_EVERY", 0.02)
    loop = asyncio.new_event_loop()
    executor = LoopExecutor(bench.done, clock, loop=loop)
    call = bench.call(waits)
    executor.start(call)
    loop.close()  # what was handed to it is dropped without a word
    assert bench.wait(call).cut_off
    executor.close()


def test_run_queued_on_a_loop_that_does_not_run_is_given_back(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.loop.CHECK_EVERY", 0.02)
    loop = asyncio.new_event_loop()
    executor = LoopExecutor(bench.done, clock, loop=loop)
    assert not executor.is_able
    ending = bench.run(executor, waits)
    assert (ending.cut_off, ending.begun) == (True, False)
    executor.close()
    loop.close()


def test_an_own_loop_that_a_job_closes_is_a_failure(bench, clock, monkeypatch):
    executor = LoopExecutor(bench.done, clock)
    home = _OwnHome()
    executor._home = home
    home.loop.call_soon_threadsafe(home.loop.stop)
    home.runner.join(bench.patience)
    attempt = _LoopAttempt(bench.call(waits))
    attempt.home = home
    executor._attempts.open_attempt(attempt, executor._over_time)
    executor._post_attempt(attempt, executor._start_task)
    assert bench.wait(attempt.call).error.type == "EventLoopClosed"
    executor.close()


def test_a_loop_is_looked_at_only_while_something_runs_there(bench, executor, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.loop.CHECK_EVERY", 0.01)
    bench.run(executor, waits, timeout=0.03)
    bench.until(lambda: len(executor._attempts.timer) == 0, "quiet")
    assert executor._looking is False


def test_the_end_of_the_application_cancels_runs_and_that_is_told(bench, clock):
    calls = []

    async def application():
        executor = LoopExecutor(bench.done, clock, loop=asyncio.get_running_loop())
        begun = threading.Event()
        calls.append(bench.call(waits, begun))
        executor.start(calls[0])
        await asyncio.to_thread(begun.wait, bench.patience)
        return executor

    executor = asyncio.run(application())
    ending = bench.wait(calls[0])
    assert (ending.kind, ending.cut_off, ending.error) == ("cancelled", True, None)
    executor.close()


def test_sys_exit_in_a_job_or_in_its_task_ends_no_loop(bench, executor, caplog):
    async def exits():
        sys.exit(3)

    async def exits_below():
        await asyncio.create_task(exits())

    async def exits_aside():
        task = asyncio.create_task(exits())
        await asyncio.wait([task])
        task.exception()
        return 7

    assert bench.run(executor, exits).error.type == "SystemExit"
    assert bench.run(executor, exits_below).error.type == "SystemExit"
    assert bench.run(executor, exits_aside).result == "7"
    assert bench.run(executor, int).result == "0"
    assert "it goes on" in caplog.text


def test_a_job_that_stops_our_loop_stops_no_later_job(bench, executor, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.loop.CHECK_EVERY", 0.02)

    async def job():
        asyncio.get_running_loop().stop()
        return 7

    bench.run(executor, job)
    bench.until(executor._home.loop.is_closed, "the loop's end")
    assert bench.run(executor, lambda: 8).result == "8"


def test_cancel_from_a_task_group_counts(bench, executor):
    async def child():
        raise Cancel("enough")

    async def job():
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    ending = bench.run(executor, job)
    assert (ending.kind, ending.reason) == ("cancelled", "job: enough")


def test_an_error_shows_the_jobs_frames_only(bench, executor):
    async def fails():
        raise ValueError("the reason")

    ending = bench.run(executor, fails)
    assert ending.error.message == "the reason"
    assert "executors/loop.py" not in ending.error.traceback
    assert "in fails" in ending.error.traceback


def test_a_task_factory_that_fails_is_a_failure_of_the_run(bench, guest, application):
    def factory(loop, coroutine, **options):
        raise RuntimeError("no tasks today")

    application.call_soon_threadsafe(application.set_task_factory, factory)
    assert bench.run(guest, waits).error.message == "no tasks today"
    application.call_soon_threadsafe(application.set_task_factory, None)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_are_no_trouble(bench, guest, application):
    factory = asyncio.eager_task_factory  # type: ignore[attr-defined, unused-ignore]
    application.call_soon_threadsafe(application.set_task_factory, factory)
    assert bench.run(guest, lambda: 7).result == "7"


def test_end_timeout_and_stop_at_the_same_moment_give_one_report(bench, executor):
    dice = random.Random(2)

    async def job(seconds):
        await asyncio.sleep(seconds)

    calls = []
    for _ in range(300):
        call = bench.call(job, 0.003 * dice.random(), timeout=0.003 * dice.random() + 1e-6)
        calls.append(call)
        executor.start(call)
        if dice.random() < 0.3:
            executor.stop(call, "operator")
    assert {bench.wait(call).kind for call in calls} <= {"returned", "timed_out", "cancelled"}
    bench.until(lambda: (home := executor._home) is None or not home.tasks, "the last task's end")


def test_close_while_running_reports_nothing_and_leaves_no_thread(bench, clock):
    executor = LoopExecutor(bench.done, clock)
    begun, cleaned = threading.Event(), threading.Event()

    async def job():
        try:
            await waits(begun)
        finally:
            cleaned.set()

    call = bench.call(job)
    executor.start(call)
    assert begun.wait(bench.patience)
    executor.close()
    assert cleaned.is_set()
    assert not loops()
    assert bench.of(call) == []
    with pytest.raises(RuntimeError, match="closed"):
        executor.start(bench.call(job))
    executor.close()


def test_close_does_not_wait_for_ever_for_a_blocked_loop(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.loop.GRACE", -0.95)
    executor = LoopExecutor(bench.done, clock)
    blocked, release = threading.Event(), threading.Event()

    async def blocks():
        blocked.set()
        release.wait(bench.patience)

    call = bench.call(blocks)
    executor.start(call)
    assert blocked.wait(bench.patience)
    executor.close()
    assert loops()
    release.set()
    bench.until(lambda: not loops(), "the loop's end")
    assert bench.of(call) == []


def test_a_blocked_loop_is_named_once_with_the_run_that_holds_it_and_where(bench, executor, caplog):
    async def culprit(release):
        await asyncio.sleep(0)
        release.wait(bench.patience)

    def warnings():
        return [one.getMessage() for one in caplog.records if "has blocked its event loop" in one.getMessage()]

    bystander = bench.call(waits)
    executor.start(bystander)
    releases = [threading.Event(), threading.Event()]
    for number, release in enumerate(releases, 1):
        call = bench.call(culprit, release)
        executor.start(call)
        bench.until(lambda number=number: len(warnings()) == number, "the warning")
        threading.Event().wait(1.2)  # two more looks at the same run
        assert f"run {call.claim.id} of 'job' (key:{call.claim.id})" in warnings()[-1]
        assert "in culprit\n    release.wait(bench.patience)" in warnings()[-1]
        release.set()
        bench.wait(call)
    assert len(warnings()) == 2
    executor.stop(bystander, "enough")
    bench.wait(bystander)


def test_a_loop_of_the_application_that_no_job_blocks_is_said_to_be_blocked_by_none(bench, clock, application, caplog):
    executor, release = LoopExecutor(bench.done, clock, loop=application), threading.Event()
    call = bench.call(waits)
    executor.start(call)
    application.call_soon_threadsafe(release.wait, bench.patience)
    bench.until(lambda: "by something that is no job: all 1 async runs there stand still" in caplog.text, "the warning")
    release.set()
    executor.stop(call, "enough")
    bench.wait(call)
    executor.close()


def test_a_process_that_stood_still_itself_blames_no_job():
    loop = asyncio.new_event_loop()
    pulse = Pulse(loop)  # a loop that never answers
    assert [pulse.silent_for(at) for at in (10.0, 10.5, 11.0)] == [0.0, 0.5, 1.0]
    assert [pulse.silent_for(at) for at in (500.0, 500.5, 501.0)] == [0.0, 0.5, 1.0]
    loop.close()
