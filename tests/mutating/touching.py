"""A pytest plugin: which test reaches which line of the library, how long it takes, and whether it passes.

Loaded by ``PYTEST_PLUGINS`` in every process of a run; each of them writes a file into the folder that
``CRONSENSUS_TEST_TOUCHED`` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

from tests.mutating.reach import FOLDER

_watch = coverage.Coverage(data_file=None, config_file=False, source=[str(Path("src").resolve())], messages=False)
_watch.start()
_seconds: dict[str, float] = {}
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Write down what is reached from here on, in whatever thread, as reached by this test."""
    _watch.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _watch.switch_context("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Sum the phases up."""
    report = yield
    _seconds[item.nodeid] = _seconds.get(item.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        _failed.add(item.nodeid)
    return report


def pytest_unconfigure() -> None:
    """Write it all down."""
    _watch.stop()
    data = _watch.get_data()
    root = Path("src/cronsensus").resolve()
    lines = {
        str(Path(file).relative_to(root)): {
            str(line): sorted(filter(None, tests)) for line, tests in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    told = {"seconds": _seconds, "failed": sorted(_failed), "lines": lines}
    (Path(os.environ[FOLDER]) / f"{os.getpid()}.json").write_text(json.dumps(told))
