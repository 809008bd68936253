"""The harness that interrupts code finds what is left behind, and what is not."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from cronsensus.timing.durations import parse_duration
from tests.cancelling import CutCall, CutTask, Interrupted, each_await, each_line


def test_each_await_cancels_at_every_suspension_before_and_after_the_answer():
    seen: list[tuple[str, int]] = []

    async def scenario(cut: CutTask) -> None:
        done: list[int] = []

        async def work() -> None:
            for number in range(3):
                await asyncio.sleep(0)
                await asyncio.get_running_loop().run_in_executor(None, done.append, number)

        await cut(work())
        if cut.reached:
            assert isinstance(cut.error, asyncio.CancelledError)
            seen.append((cut.moment, len(done)))
        else:
            assert done == [0, 1, 2]

    assert each_await(scenario) == 12
    assert [done for moment, done in seen if moment == "answered"] == [0, 1, 1, 2, 2, 3]


def test_each_await_finds_what_a_cancelled_task_leaves_behind():
    held: set[str] = set()

    async def scenario(cut: CutTask) -> None:
        held.clear()

        async def leaks() -> None:
            held.add("it")
            await asyncio.sleep(0)
            held.discard("it")

        await cut(leaks())
        assert not held

    with pytest.raises(AssertionError) as failed:
        each_await(scenario)
    assert failed.value.__notes__ == ["cancelled at suspension 1, begun"]


def test_each_await_refuses_what_is_never_suspended_and_what_never_ends():
    async def never(cut: CutTask) -> None:
        async def work() -> None: ...

        await cut(work())

    async def forever(cut: CutTask) -> None:
        async def work() -> None:
            while True:  # noqa: ASYNC110 - it polls on purpose
                await asyncio.sleep(0)

        await cut(work())

    with pytest.raises(AssertionError, match="never suspended"):
        each_await(never)
    with pytest.raises(AssertionError, match="does it ever end"):
        each_await(forever, most=5)
    assert each_await(forever, most=5, may_be_more=True) == 10


def test_each_line_raises_wherever_a_signal_handler_could():
    def scenario_of(check: Callable[[CutCall], None]) -> Callable[[CutCall], None]:
        def scenario(cut: CutCall) -> None:
            cut(lambda: parse_duration("5m", what="it"))
            check(cut)

        return scenario

    ended: list[object] = []
    cuts = each_line(scenario_of(lambda cut: ended.append((cut.reached, type(cut.error)))))
    assert ended == [*[(False, type(None))] * 2, *[(True, Interrupted)] * cuts]
    assert cuts > 3

    def fails(cut: CutCall) -> None:
        assert not cut.reached

    with pytest.raises(AssertionError) as failed:
        each_line(scenario_of(fails))
    assert "durations.py" in failed.value.__notes__[0]


def test_each_line_does_not_raise_where_cpython_runs_no_handler(monkeypatch):
    """As between the last statement of a block and its end, where a lock would stay locked for ever."""
    monkeypatch.setattr("tests.cancelling.LIBRARY", __file__)
    guard = threading.Lock()

    def guarded() -> int:
        with guard:
            return len("four")

    def scenario(cut: CutCall) -> None:
        cut(guarded)
        assert not guard.locked()

    assert each_line(scenario) >= 1
