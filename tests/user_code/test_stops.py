"""Stops from anywhere: from a job, twice at once, and with what signal handlers raise in the middle of one."""

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from cronsensus import Run, Scheduler
from tests.user_code.programs import started

_names = count()


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(f"memory://stops-{next(_names)}", drain_timeout="20s")
    yield scheduler
    scheduler.stop(0)


def until_left(scheduler: Scheduler) -> None:
    for _ in range(2_000):
        if scheduler._part.is_over:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the node has not left")


def test_a_thread_job_that_stops_its_node_is_recorded_and_not_run_again(scheduler):
    @scheduler.job()
    def stops() -> list[bool]:
        return [scheduler.stop(), scheduler.stop()]

    scheduler.start()
    handle = stops.enqueue()
    until_left(scheduler)
    assert (handle.look().state, handle.look().attempt, handle.look().result) == ("succeeded", 1, "[false,false]")
    scheduler.start()
    assert scheduler.stop()
    assert handle.look().attempt == 1


@pytest.mark.parametrize("on_own_loop", [True, False])
def test_an_async_job_may_stop_its_node_in_either_colour(scheduler, on_own_loop):
    ended = []

    @scheduler.job()
    async def stops(how: str) -> None:
        ended.append(scheduler.stop() if how == "stop" else await scheduler.astop())

    async def take_part(how: str) -> None:
        await scheduler.astart()
        handle = await stops.aenqueue(how)
        assert (await handle.await_("20s")).state == "succeeded"
        await asyncio.to_thread(until_left, scheduler)

    for how in ("stop", "astop"):
        if on_own_loop:
            scheduler.start()
            handle = stops.enqueue(how)
            until_left(scheduler)
            assert handle.look().state == "succeeded"
        else:
            asyncio.run(take_part(how))
    assert ended == [False, False]


def test_a_node_that_a_job_stopped_may_be_started_again_at_once(scheduler):
    @scheduler.job()
    def stops() -> None:
        scheduler.stop()

    @scheduler.job()
    def works() -> int:
        return 5

    scheduler.start()
    stops.enqueue().wait("60s")
    while scheduler.started:
        threading.Event().wait(0.01)
    scheduler.start()
    assert works.enqueue().result("60s") == 5
    assert scheduler.stop()


def test_a_second_stop_waits_for_the_first_and_says_what_it_says(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    begun, go = threading.Event(), threading.Event()

    @scheduler.job()
    def slow() -> int:
        begun.set()
        assert go.wait(60)
        return 5

    scheduler.start()
    handle = slow.enqueue()
    assert begun.wait(60)
    said: list[bool] = []
    stops = [threading.Thread(target=lambda: said.append(scheduler.stop("30s"))) for _ in range(3)]
    for stop in stops:
        stop.start()
    while scheduler.started:
        threading.Event().wait(0.01)
    stops[2].join(0.1)
    assert said == []
    go.set()
    for stop in stops:
        stop.join(30)
    assert said == [True, True, True]
    assert handle.look().result == "5"
    scheduler.stop()


def test_a_second_stop_cuts_the_drain_of_the_first_short_when_its_own_time_is_up(scheduler):
    begun = threading.Event()

    @scheduler.job()
    def slow(run: Run) -> None:
        begun.set()
        assert run.cancelled.wait(60)
        run.check()

    scheduler.start()
    handle = slow.enqueue()
    assert begun.wait(60)
    first: list[bool] = []
    thread = threading.Thread(target=lambda: first.append(scheduler.stop("100s")))
    thread.start()
    while scheduler.started:
        threading.Event().wait(0.01)
    assert scheduler.stop("10ms") is False
    thread.join(30)
    assert first == [False]
    assert handle.look().state == "pending"


def test_what_a_signal_handler_raises_in_a_stop_ends_the_drain_and_the_stop_is_whole(tmp_path):
    text = """
        class Impatient(Exception): pass
        def handler(number, frame): raise Impatient
        signal.signal(signal.SIGALRM, handler)

        @scheduler.job()
        def slow(run: Run):
            say("begins")
            run.cancelled.wait(60)
            run.check()

        scheduler.start()
        slow.options(key="a").enqueue()
        sys.stdin.readline()
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begun = time.monotonic()
        try:
            {stop}
        except Impatient:
            say("raised", time.monotonic() - begun < 20, scheduler.started)
        say([one.state for one in scheduler.store.sessions(ended=True)], slow.options(key="a").enqueue().look().state)
    """
    with started(tmp_path, text.format(stop='scheduler.stop("60s")'), stdin=subprocess.PIPE) as program:
        program.read_until("begins")
        program.tell("")
        assert program.end() == 0, program.errors()
        assert program.lines[-2:] == ["raised True False", "['closed'] pending"]


def test_a_program_that_ends_while_a_job_stops_its_node_gives_back_what_runs(tmp_path):
    text = """
        @scheduler.job()
        def slow(run: Run):
            say("begins")
            scheduler.stop("60s")
            say("stops")
            run.cancelled.wait(60)
            run.check()

        scheduler.start()
        slow.options(key="a").enqueue()
        sys.stdin.readline()
    """
    with started(tmp_path, text, stdin=subprocess.PIPE) as program:
        program.read_until("stops")
        assert program.process.stdin is not None
        program.process.stdin.close()
        assert program.end() == 0, program.errors()
    assert program.occurrences()["a"].state == "pending"
    store = program.store()
    assert [one.state for one in store.store.sessions(ended=True)] == ["closed"]
    store.stop()


def test_an_exception_of_a_signal_handler_that_ends_run_leaves_no_session_behind(tmp_path):
    text = """
        class Impatient(Exception): pass
        def handler(number, frame): raise Impatient
        signal.signal(signal.SIGALRM, handler)
        @scheduler.job()
        def slow(run: Run):
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.2)
            run.cancelled.wait(60)
            run.check()
        slow.options(key="a").enqueue()
        try:
            scheduler.run("60s")
        except Impatient:
            signal.setitimer(signal.ITIMER_REAL, 0)
            say("raised")
    """
    with started(tmp_path, text) as program:
        assert program.end() == 0, program.errors()
        assert program.lines == ["raised"]
    assert program.occurrences()["a"].state == "pending"
    store = program.store()
    assert [one.state for one in store.store.sessions(ended=True)] == ["closed"]
    store.stop()
