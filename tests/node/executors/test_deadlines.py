import logging
import queue
import threading

import pytest

from cronsensus.clock import ManualClock, SystemClock
from cronsensus.logger import flush
from cronsensus.node.executors.deadlines import COMPACT_FROM, Deadlines


@pytest.fixture
def manual():
    return ManualClock()


def watching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "cronsensus-deadlines"}


@pytest.fixture
def deadlines(manual):
    before = watching()  # an idle one of an earlier test ends by itself
    deadlines = Deadlines(manual)
    yield deadlines
    deadlines.close()
    assert watching() <= before


def test_actions_come_in_the_order_of_their_times_and_not_before(bench, manual, deadlines):
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    deadlines.after(3, lambda: seen.put("third"))
    deadlines.after(1, lambda: seen.put("first"))
    deadlines.after(2, lambda: seen.put("second"))
    manual.advance(1.5)
    deadlines.wake()
    assert seen.get(timeout=bench.patience) == "first"
    assert seen.empty()
    manual.advance(10)
    deadlines.wake()
    assert [seen.get(timeout=bench.patience) for _ in range(2)] == ["second", "third"]
    assert len(deadlines) == 0


def test_a_cancelled_action_does_not_come(bench, manual, deadlines):
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    early = deadlines.after(1, lambda: seen.put("cancelled"))
    deadlines.after(2, lambda: seen.put("kept"))
    early.cancel()
    early.cancel()
    assert len(deadlines) == 1
    manual.advance(5)
    deadlines.wake()
    assert seen.get(timeout=bench.patience) == "kept"
    assert seen.empty()


def test_many_cancelled_deadlines_leave_the_heap_before_their_time(deadlines):
    kept = deadlines.after(7200, lambda: None)
    for _ in range(50 * COMPACT_FROM):
        deadlines.after(3600, lambda: None).cancel()
        assert len(deadlines._heap) <= 2 * COMPACT_FROM
    assert len(deadlines) == 1
    kept.cancel()
    assert len(deadlines) == 0


def test_an_action_that_raises_is_logged_and_the_next_one_comes(bench, manual, deadlines, caplog):
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    def fails():
        raise ValueError

    with caplog.at_level(logging.ERROR):
        deadlines.after(1, fails)
        deadlines.after(2, lambda: seen.put("next"))
        manual.advance(5)
        deadlines.wake()
        assert seen.get(timeout=bench.patience) == "next"
        flush(bench.patience)
    assert "a deadline's action failed" in caplog.text


def test_an_action_may_set_the_next_deadline_on_the_real_clock(bench):
    deadlines = Deadlines(SystemClock())
    over = threading.Event()

    def again():
        deadlines.after(0.001, over.set)

    deadlines.after(0.001, again)
    assert over.wait(bench.patience)
    deadlines.close()


def test_a_very_distant_deadline_is_no_trouble(deadlines):
    deadlines.after(100 * 366 * 86400.0, lambda: None)
    assert len(deadlines) == 1


def test_nothing_comes_after_close(bench, manual):
    deadlines = Deadlines(manual)
    seen: list[str] = []
    deadlines.after(1, lambda: seen.append("before"))
    deadlines.close()
    deadlines.after(1, lambda: seen.append("after")).cancel()
    manual.advance(5)
    deadlines.wake()
    assert deadlines._thread is not None
    assert not deadlines._thread.is_alive()
    assert seen == []


def test_an_action_may_close(bench, manual):
    deadlines = Deadlines(manual)
    deadlines.after(1, deadlines.close)
    manual.advance(2)
    deadlines.wake()
    assert deadlines._thread is not None
    deadlines._thread.join(bench.patience)
    assert not deadlines._thread.is_alive()


def test_the_thread_ends_when_there_is_nothing_to_watch_and_comes_back(bench, clock, monkeypatch):
    monkeypatch.setattr("cronsensus.node.executors.deadlines.IDLE_SECONDS", 0.02)
    deadlines = Deadlines(clock)
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(3):
        deadlines.after(0.01, lambda number=number: seen.put(number))  # type: ignore[misc]
        far = deadlines.after(3600, lambda: None)
        assert seen.get(timeout=bench.patience) == number
        assert deadlines._thread is not None
        far.cancel()
        deadlines.wake()
        bench.until(lambda: deadlines._thread is None, "the thread's end")
        assert len(deadlines) == 0
    deadlines.close()
