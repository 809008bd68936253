"""A warm process that tries mutants: for each of them a fork of it runs some tests and says which of them fails.

``python -m tests.mutating.nursery`` reads a line of JSON for each trial and writes one for each answer. It has imported
what the tests need from elsewhere, and nothing of the library, which each fork reads anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import _pytest.assertion.rewrite
import hypothesis.strategies
import psycopg
import pymysql
import pytest
import redis
import sqlalchemy.dialects.mysql
import sqlalchemy.dialects.postgresql
import sqlalchemy.dialects.sqlite

WARM = (_pytest.assertion.rewrite, hypothesis.strategies, psycopg, pymysql, redis, sqlalchemy.dialects)

TIME_IS_UP = "time is up"
"""Why no test failed, where the tests together took longer than they may."""


class Picked:
    """A pytest plugin: runs the tests that are named, in their order, and keeps what the first failure was.

    Args:
        tests: for each test the seconds that it takes when nothing is mutated; None of a test that is not known.
        left_out: tests not to run.
        others: after how many of them to run tests that are not named, for they are new; None to leave those out.
        told: the file to which is written what goes on.
    """

    def __init__(self, tests: dict[str, float], left_out: list[str], told: Path, *, others: int | None) -> None:
        self._place = {test: place for place, test in enumerate(tests)}
        self._tests, self._left_out, self._others, self._told = tests, set(left_out), others, told
        self.answer: dict[str, Any] = {"failed": "", "why": "", "seconds": {}}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Pick, put into order, and give each a limit of time that fits."""
        picked = [one for one in items if one.nodeid in self._place or self._others is not None]
        picked = [one for one in picked if one.nodeid not in self._left_out]
        picked.sort(key=lambda one: self._place.get(one.nodeid, (self._others or 0) - 0.5))
        for one in picked:
            if one.nodeid in self._tests:
                one.add_marker(pytest.mark.timeout(20 + 10 * self._tests[one.nodeid]), append=False)
        config.hook.pytest_deselected(items=[one for one in items if one not in set(picked)])
        items[:] = picked

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take a file that cannot be read for a test that fails."""
        if report.failed:
            self._fell(report.nodeid, f"cannot be imported: {report.longreprtext[-300:]}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep the first failure."""
        report = yield
        self.answer["seconds"][report.nodeid] = self.answer["seconds"].get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._fell(report.nodeid, f"{report.when}: {report.longreprtext[-300:]}")
        return report

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell what runs, for those that have to end it."""
        self._told.write_text(json.dumps({**self.answer, "failed": nodeid, "why": "hangs"}))

    def _fell(self, test: str, why: str) -> None:
        if not self.answer["failed"]:
            self.answer |= {"failed": test, "why": why}


def _try(asked: dict[str, Any], told: Path) -> None:
    """Run the tests in this process, which is a fork; write down what came of it."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(told.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    plugin = Picked(asked["tests"], asked["left_out"], told, others=asked["others"])
    # What is imported already need not be rewritten.
    switches = [
        "-q",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *(["-x"] if asked["first"] else []),
    ]
    code = pytest.main([*switches, *asked["files"]], plugins=[plugin])
    library = Path(sys.modules["cronsensus"].__file__ or "") if "cronsensus" in sys.modules else None
    if library is not None and not library.is_relative_to(Path.cwd()):
        raise RuntimeError(f"the library that was tested is {library}, and not the copy")
    plugin.answer["code"] = int(code)
    told.write_text(json.dumps(plugin.answer))


def trial(asked: dict[str, Any], told: Path) -> dict[str, Any]:
    """Run tests in a fork; return which failed first, why, and how long each took."""
    told.write_text("{}")
    pid = os.fork()
    if not pid:
        try:
            _try(asked, told)
        except BaseException as error:  # noqa: BLE001 - this is a fork: nothing may leave it
            told.write_text(json.dumps({"broken": "".join(traceback.format_exception(error))}))
        finally:
            os._exit(0)
    ended = threading.Event()

    def end() -> None:
        ended.set()
        os.kill(pid, signal.SIGKILL)

    late = threading.Timer(asked["seconds"], end)
    late.start()
    os.waitpid(pid, 0)
    late.cancel()
    late.join()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    answer: dict[str, Any] = json.loads(told.read_text())
    # Each test has a limit of its own, so what ran then was slow: all of them together, on a busy machine.
    return {**answer, "failed": "", "why": TIME_IS_UP} if ended.is_set() and answer.get("why") == "hangs" else answer


def main() -> None:
    """Answer until there are no more questions."""
    told = Path(sys.argv[1])
    for line in sys.stdin:
        began = time.monotonic()
        answer = trial(json.loads(line), told)
        print(json.dumps({**answer, "took": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
