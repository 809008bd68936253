"""Let the process of a job die between two of its lines, and check the takeover."""

from __future__ import annotations

import dis
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cronsensus.declared.declarations import name_of
from cronsensus.run import current_run

if TYPE_CHECKING:
    from cronsensus.node.executors.base import Call
    from cronsensus.scheduler import Scheduler
    from cronsensus.testing.stage import HandTurned, KitOptions

_Trace = Callable[[FrameType, str, Any], Any]


class Crashes:
    """The acts of a kit on processes."""

    scheduler: Scheduler
    options: KitOptions
    _dies_after: tuple[str, list[str]] | None = None

    if TYPE_CHECKING:

        def __init__(self, scheduler: Scheduler, **options: Any) -> None: ...

        def __enter__(self) -> Self: ...

        def __exit__(self, *_: object) -> None: ...

        def die(self) -> NoReturn:
            """End the process of the job that calls this."""

        def kill(self, node: str) -> None:
            """End the process of a node."""

        def assert_honest(self) -> None:
            """Audit."""

    @contextmanager
    def dies_before(self, job: Any, text: str, *, attempt: int = 1) -> Iterator[list[str]]:
        """Let the process die before the first line of a job that contains ``text``, in one attempt; yields the place.

        By ``sys.settrace``: a debugger sees nothing of the block.

        Raises:
            AssertionError: the job never came to such a line.
        """
        __tracebackhide__ = True
        code = _code_of(job)
        lines = [number for number in _lines_of(code) if text in linecache.getline(code.co_filename, number)]
        if not lines:
            raise AssertionError(f"{name_of(job)} has no line with {text!r}")
        with self.dying_at(code, lines[0], attempt) as points:
            yield points
        if not points:
            raise AssertionError(f"{name_of(job)} never came to its line {lines[0]} with {text!r} in attempt {attempt}")

    def crash_everywhere(
        self, job: Any, *, reset: Callable[[], object], run: Callable[[Self], object]
    ) -> Iterator[str]:
        """Let the process die before each line of a job, and once after the last; yield each point, after its takeover.

        Each point has a new kit, made like this kit, with its own memory::

            for point in cronsensus.crash_everywhere(bill, reset=clean, run=lambda kit: kit.travel("5m")):
                assert len(charges) == 1, point

        Args:
            job: the job whose process dies, in its first attempt.
            reset: undoes what the job changes outside of the store.
            run: lets the job and its takeover run.

        Raises:
            AssertionError: it never came to any of its lines; or the audit has findings.
        """
        __tracebackhide__ = True
        code, reached = _code_of(job), False
        for line in [*_lines_of(code), None]:
            reset()
            with type(self)(self.scheduler, **self.options) as kit:
                with kit.dying_after(name_of(job)) if line is None else kit.dying_at(code, line, 1) as points:
                    run(kit)
                if points:
                    kit.assert_honest()
            if points:
                reached = True
                yield points[0]
        if not reached:
            raise AssertionError(
                f"{name_of(job)} did not run: `run` has to enqueue it, or to travel to a time of its own"
            )

    @contextmanager
    def dying_at(self, code: CodeType, line: int, attempt: int) -> Iterator[list[str]]:
        """Let the process die before a line while the block goes on; yields the place."""
        points: list[str] = []

        def trace_line(frame: FrameType, event: str, _: Any) -> _Trace:
            run = current_run()
            if event == "line" and frame.f_lineno == line and not points and run is not None and run.attempt == attempt:
                source = linecache.getline(code.co_filename, line).strip()
                points.append(f"killed before line {line}: {source} (attempt {attempt} of {run.job})")
                self.die()
            return trace_line

        before = sys.gettrace()
        sys.settrace(lambda frame, *_: trace_line if frame.f_code is code else None)
        try:
            yield points
        finally:
            sys.settrace(before)

    @contextmanager
    def dying_after(self, job: str) -> Iterator[list[str]]:
        """Let the process die between the return of a job and the record of it, likewise."""
        points: list[str] = []
        self._dies_after = job, points
        try:
            yield points
        finally:
            self._dies_after = None

    def kill_after(self, node: HandTurned, call: Call) -> None:
        """Kill a node whose job has returned, before the result is recorded, if that is wanted."""
        if self._dies_after is None or node.gone:
            return
        job, points = self._dies_after
        if call.run.job == job and call.run.attempt == 1 and not points:
            points.append(f"killed after its last line, before its result was recorded (attempt 1 of {job})")
            self.kill(node.name)


def _code_of(job: Any) -> CodeType:
    code: CodeType = inspect.unwrap(getattr(job, "function", job)).__code__
    return code


def _lines_of(code: CodeType) -> list[int]:
    return sorted({line for _, line in dis.findlinestarts(code) if line and line > code.co_firstlineno})
