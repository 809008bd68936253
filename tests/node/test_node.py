"""A whole node, or two of them, in one process: what happens to the jobs."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from cronsensus import Cancel, Retry, Run, RunFailed, Scheduler, Skip, Snooze, State, every
from cronsensus.model.occurrence import OccurrenceFilter

_names = count()


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path: Path) -> str:
    return f"memory://node-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def node(url: str):
    scheduler = Scheduler(url, node="a")
    yield scheduler
    scheduler.stop("0s")


@pytest.fixture
def pair(url: str):
    nodes = Scheduler(url, node="a"), Scheduler(url, node="b")
    yield nodes
    for scheduler in nodes:
        scheduler.stop("0s")


class Recorder:
    """What the jobs themselves saw, beside what the store says."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self._changed = threading.Condition()

    def add(self, entry: Any) -> None:
        with self._changed:
            self.entries.append(entry)
            self._changed.notify_all()

    def wait_for(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.entries) >= number, 15), self.entries


# --- exactly one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_two_nodes_run_each_occurrence_once(pair, kind):
    seen = Recorder()
    for scheduler in pair:
        if kind == "thread":

            def tick(run: Run) -> None:
                seen.add(run.scheduled_for)

            scheduler.job(every("50ms"), overlap="allow", catch_up="all")(tick)
        else:

            async def tick(run: Run) -> None:  # type: ignore[misc]
                seen.add(run.scheduled_for)

            scheduler.job(every("50ms"), overlap="allow", catch_up="all")(tick)
    with pair[0], pair[1]:
        seen.wait_for(20)
    rows = pair[0].store.occurrences(OccurrenceFilter(job="tick"), limit=1000)
    done = {row.scheduled_for for row in rows if row.state is State.SUCCEEDED}
    times = sorted(Counter(seen.entries).items())
    assert [number for _, number in times] == [1] * len(times)
    assert done == {moment for moment, _ in times}
    between = every("50ms").count_between(times[0][0], times[-1][0], 10_000)
    assert between == len(times) - 1


def test_a_process_job_runs_once_between_two_nodes(pair):
    jobs = [scheduler.job(executor="process", name="dedent")(textwrap.dedent) for scheduler in pair]
    with pair[0], pair[1]:
        handles = [jobs[0].options(key=str(number)).enqueue(f"  line {number}") for number in range(4)]
        assert [handle.result("60s") for handle in handles] == [f"line {number}" for number in range(4)]
        assert [handle.look().attempt for handle in handles] == [1] * 4


# --- how attempts end ------------------------------------------------------------------------------------------------


def test_a_failure_is_tried_again_after_growing_waits_and_every_attempt_is_kept(node):
    @node.job(retries=3, retry_delay="40ms")
    def flaky(run: Run) -> int:
        if run.attempt < 3:
            raise ConnectionError(f"attempt {run.attempt}")
        return run.attempt

    with node:
        handle = flaky.enqueue()
        assert handle.result("60s") == 3
        runs = node.store.runs(handle.id)
    assert [(run.attempt, run.end) for run in runs] == [(1, "retry"), (2, "retry"), (3, "succeeded")]
    assert [run.error.message for run in runs[:2]] == ["attempt 1", "attempt 2"]
    waits = [(later.started_at - run.finished_at).total_seconds() for run, later in pairwise(runs)]
    assert waits[0] >= 0.03
    assert waits[1] >= 0.06
    assert len({run.token for run in runs}) == 3


def test_jobs_may_say_how_they_end(node):
    @node.job(retries=1)
    def steer(what: str, run: Run) -> str:
        match what:
            case "skip":
                raise Skip("no orders")
            case "cancel":
                raise Cancel("shop is closed")
            case "retry" if run.attempt == 1:
                raise Retry("not yet", after="10ms")
        return what

    with node:
        ends = {what: steer.enqueue(what).wait("60s") for what in ("skip", "cancel", "retry")}
    assert [(end.state, end.reason) for end in ends.values()] == [
        (State.SKIPPED, "job: no orders"),
        (State.CANCELLED, "job: shop is closed"),
        (State.SUCCEEDED, None),
    ]
    assert ends["retry"].attempt == 2


@pytest.mark.parametrize("executor", ["thread", "process", "async"])
def test_a_job_that_waits_looks_again_without_an_attempt(node, executor, tmp_path):
    if executor == "async":

        @node.job()
        async def fetch(file: str) -> int:
            return look_for(file)
    else:
        fetch = node.job(name="fetch", executor=executor)(look_for)

    with node:
        handle = fetch.enqueue(str(tmp_path / "looks"))
        assert handle.result("60s") == 3
        runs = node.store.runs(handle.id)
        one = node.store.occurrence(handle.id)
    assert [(run.attempt, run.end, run.reason) for run in runs] == [
        (1, "snoozed", "1 of 3"),
        (1, "snoozed", "2 of 3"),
        (1, "succeeded", None),
    ]
    assert (one.attempt, one.failures, one.reason) == (1, 0, None)
    assert (runs[1].started_at - runs[0].finished_at).total_seconds() >= 0.02


def look_for(file: str) -> int:
    with Path(file).open("a+") as looks:
        looks.write(".")
        looks.seek(0)
        seen = len(looks.read())
    if seen < 3:
        raise Snooze(f"{seen} of 3", after="20ms")
    return seen


def test_whatever_a_job_does_ends_its_run_and_not_the_node(node):
    @node.job()
    def leave() -> None:
        sys.exit("bye")

    @node.job()
    async def leave_the_loop() -> None:
        sys.exit(3)

    @node.job()
    def not_json() -> object:
        return {1, 2}

    @node.job()
    def interrupt() -> None:
        raise KeyboardInterrupt

    @node.job()
    def fine() -> str:
        return "fine"

    with node:
        for job, said in [
            (leave, r"sys\.exit\('bye'\)"),
            (leave_the_loop, r"sys\.exit\(3\)"),
            (not_json, "result is a set, which is not JSON"),
            (interrupt, "KeyboardInterrupt"),
        ]:
            with pytest.raises(RunFailed, match=said):
                job.enqueue().result("60s")
        assert fine.enqueue().result("60s") == "fine"
        assert node._part.node.stats.sessions == 1


def test_a_timeout_cancels_an_async_job(node):
    ended = threading.Event()

    @node.job(timeout="100ms")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with node:
        one = endless.enqueue().wait("60s")
        while one.error.message.endswith("before it began"):  # on a busy machine, and then nothing was cancelled
            one = endless.enqueue().wait("60s")
        assert ended.wait(60)
    assert (one.state, one.reason, one.error.type) == (State.FAILED, "timeout", "TimeoutError")


def test_a_timeout_fences_a_thread_off(node):
    @node.job(timeout="100ms")
    def endless(run: Run) -> str:
        assert run.cancelled.wait(60)
        return "too late"

    with node:
        handle = endless.enqueue()
        assert (handle.wait("60s").state, handle.look().reason) == (State.FAILED, "timeout")
        assert endless.options(key="second").enqueue().wait("60s").state is State.FAILED
        assert (handle.look().state, handle.look().result) == (State.FAILED, None)


def test_a_timeout_kills_a_process(node):
    job = node.job(timeout="300ms", name="call", executor="process")(subprocess.call)
    with node:
        one = job.enqueue(["sleep", "600"]).wait("60s")
    assert (one.state, one.reason) == (State.FAILED, "timeout")


def test_an_operator_cancels_a_running_job(node):
    began = threading.Event()

    @node.job(retries=5)
    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    with node:
        handle = endless.enqueue()
        assert began.wait(60)
        assert node.cancel(handle, reason="wrong shop", by="ada") is State.RUNNING
        one = handle.wait("60s")
    assert (one.state, one.reason) == (State.CANCELLED, "operator: wrong shop")


def test_a_run_tells_what_it_is_and_how_far(node):
    told, go_on = threading.Event(), threading.Event()

    @node.job(kwargs={"shop": "a"})
    def work(shop: str, run: Run) -> list[object]:
        run.progress(40, 80)
        told.set()
        go_on.wait(10)
        return [run.job, run.key, run.attempt, run.scheduled_for, shop]

    with node:
        handle = work.options(key="k").enqueue()
        assert told.wait(60)
        deadline = time.monotonic() + 10
        while handle.look().progress is None and time.monotonic() < deadline:
            node.store.wait(0.01)
        assert handle.look().progress == (40, 80)
        go_on.set()
        assert handle.result("60s") == ["work", "k", 1, None, "a"]


# --- overlap, concurrency, priority ----------------------------------------------------------------------------------


def _ranges(scheduler: Scheduler, job: str) -> set[tuple[str, str]]:
    return {(one.range.state.value, one.range.reason) for one in scheduler.store.ranges(job)}


def _await(condition, seconds: float = 60.0) -> None:
    """Wait for what only the store shows."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.01)


def test_overlap_skip_leaves_out_what_comes_meanwhile(node):
    go_on, seen = threading.Event(), Recorder()

    @node.job(every("50ms"))
    def work(run: Run) -> None:
        seen.add(run.scheduled_for)
        go_on.wait(10)

    with node:
        seen.wait_for(1)
        _await(lambda: len(node.store.ranges("work")) >= 2)
        assert len(seen.entries) == 1
        go_on.set()
        seen.wait_for(2)
    assert ("skipped", "overlap") in _ranges(node, "work")


def test_overlap_queue_one_keeps_one_waiting(node):
    go_on, seen = threading.Event(), Recorder()

    @node.job(every("50ms"), overlap="queue_one")
    def work(run: Run) -> None:
        seen.add(run.scheduled_for)
        go_on.wait(10)

    with node:
        _await(lambda: len(node.store.ranges("work")) >= 2)
        waiting = node.store.occurrences(OccurrenceFilter(job="work", states=(State.PENDING,)))
        assert (len(seen.entries), len(waiting)) == (1, 1)
        go_on.set()
        seen.wait_for(2)
        assert seen.entries[1] == waiting[0].scheduled_for


def test_overlap_queue_keeps_them_all_in_order_one_at_a_time(node):
    go_on, seen = threading.Event(), Recorder()
    running = []

    @node.job(every("50ms"), overlap="queue", catch_up="all")
    def work(run: Run) -> None:
        running.append(1)
        assert len(running) == 1
        seen.add(run.scheduled_for)
        go_on.wait(10)
        running.pop()

    with node:
        pending = OccurrenceFilter(job="work", states=(State.PENDING,))
        _await(lambda: len(node.store.occurrences(pending)) >= 3)
        assert len(seen.entries) == 1
        go_on.set()
        seen.wait_for(5)
    assert seen.entries == sorted(seen.entries)
    assert every("50ms").count_between(seen.entries[0], seen.entries[4], 100) == 4


def test_overlap_cancel_previous_stops_the_one_before(node):
    seen = Recorder()

    @node.job(every("150ms"), overlap="cancel_previous")
    async def work(run: Run) -> None:
        seen.add(run.scheduled_for)
        await asyncio.Event().wait()

    node.start()
    try:
        seen.wait_for(3)
        ended = node.store.occurrences(OccurrenceFilter(job="work", states=(State.CANCELLED,)))
    finally:
        node.stop("0s")
    assert {one.reason for one in ended} == {"cancel_previous"}
    assert len(ended) >= 2


def test_overlap_allow_runs_them_side_by_side(node):
    together = threading.Barrier(3)

    @node.job(every("50ms"), overlap="allow")
    def work() -> None:
        together.wait(10)

    with node:
        succeeded = OccurrenceFilter(job="work", states=(State.SUCCEEDED,))
        _await(lambda: len(node.store.occurrences(succeeded)) >= 3)
        together.abort()


def test_a_jobs_concurrency_holds_over_all_nodes(pair):
    lock, running, most = threading.Lock(), [0], [0]
    jobs = []
    for scheduler in pair:

        def work() -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            threading.Event().wait(0.02)
            with lock:
                running[0] -= 1

        jobs.append(scheduler.job(concurrency=2)(work))
    with pair[0], pair[1]:
        for handle in jobs[0].enqueue_many([jobs[0].call()] * 12):
            assert handle.wait("60s").state is State.SUCCEEDED
        nodes = {one.node for one in pair[0].store.occurrences(OccurrenceFilter(job="work"))}
    assert most == [2]
    assert nodes <= {"a", "b"}


def test_a_node_runs_no_more_than_its_concurrency_and_the_most_urgent_first(url):
    node = Scheduler(url, concurrency=1)
    go_on, order = threading.Event(), Recorder()

    @node.job()
    def work(what: str) -> None:
        order.add(what)
        go_on.wait(10)

    with node:
        first = work.enqueue("first")
        order.wait_for(1)
        handles = [
            work.options(priority=-1).enqueue("low"),
            work.enqueue("plain"),
            work.options(priority=5).enqueue("high"),
        ]
        go_on.set()
        for handle in [first, *handles]:
            handle.wait("60s")
    assert order.entries == ["first", "high", "plain", "low"]


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_a_drain_lets_runs_end_and_takes_nothing_new(node):
    began, go_on = threading.Event(), threading.Event()

    @node.job()
    def work(what: str) -> str:
        began.set()
        go_on.wait(10)
        return what

    node.start()
    handle = work.enqueue("running")
    assert began.wait(60)
    running = node._part.node
    assert running is not None
    stopped: list[bool] = []
    thread = threading.Thread(target=lambda: stopped.append(node.stop("10s")))
    thread.start()
    # Also until a claim is over that was decided before.
    _await(lambda: running.draining and not running._in_round)
    late = work.enqueue("late")
    go_on.set()
    thread.join(15)
    assert stopped == [True]
    assert handle.look().state is State.SUCCEEDED
    assert (late.look().state, late.look().attempt) == (State.PENDING, 0)


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_run_that_does_not_end_in_time_is_given_back_and_run_by_another_node(pair, kind):
    began, ended = Recorder(), threading.Event()
    for scheduler in pair:
        if kind == "async":

            async def work(run: Run) -> str:
                began.add(run.session)
                try:
                    if len(began.entries) == 1:
                        await asyncio.Event().wait()
                finally:
                    ended.set()
                return "done"

            scheduler.job()(work)
        else:

            def work(run: Run) -> str:  # type: ignore[misc]
                began.add(run.session)
                if len(began.entries) == 1:
                    run.cancelled.wait(10)
                    ended.set()
                    threading.Event().wait(3)
                return "done"

            scheduler.job()(work)
    first, second = pair
    first.start()
    handle = first.jobs["work"].enqueue()
    began.wait_for(1)
    assert first.stop("0s") is False
    assert ended.wait(60)
    assert (handle.look().attempt, handle.look().crashes) == (1, 0)
    with second:
        assert handle.result("60s") == "done"
    assert [(run.attempt, run.end) for run in second.store.runs(handle.id)] == [(1, "released"), (2, "succeeded")]


def test_an_at_most_once_job_that_is_cut_off_is_not_run_again(node):
    began = threading.Event()

    @node.job(on_crash="fail")
    async def pay() -> None:
        began.set()
        await asyncio.Event().wait()

    node.start()
    handle = pay.enqueue()
    assert began.wait(60)
    node.stop("0s")
    one = handle.look()
    assert one.state is State.FAILED
    assert one.reason.startswith("crashed")


def test_a_run_that_ends_at_the_last_moment_is_recorded_and_not_given_back(node):
    began = threading.Event()

    @node.job()
    async def work() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        return "just in time"

    node.start()
    handle = work.enqueue()
    assert began.wait(60)
    node.stop("0s")
    assert handle.result("0s") == "just in time"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize(("on_crash", "state", "attempt"), [("retry", "succeeded", 2), ("fail", "failed", 1)])
def test_the_runs_of_a_killed_node_are_taken_over_long_before_its_lease_ends(tmp_path, on_crash, state, attempt):
    text = f"""
        import os, sys, threading
        from cronsensus import Scheduler
        scheduler = Scheduler("sqlite:///{tmp_path}/jobs.db", lease="60s")
        @scheduler.job(on_crash="{on_crash}")
        def work() -> None:
            print("runs", flush=True)
            threading.Event().wait()
        work.options(key="a").enqueue()
        scheduler.run()
    """
    program = [sys.executable, "-c", textwrap.dedent(text)]
    survivor = Scheduler(f"sqlite:///{tmp_path}/jobs.db")

    def work() -> None: ...

    survivor.job(on_crash=on_crash)(work)
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout
            assert victim.stdout.readline() == "runs\n"
            with survivor:
                handle = survivor.jobs["work"].options(key="a").enqueue()
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait()
                began = time.monotonic()
                one = handle.wait("60s")
                assert time.monotonic() - began < 30  # a tenth of a second; by the lease, it would be more than 40
        finally:
            victim.kill()
    assert (one.state.value, one.attempt, one.crashes) == (state, attempt, 1)


def test_a_job_that_blocks_the_event_loop_for_longer_than_the_lease_keeps_it(url):
    async def main() -> None:
        scheduler = Scheduler(url, lease="2s", fast_evidence=False)
        other = Scheduler(url, lease="2s", fast_evidence=False)

        async def rude() -> str:
            time.sleep(2.6)  # noqa: ASYNC251 - this is the fault
            return "done"

        jobs = [each.job()(rude) for each in (scheduler, other)]
        async with scheduler:
            handle = await jobs[0].aenqueue()
            other.start()
            one = await handle.await_("20s")
            node = scheduler._part.node
            assert node is not None
            assert node.stats.sessions == 1
            await other.astop()
        assert (one.state, one.attempt) == (State.SUCCEEDED, 1)

    asyncio.run(main())
