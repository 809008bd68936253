"""A signal handler raises in the middle of a start or a stop: nothing is half done, and nothing stays behind."""

import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.errors import ConfigurationError, StoreUnavailable
from cronsensus.process.background import Whole
from cronsensus.stores.memory import MemoryStore
from tests.cancelling import CutCall, Interrupted, each_line
from tests.quiet import nothing_runs, quiet

_names = count()
EVERY = int(os.environ.get("CRONSENSUS_TEST_EVERY_LINE", "20"))
"""Which share of the lines is tried; 1: all, minutes."""


class Soft(Exception):
    """As a handler of the user's may raise."""


def new_scheduler() -> Scheduler:
    scheduler = quiet(Scheduler(f"memory://interrupted-{next(_names)}", lease="30s"))
    scheduler.job(name="work")(lambda: None)
    return scheduler


@pytest.mark.parametrize("raises", [Interrupted, Soft])
def test_a_start_that_is_interrupted_anywhere_starts_nothing_and_can_be_said_again(raises):
    def scenario(cut: CutCall) -> None:
        scheduler = new_scheduler()
        cut(scheduler.start)
        if cut.error is not None:
            assert isinstance(cut.error, raises)
            nothing_runs(scheduler)
            scheduler.start()
        assert scheduler.started
        assert scheduler.stop()
        nothing_runs(scheduler)

    each_line(scenario, raises=raises, every=EVERY)


def test_a_start_that_is_interrupted_while_it_waits_for_its_store_starts_nothing(monkeypatch):
    migrate = MemoryStore.migrate

    def scenario(cut: CutCall) -> None:
        scheduler, left = new_scheduler(), [1]

        def not_yet(store: MemoryStore) -> list[str]:
            if left:
                left.pop()
                raise StoreUnavailable("not there yet")
            return migrate(store)

        monkeypatch.setattr(MemoryStore, "migrate", not_yet)
        cut(lambda: scheduler.start(wait="1m"))
        if cut.error is None:
            scheduler.stop()
        nothing_runs(scheduler)

    each_line(scenario, every=2 * EVERY)


@pytest.mark.parametrize("raises", [Interrupted, Soft])
def test_a_stop_that_is_interrupted_anywhere_is_whole(raises):
    def scenario(cut: CutCall) -> None:
        scheduler = new_scheduler()
        scheduler.start()
        cut(scheduler.stop)
        nothing_runs(scheduler)
        scheduler.start()
        scheduler.stop()
        nothing_runs(scheduler)

    each_line(scenario, raises=raises, every=EVERY)


def test_a_block_that_is_interrupted_anywhere_leaves_no_node_behind():
    def scenario(cut: CutCall) -> None:
        scheduler = new_scheduler()

        def block() -> None:
            with scheduler:
                pass

        cut(block)
        nothing_runs(scheduler)

    each_line(scenario, every=2 * EVERY)


def test_a_start_that_is_interrupted_while_its_store_hangs_gives_up_and_what_comes_late_is_stopped(monkeypatch):
    monkeypatch.setattr("cronsensus.lifecycle.participation.PATIENCE", 0.0)
    go_on = threading.Event()
    open_session = MemoryStore.open_session

    def hangs(*given: Any, **named: Any) -> Any:
        assert go_on.wait(60)
        return open_session(*given, **named)

    monkeypatch.setattr(MemoryStore, "open_session", hangs)
    monkeypatch.setattr(Whole, "wait", interrupted_once())
    scheduler = new_scheduler()
    with pytest.raises(Interrupted):
        scheduler.start()
    assert not scheduler.started
    go_on.set()
    nothing_runs(scheduler)
    scheduler.start()
    scheduler.stop()


@pytest.mark.parametrize(
    ("when", "on_main"), [("before", True), ("before", False), ("meanwhile", True), ("after", True)]
)
def test_a_stop_in_the_middle_of_a_start_on_its_own_thread_calls_it_off(monkeypatch, when, on_main):
    """As a handler of SIGTERM does that calls ``stop()``, or a start-up task."""
    scheduler = new_scheduler()
    said: list[bool] = []

    def stop_if(now: str) -> None:
        if now == when and not said:
            said.append(scheduler.stop())

    scheduler.startup(name="warm")(lambda: stop_if("before"))
    wait = Whole.wait

    def handled(self: Whole[Any], timeout: float | None = None) -> bool:
        stop_if("meanwhile")
        done = wait(self, timeout)
        stop_if("after")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Whole, "wait", handled)
        if on_main:
            scheduler.start()
        else:
            starting = threading.Thread(target=scheduler.start)
            starting.start()
            starting.join(60)
    assert said == [True]
    nothing_runs(scheduler)
    scheduler.start()
    assert scheduler.started
    scheduler.stop()


def interrupted_once() -> Callable[..., bool]:
    """Return a wait that a signal handler cuts off the first time."""
    wait, left = Whole.wait, [1]

    def interrupted(self: Whole[Any], timeout: float | None = None) -> bool:
        if left:
            left.pop()
            raise Interrupted
        return wait(self, timeout)

    return interrupted


def test_a_start_for_which_there_are_too_few_threads_leaves_none_behind(monkeypatch):
    start = threading.Thread.start

    def refused(self: threading.Thread) -> None:
        if self.name == "cronsensus-heartbeat":
            raise RuntimeError("can't start new thread")
        start(self)

    scheduler = new_scheduler()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            scheduler.start()
    nothing_runs(scheduler)
    scheduler.start()
    scheduler.stop()
    nothing_runs(scheduler)


# --- the thread that they are done on ---------------------------------------------------------------------------------


def test_whole_act_is_done_once_however_often_its_caller_is_interrupted():
    def scenario(cut: CutCall) -> None:
        done: list[int] = []
        act = Whole(lambda: done.append(1), "whole")
        cut(act.start_act)
        act.start_act()
        assert act.wait(60)
        act.answer()
        assert done == [1]

    each_line(scenario)


def test_withdrawn_act_is_never_done():
    act = Whole(lambda: 1 / 0, "whole")
    assert act.withdraw()
    act.start_act()
    assert not act.withdraw()
    act.forked()
    assert act.wait(0.0)
    with pytest.raises(ConfigurationError, match="forked"):
        act.answer()


def test_error_of_a_whole_act_is_raised_in_the_caller():
    act = Whole(lambda: 1 / 0, "whole")
    act.start_act()
    assert act.wait(60)
    with pytest.raises(ZeroDivisionError):
        act.answer()
