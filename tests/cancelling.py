"""Cut a piece of code off at each point at which Python could, and look each time at what is left behind.

Two kinds of interruption, and one form for both. A *scenario* prepares a fresh place, hands what is to be interrupted
to ``cut``, and then asserts what must hold however far that came::

    async def scenario(cut: CutTask) -> None:
        lock = Lock("memory://", new_name())
        await cut(lock.aacquire())
        assert await free_for_others(lock)


    each_await(scenario)  # cancels at the first suspension of the task, then at the second, …

``each_await`` repeats the scenario with the task cancelled at its n-th suspension, until it runs through: once as soon
as it waits (what it waits for may not have begun), once when what it waits for is there, but the task has not seen it.
With ``cancels=2`` it is cancelled once more at its next suspension, in the middle of what it does about the first.

``each_line`` does so for code on this thread: an exception is raised wherever CPython runs signal handlers, as one of
the user's would (Ctrl-C, Celery's soft time limit): when a function is entered, when a call of something written in C
returns, and when a loop goes round; line by line through the library, and what it calls of ``threading`` and
``contextlib``. Not when the outermost function is entered: there CPython raises before anything of ours could be
protected.
"""

from __future__ import annotations

import asyncio
import contextlib
import dis
import functools
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import cronsensus

Moment = Literal["begun", "answered"]

LIBRARY = str(Path(cronsensus.__file__).parent)
BENEATH = frozenset({threading.__file__, contextlib.__file__, functools.__file__})
"""What the library is written with, and what is written in Python: it is interrupted in there too."""
MOST = 400
"""Suspensions after which a scenario is taken for one that never ends; one that polls says how many are enough."""


class CutTask:
    """Runs a coroutine as a task that is cancelled at its n-th suspension, and perhaps at those after it.

    Attributes:
        reached: whether there was such a suspension.
        error: what came out of the task; ``None``: it returned.
        value: what it returned.
    """

    def __init__(self, at: int, moment: Moment, cancels: int = 1) -> None:
        self.at, self.moment = at, moment
        self._cancels = cancels
        self.suspensions = 0
        self.reached = False
        self.error: BaseException | None = None
        self.value: Any = None
        self._task: asyncio.Task[Any] | None = None

    async def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run it to its end, whatever that is."""
        self._task = asyncio.get_running_loop().create_task(_Counted(coroutine, self._suspended))
        await asyncio.wait([self._task])
        if self._task.cancelled():
            self.error = asyncio.CancelledError()
        else:
            self.error = self._task.exception()
            self.value = None if self.error else self._task.result()

    def _suspended(self, waits_for: Any) -> None:
        self.suspensions += 1
        if not self.at <= self.suspensions < self.at + self._cancels:
            return
        first, self.reached = not self.reached, True
        task = self._task
        assert task is not None
        if not first:
            asyncio.get_running_loop().call_soon(task.cancel)
        elif self.moment == "answered" and isinstance(waits_for, asyncio.Future):
            # Before the task's own callback, so the task is cancelled when it could go on, and does not know yet.
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)

    def __repr__(self) -> str:
        return f"cancelled at suspension {self.at}, {self.moment}"


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells of each of its suspensions."""

    def __init__(self, inner: Coroutine[Any, Any, Any], told: Callable[[Any], None]) -> None:
        self._inner, self._told = inner, told

    def send(self, value: Any) -> Any:
        waits_for = self._inner.send(value)
        self._told(waits_for)
        return waits_for

    def throw(self, *error: Any) -> Any:
        waits_for = self._inner.throw(*error)
        self._told(waits_for)
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


def each_await(
    scenario: Callable[[CutTask], Awaitable[None]],
    *,
    moments: tuple[Moment, ...] = ("begun", "answered"),
    most: int = MOST,
    may_be_more: bool = False,
    cancels: int = 1,
) -> int:
    """Run the scenario with its task cancelled at each suspension; return how many times it was.

    Args:
        scenario: on an event loop of its own each time. What it asserts is reported with the suspension.
        moments: see ``CutTask``.
        most: suspensions; if there are more, that is a failure unless ``may_be_more``.
        may_be_more: for what polls until it is cancelled.
        cancels: how many suspensions in a row the task is cancelled at.
    """
    cuts = 0
    for moment in moments:
        for at in range(1, most + 1):
            cut = CutTask(at, moment, cancels)
            try:
                asyncio.run(scenario(cut))  # type: ignore[arg-type]
            except Exception as error:
                error.add_note(repr(cut))
                raise
            if not cut.reached:
                break
            cuts += 1
        else:
            assert may_be_more, f"more than {most} suspensions: does it ever end?"
    assert cuts, "it was never suspended, so nothing was tried"
    return cuts


class Interrupted(BaseException):
    """What a signal handler of the user's raises; no ``Exception``, as KeyboardInterrupt is none."""


Point = tuple[str, int, int, int]
"""A file, a line, an instruction, and how many times that has been executed before."""
_AFTER_THESE = {
    dis.opmap[name]
    for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "CALL_INTRINSIC_1", "CALL_METHOD")
    if name in dis.opmap
}


class CutCall:
    """Calls a function on this thread and raises at one point of the library that it executes.

    Attributes:
        reached: whether it came to that point.
        error: what came out of it; ``None``: it returned.
        value: what it returned.
        seen: all points that it came to.
    """

    def __init__(self, point: Point | None, raises: type[BaseException], also: tuple[str, ...] = ()) -> None:
        self.point = point
        self._also = also
        self.reached = False
        self.error: BaseException | None = None
        self.value: Any = None
        self.seen: list[Point] = []
        self._raises = raises
        self._visits: Counter[tuple[str, int, int]] = Counter()
        self._before: dict[FrameType, int | None] = {}
        """Where the instruction is that a frame has executed last; ``None``: no handler runs after it."""

    def __call__(self, function: Callable[[], Any]) -> None:
        """Call it; whatever comes out of it is kept."""
        former = sys.gettrace()
        sys.settrace(self._entered)
        try:
            self.value = function()
        except BaseException as error:  # noqa: BLE001 - looked at by the scenario
            self.error = error
        finally:
            sys.settrace(former)
            self._before.clear()
        # A frame keeps alive what it has; in a program it would be gone with the exception.
        if self.error is not None:
            self.error = self.error.with_traceback(None)

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        caller = frame.f_back
        if caller in self._before:  # what is written in Python returns without a look for signals
            self._before[caller] = None
        file = frame.f_code.co_filename
        beneath = caller in self._before and (file in BENEATH or (self._also and file.startswith(self._also)))
        if not file.startswith(LIBRARY) and not beneath:
            return None
        self._before[frame] = None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._before.pop(frame, None)
        elif event == "opcode":
            before, now = self._before.get(frame), frame.f_lasti
            self._before[frame] = now
            if before is not None and _handler_runs(frame, before, now):
                self._here(frame)
        return self._step

    def _here(self, frame: FrameType) -> None:
        where = frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
        point = (*where, self._visits[where])
        self._visits[where] += 1
        self.seen.append(point)
        if point == self.point and not self.reached:
            self.reached = True
            raise self._raises

    def __repr__(self) -> str:
        if self.point is None:
            return "not interrupted"
        file, line, instruction, visits = self.point
        name = self._raises.__name__
        return f"{name} at {file.removeprefix(LIBRARY)}:{line}, instruction {instruction}, visit {visits + 1}"


def _handler_runs(frame: FrameType, before: int, now: int) -> bool:
    """Whether CPython may run a signal handler between two instructions of a frame, and we can raise as it would."""
    code = frame.f_code
    instruction = code.co_code[before]
    if instruction not in _AFTER_THESE or (instruction == dis.opmap["RESUME"] and _is_outermost(frame)):
        return False
    # It would raise in the first of the two. What is raised here belongs to the second.
    return _caught_at(code, before) == _caught_at(code, now)


@cache
def _caught_at(code: CodeType, instruction: int) -> int | None:
    """Return which handler of a function catches what is raised at an instruction."""
    for part in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        if part.start <= instruction < part.end:
            return int(part.target)
    return None


def _is_outermost(frame: FrameType) -> bool:
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename.startswith(LIBRARY):
            return False
        caller = caller.f_back
    return True


def each_line(
    scenario: Callable[[CutCall], None],
    *,
    raises: type[BaseException] = Interrupted,
    visits: int = 1,
    every: int = 1,
    also: tuple[str, ...] = (),
) -> int:
    """Run the scenario with an exception at each point of the library; return how many times there was one.

    Args:
        scenario: run once as it is, to learn which points there are, and then once for each of them.
        raises: the exception.
        visits: a point that is come to many times is tried the first so many times, and the last.
        every: try only each so-many-th point.
        also: folders of other libraries that it is to be interrupted in, where ours calls them.
    """
    scenario(CutCall(None, raises, also))  # makes what is made once, and imports
    whole = CutCall(None, raises, also)
    scenario(whole)
    total = Counter(point[:3] for point in whole.seen)
    points = [point for point in whole.seen if point[3] < visits or point[3] == total[point[:3]] - 1]
    assert points, "nothing of the library was executed, so nothing was tried"
    cuts = 0
    for point in points[::every]:
        cut = CutCall(point, raises, also)
        try:
            scenario(cut)
        except Exception as error:
            error.add_note(repr(cut))
            raise
        cuts += cut.reached
    assert cuts, "no point was reached a second time"
    return cuts
