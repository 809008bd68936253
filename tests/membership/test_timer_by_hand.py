"""The thread of the deadlines, turned by hand: what it waits for, when it ends, and for what a close waits."""

import heapq
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cronsensus.membership import timer as module
from cronsensus.membership.timer import COMPACT_FROM, IDLE_SECONDS, LONGEST_WAIT, Timer, _Watch
from cronsensus.timing.clock import ManualClock

PATIENCE = 60.0


class Thread:
    """A thread that is said to be there, and that notes who waits for its end."""

    def __init__(self) -> None:
        self.joined: list[float] = []

    def join(self, seconds: float) -> None:
        self.joined.append(seconds)


class Changed:
    """A condition on which nobody waits: it notes for how long one would, and lets something happen instead."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.told = 0
        self.happens: list[Callable[[], object]] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None:
        self.told += 1

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return bool(self.happens and (self.happens.pop(0)() or True))

    def wait_for(self, done: Callable[[], bool], seconds: float) -> bool:
        return done() or (self.wait(seconds) and done())


class Scene:
    """A watch that is turned by hand, and a timer of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        watch = self.timer._own
        assert watch is not None
        self.watch = watch
        self.changed: Any = Changed()
        self.thread: Any = Thread()
        vars(watch).update(_changed=self.changed, _thread=self.thread)

    def another(self) -> Timer:
        other = Timer(self.clock)
        other._own = self.watch
        return other

    def advance(self, seconds: float) -> Callable[[], None]:
        return lambda: self.clock.advance(seconds)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def nothing() -> None: ...


def test_thread_sleeps_until_the_first_deadline_and_a_nap_at_most(scene: Scene) -> None:
    scene.timer.call_after(2 * LONGEST_WAIT, nothing)
    scene.changed.happens = [scene.advance(LONGEST_WAIT), scene.advance(LONGEST_WAIT)]
    assert scene.watch._next_action() is nothing
    assert scene.changed.waits == [LONGEST_WAIT, LONGEST_WAIT]
    assert scene.watch._under_way is scene.timer
    assert len(scene.timer) == 0


def test_thread_is_woken_for_a_deadline_that_is_the_first_and_for_no_other(scene: Scene) -> None:
    for seconds, told in ((5, 1), (9, 1), (3, 2)):
        scene.timer.call_after(seconds, nothing)
        assert scene.changed.told == told


def test_deadline_that_was_cancelled_is_passed_over_and_counted_no_more(scene: Scene) -> None:
    scene.timer.call_after(1, lambda: None).cancel()
    scene.timer.call_after(2, nothing)
    scene.clock.advance(3)
    assert scene.watch._next_action() is nothing
    assert (scene.watch._cancelled, scene.watch._heap) == (0, [])


def test_thread_ends_when_nothing_was_to_watch_for_a_while_and_tells_those_that_wait(scene: Scene) -> None:
    scene.timer.call_after(1, nothing).cancel()
    scene.changed.told = 0
    assert scene.watch._next_action() is None
    assert scene.changed.waits == [IDLE_SECONDS]
    assert scene.watch._thread is None
    assert scene.changed.told == 2
    assert (scene.watch._cancelled, scene.watch._heap) == (0, [])


def test_thread_that_was_woken_with_nothing_to_watch_waits_anew(scene: Scene) -> None:
    scene.changed.happens = [nothing]
    assert scene.watch._next_action() is None
    assert scene.changed.waits == [IDLE_SECONDS] * 2


def test_deadline_that_comes_as_the_thread_is_about_to_end_is_watched(scene: Scene) -> None:
    def too_late(seconds: float) -> bool:
        scene.timer.call_after(0, nothing)
        return False

    scene.changed.wait = too_late
    assert scene.watch._next_action() is nothing


def test_thread_of_a_timer_that_was_closed_ends_at_once_and_for_others_goes_on(scene: Scene) -> None:
    other = scene.another()
    other.call_after(5, nothing)
    scene.timer.close()
    scene.changed.waits.clear()
    scene.changed.happens = [scene.advance(5)]
    assert scene.watch._next_action() is nothing
    assert scene.watch._next_action() is None
    assert scene.changed.waits == [5.0]


def test_close_waits_for_the_thread_only_where_it_ends(scene: Scene) -> None:
    other = scene.another()
    other.call_after(5, nothing)
    scene.timer.close()
    assert scene.thread.joined == []
    assert scene.changed.waits == [], "others go on, and no action of its own is under way"
    scene.changed.happens = [lambda: setattr(scene.watch, "_thread", None)]
    other.close()
    assert scene.thread.joined == [module.CLOSE_WITHIN]
    assert scene.changed.waits == [module.CLOSE_WITHIN]


@pytest.mark.parametrize(
    ("own", "there", "cancelled", "done"),
    [
        (False, True, 1, True),
        (False, True, 2, False),
        (False, False, 0, True),
        (True, True, 1, False),
        (True, False, 0, False),
    ],
)
def test_watch_is_done_with_a_timer_when_its_action_ended_and_the_thread_goes_on_or_is_gone(
    scene: Scene, own: bool, there: bool, cancelled: int, done: bool
) -> None:
    scene.watch._under_way = scene.timer if own else scene.another()
    scene.watch._thread = scene.thread if there else None
    deadlines = [scene.timer.call_after(seconds, nothing) for seconds in range(2)] if there else []
    for one in deadlines[:cancelled]:
        one.cancel()
    assert scene.watch._is_done_with(scene.timer) == done


def test_timer_that_an_action_of_its_own_closes_waits_for_nothing(scene: Scene) -> None:
    thread: Any = threading.current_thread()
    scene.watch._thread, scene.watch._under_way = thread, scene.timer
    scene.timer.close()
    assert scene.changed.waits == []


def test_close_is_told_at_once_when_the_action_that_it_waits_for_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_WITHIN", 1e4)
    timer, begun, goes_on = Timer(ManualClock()), threading.Event(), threading.Event()

    def action() -> None:
        begun.set()
        goes_on.wait(PATIENCE)

    timer.call_after(0, action)
    assert begun.wait(PATIENCE)
    closing = threading.Thread(target=timer.close, daemon=True)
    closing.start()
    while not timer.closed:
        closing.join(0.001)
    goes_on.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()


@pytest.mark.parametrize(
    ("many", "cancelled", "left"),
    [
        (100, COMPACT_FROM - 1, 100),
        (100, COMPACT_FROM, 100 - COMPACT_FROM),
        (2 * COMPACT_FROM, COMPACT_FROM, 2 * COMPACT_FROM),
        (200, COMPACT_FROM, 200),
        (10, 9, 10),
    ],
)
def test_cancelled_deadlines_are_cleaned_out_where_they_are_many_and_more_than_half(
    scene: Scene, many: int, cancelled: int, left: int
) -> None:
    deadlines = [scene.timer.call_after(many - number, nothing) for number in range(many)]
    for one in reversed(deadlines[-cancelled:]):  # the earliest
        one.cancel()
    heap = scene.watch._heap
    assert len(heap) == left
    times = [heapq.heappop(heap)[0] for _ in range(left)]
    assert times == sorted(times)


def test_timers_of_two_clocks_have_two_threads() -> None:
    assert isinstance(Timer(ManualClock())._watch_thread, _Watch)
    assert Timer(ManualClock())._watch_thread is not Timer(ManualClock())._watch_thread
