import logging
import os
import queue
import threading
import warnings

import pytest

from cronsensus.membership.timer import COMPACT_FROM, Timer, _Watch
from cronsensus.process.logger import flush
from cronsensus.timing.clock import ManualClock, SystemClock


@pytest.fixture
def manual():
    return ManualClock()


def watching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "cronsensus-timer"}


@pytest.fixture
def timer(manual):
    before = watching()  # an idle one of an earlier test ends by itself
    timer = Timer(manual)
    yield timer
    timer.close()
    assert watching() <= before


def test_actions_come_in_the_order_of_their_times_and_not_before(bench, manual, timer):
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    timer.call_after(3, lambda: seen.put("third"))
    timer.call_after(1, lambda: seen.put("first"))
    timer.call_after(2, lambda: seen.put("second"))
    manual.advance(1.5)
    timer.recheck_clock()
    assert seen.get(timeout=bench.patience) == "first"
    assert seen.empty()
    manual.advance(10)
    timer.recheck_clock()
    assert [seen.get(timeout=bench.patience) for _ in range(2)] == ["second", "third"]
    assert len(timer) == 0


def test_a_cancelled_action_does_not_come(bench, manual, timer):
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    early = timer.call_after(1, lambda: seen.put("cancelled"))
    timer.call_after(2, lambda: seen.put("kept"))
    early.cancel()
    early.cancel()
    assert len(timer) == 1
    manual.advance(5)
    timer.recheck_clock()
    assert seen.get(timeout=bench.patience) == "kept"
    assert seen.empty()


def test_many_cancelled_deadlines_leave_the_heap_before_their_time(timer):
    kept = timer.call_after(7200, lambda: None)
    for _ in range(50 * COMPACT_FROM):
        timer.call_after(3600, lambda: None).cancel()
        assert len(timer._watch_thread._heap) <= 2 * COMPACT_FROM
    assert len(timer) == 1
    kept.cancel()
    assert len(timer) == 0


def test_an_action_that_raises_is_logged_and_the_next_one_comes(bench, manual, timer, caplog):
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def fails():
        raise ValueError

    with caplog.at_level(logging.ERROR):
        timer.call_after(1, fails)
        timer.call_after(2, lambda: seen.put("next"))
        manual.advance(5)
        timer.recheck_clock()
        assert seen.get(timeout=bench.patience) == "next"
        flush(bench.patience)
    assert "a deadline's action failed" in caplog.text


def test_an_action_may_set_the_next_deadline_on_the_real_clock(bench):
    timer = Timer(SystemClock())
    over = threading.Event()

    def again():
        timer.call_after(0.001, over.set)

    timer.call_after(0.001, again)
    assert over.wait(bench.patience)
    timer.close()


def test_a_very_distant_deadline_is_no_trouble(timer):
    timer.call_after(100 * 366 * 86400.0, lambda: None)
    assert len(timer) == 1


def test_nothing_comes_after_close(bench, manual):
    timer = Timer(manual)
    seen: list[str] = []
    timer.call_after(1, lambda: seen.append("before"))
    timer.close()
    timer.call_after(1, lambda: seen.append("after")).cancel()
    manual.advance(5)
    timer.recheck_clock()
    bench.until(lambda: timer._watch_thread._thread is None, "the thread's end")
    assert seen == []


def test_an_action_may_close(bench, manual):
    timer = Timer(manual)
    timer.call_after(1, timer.close)
    manual.advance(2)
    timer.recheck_clock()
    bench.until(lambda: timer._watch_thread._thread is None, "the thread's end")


def test_timers_of_the_hosts_clock_share_a_thread_until_the_last_is_closed(bench, clock):
    first, second = Timer(clock), Timer(SystemClock())
    first.call_after(3600, lambda: None)
    before = watching()
    second.call_after(3600, lambda: None)
    assert watching() == before
    heard = threading.Event()
    second.close()
    first.call_after(0, heard.set)
    assert heard.wait(bench.patience)
    first.close()
    assert len(first) == len(second) == 0


def test_close_waits_for_an_action_of_its_own_that_has_begun(bench, manual):
    timer, begun, goes_on, over = Timer(manual), threading.Event(), threading.Event(), threading.Event()

    def acts() -> None:
        begun.set()
        goes_on.wait(bench.patience)
        over.set()

    timer.call_after(0, acts)
    assert begun.wait(bench.patience)
    threading.Timer(0.05, goes_on.set).start()
    timer.close()
    assert over.is_set()


def test_a_forked_child_has_a_timer_of_its_own(clock):
    timer = Timer(clock)
    timer.call_after(3600, lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        heard = threading.Event()
        Timer(clock).call_after(0, heard.set)
        os._exit(0 if heard.wait(30) else 1)
    assert os.waitpid(child, 0)[1] == 0
    timer.close()


def test_the_thread_ends_when_there_is_nothing_to_watch_and_comes_back(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.membership.timer.IDLE_SECONDS", 0.02)
    # What other tests left in the process may be watched for long.
    monkeypatch.setattr("cronsensus.membership.timer._of_this_process", _Watch(clock))
    timer = Timer(clock)
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(3):
        timer.call_after(0.01, lambda number=number: seen.put(number))  # type: ignore[misc]
        far = timer.call_after(3600, lambda: None)
        assert seen.get(timeout=bench.patience) == number
        assert timer._watch_thread._thread is not None
        far.cancel()
        timer.recheck_clock()
        bench.until(lambda: timer._watch_thread._thread is None, "the thread's end")
        assert len(timer) == 0
    timer.close()
