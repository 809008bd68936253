"""Run the suite of stores against the store behind a URL, and report which of its rules hold.

For servers that the project cannot test: their owner finds out whether the promises hold there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cronsensus.testing.conformance import StoreConformance
from cronsensus.testing.conformance import at_url as suite

USAGE = 4
"""pytest's exit code for words of the command line that it does not take."""


@dataclass(frozen=True)
class Rule:
    """A rule of the suite.

    Attributes:
        hazard: its subject: the name of its class.
        name: the rule, as a sentence.
        why: where and how it was broken; empty: it holds.
    """

    hazard: str
    name: str
    why: str = ""


@dataclass
class _Listener:
    tell: Callable[[Rule], None]
    found: list[Rule] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the end of a test; if its set-up or clean-up failed, its rule does not hold either."""
        if report.when != "call" and not report.failed:
            return
        name = report.nodeid.rpartition("::")[2]
        why = "" if report.passed else _reason(report)
        rule = Rule(_hazard_of(name.partition("[")[0]), name.removeprefix("test_").replace("_", " "), why)
        self.found.append(rule)
        self.tell(rule)


def check_store_at(*urls: str, only: str = "", tell: Callable[[Rule], None] = lambda _: None) -> list[Rule]:
    """Run the suite on a store, each test in its own namespaces; return the rules; ``tell`` is called with each result.

    What it writes stays: the tables, and rows in namespaces whose names begin with ``check-``.

    Args:
        urls: the store's; of several, which lead to servers of one cluster, handles take turns.
        only: words of the rules that are tried, as pytest's ``-k`` takes them.
        tell: is called from this thread.
    """
    listener = _Listener(tell)
    words = ["-p", "no:cacheprovider", "-p", "no:terminal", *(["-k", only] if only else [])]
    before = os.environ.get(suite.URL)
    os.environ[suite.URL] = "\n".join(urls)
    try:
        # Settings and a conftest of the current folder must not matter.
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            settings = Path(folder, "pytest.ini")
            settings.write_text("[pytest]\n")
            pytest.main([*words, "-c", str(settings), "--rootdir", folder, suite.__file__], plugins=[listener])
    finally:
        if before is None:
            del os.environ[suite.URL]
        else:
            os.environ[suite.URL] = before
    return listener.found


def _hazard_of(test: str) -> str:
    return next((one.__name__ for one in StoreConformance.__mro__ if test in vars(one)), StoreConformance.__name__)


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr).strip().splitlines()[-1]
    return f"{Path(crash.path).name}:{crash.lineno}: {' '.join(crash.message.split())}"
