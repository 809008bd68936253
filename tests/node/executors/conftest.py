"""Calls to run, and a place where their ends arrive."""

import importlib
import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, LogLine
from cronsensus.model.states import Origin
from cronsensus.node.executors.base import Call, Executor
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun
from cronsensus.run import Run
from cronsensus.timing.clock import ManualClock, SystemClock

HERE = str(Path(__file__).parent)
PATIENCE = 60.0
"""Seconds after which a test gives up waiting for what has to come; never waited for when all is well."""
SOME_TIME = datetime(2026, 11, 20, 21, tzinfo=UTC)


class Bench:
    """Makes calls, and keeps what executors and runs report about them."""

    patience = PATIENCE

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.ends: dict[tuple[int, int], list[Ending]] = {}
        self.lines: list[LogLine] = []
        self.progress: list[tuple[float, float]] = []
        self._ids = itertools.count(1)

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = None,
        run_parameter: str | None = None,
        executor: Any = "thread",
        **kwargs: Any,
    ) -> Call:
        number = next(self._ids)
        policies = Policies(timeout=None if timeout is None else timedelta(seconds=timeout))
        claim = Claim(
            id=number,
            spec=JobSpec(name="job", function="job", policies=policies),
            key=f"key:{number}",
            origin=Origin.ENQUEUE,
            scheduled_for=SOME_TIME,
            due_at=SOME_TIME,
            attempt=2,
            token=7000 + number,
            session="session",
            args=args,
            kwargs=kwargs,
            claimed_at=SOME_TIME,
            created_at=SOME_TIME,
        )
        run = Run(claim, on_progress=self._on_progress, on_line=self._on_line)
        return Call(claim, run, Registered("job", function, executor, run_parameter))

    def done(self, call: Call, ending: Ending) -> None:
        with self.changed:
            self.ends.setdefault((call.claim.id, call.claim.token), []).append(ending)
            self.changed.notify_all()

    def of(self, call: Call) -> list[Ending]:
        with self.changed:
            return list(self.ends.get((call.claim.id, call.claim.token), []))

    def wait(self, call: Call) -> Ending:
        """Return the end of ``call``."""
        with self.changed:
            assert self.changed.wait_for(lambda: (call.claim.id, call.claim.token) in self.ends, PATIENCE), "no end"
            (ending,) = self.ends[call.claim.id, call.claim.token]
            return ending

    def run(self, executor: Executor, function: Callable[..., Any], *args: Any, **options: Any) -> Ending:
        call = self.call(function, *args, **options)
        executor.start(call)
        return self.wait(call)

    def wait_for_line(self, matches: Callable[[LogLine], bool]) -> LogLine:
        """Return the first kept line that matches."""
        with self.changed:
            assert self.changed.wait_for(lambda: any(map(matches, self.lines)), PATIENCE), f"only {self.lines}"
            return next(line for line in self.lines if matches(line))

    def texts(self, level: str) -> list[str]:
        return [line.text for line in self.lines if line.level == level]

    def each_once(self) -> bool:
        return set(Counter(len(ends) for ends in self.ends.values())) <= {1}

    @staticmethod
    def is_gone(pid: int) -> bool:
        """Tell whether a process has ended; a zombie that nobody reaps has."""
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    @staticmethod
    def until(condition: Callable[[], bool], what: str) -> None:
        """Wait for what no event tells, such as the death of somebody else's process."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"{what}: in vain"
            time.sleep(0.002)

    def _on_progress(self, run: BaseRun, done: float, total: float) -> None:
        with self.changed:
            self.progress.append((done, total))
            self.changed.notify_all()

    def _on_line(self, run: BaseRun, line: LogLine) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert bench.each_once(), bench.ends


class Watch:
    """A watchdog whose time is moved by hand, for executors that otherwise live on the real clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)

    def let_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timer.recheck_clock()

    def let_pass_until(self, condition: Callable[[], Any]) -> None:
        """Let time fly until something has come of it."""

        def moved() -> bool:
            self.let_pass(1.0)
            return bool(condition())

        Bench.until(moved, "the end of time")


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.timer.close()


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions that a process of its own can import: their folder is on the path, which executors hand on."""
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
    return importlib.import_module("executor_jobs")
