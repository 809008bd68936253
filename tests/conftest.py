"""What holds for every test: the settings of Hypothesis, a clean environment, and no silent gaps in CI."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from cronsensus.process import logger
from tests.tiers import SHORT_TIER, is_long, is_long_file

pytest_plugins = ["tests.servers.fixtures"]
# Their assertions tell what differed, as those of tests do.
pytest.register_assert_rewrite("tests.chaos.cluster", "tests.faults.watching")

IN_CI = os.environ.get("CI") == "true"

# In CI only a change of the code may turn the build red, so examples are not drawn at random there; and any machine may
# be busy, so no example has a deadline (pytest-timeout still has the last word).
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, max_examples=50)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=300)
settings.register_profile("dev", deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))

# A developer's own settings must not steer the tests; CRONSENSUS_TEST_*_URL, which name servers to test on, may.
for name in [name for name in os.environ if name.startswith("CRONSENSUS_")]:
    if not name.startswith("CRONSENSUS_TEST_"):
        del os.environ[name]


# A shell that starts something in the background has it ignore Ctrl-C, and so all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _aside_is_written() -> Generator[None]:
    """Let no line that a thread of the log still has to write reach the ``caplog`` of the next test."""
    yield
    logger.flush(5.0)


def is_missing_service(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Tell whether a test (or a whole file) was skipped because a server that it needs is not there.

    Such a skip gives a reason with the words "service missing". The reason of a skip is the last of the three parts of
    ``longrepr``; an expected failure has no such parts.
    """
    return report.skipped and isinstance(report.longrepr, tuple) and "service missing" in report.longrepr[2]


def fail_where_services_are_due(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip for a missing service into a failure in CI, where a green build means that everything ran."""
    if IN_CI and is_missing_service(report):
        report.outcome = "failed"
        report.longrepr = f"In CI a missing service is a failure. {report.longrepr[2]}"  # type: ignore[index]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return what ``-n auto`` means: two for each processor, for much of what the tests do is wait.

    None leaves it to pytest-xdist, which has a variable for it.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 2 * (os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count() or 1)


FIRST = ("test_each_snapshot_is_made_exactly_once_while_processes_are_killed_at_random",)
"""What takes longest, so that it is not what the others wait for in the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first, and mark the long tier, before the marks are asked for."""
    items.sort(key=lambda item: item.name not in FIRST)
    for item in items:
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.drawn)


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what stays: ten thousand tests, walked through again and again."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file for the short tier that has none of its tests."""
    if config.option.markexpr != SHORT_TIER or not collection_path.is_relative_to(config.rootpath):
        return None
    return True if is_long_file(collection_path.relative_to(config.rootpath).as_posix()) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_where_services_are_due(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_where_services_are_due(report)
    return report
