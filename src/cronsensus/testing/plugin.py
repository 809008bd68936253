"""The pytest plugin with the fixture ``cronsensus``. It imports nothing of cronsensus until a test uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cronsensus.scheduler import Scheduler
    from cronsensus.testing.scheduler_kit import Kit

_REAL_STORES = "CRONSENSUS_REAL_STORES"  # of opened/opened_store.py, which is not imported here
_APP = "cronsensus_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings."""
    parser.addini(_APP, "MODULE:ATTR of the Scheduler that the fixture cronsensus puts into memory", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line(
        "markers",
        "cronsensus(start, tz, nodes, store, startup, audit, allow_failures): how the fixture cronsensus is set up",
    )
    config.addinivalue_line("markers", "real_store: this test may use a store other than memory")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Report in the header if real stores are refused."""
    app = config.getini(_APP)
    return f"cronsensus: {app} in memory; real stores are refused, but for tests marked real_store" if app else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, None]:
    """Refuse real stores while the test runs, if its project tests with memory."""
    if not item.config.getini(_APP) or item.get_closest_marker("real_store") is not None:
        yield
        return
    before = os.environ.get(_REAL_STORES)
    os.environ[_REAL_STORES] = "refuse"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_REAL_STORES]
        else:
            os.environ[_REAL_STORES] = before


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Check the kit at the end of a test that has passed: as a failure of the test, not of its clean-up."""
    outcome = yield
    kit: Any = pyfuncitem.funcargs.get("cronsensus")
    if kit is None or outcome.excinfo is not None:
        return
    try:
        kit.check()
    except AssertionError as error:
        outcome.force_exception(error)


@pytest.fixture
def cronsensus_app(request: pytest.FixtureRequest) -> Scheduler:
    """Return the scheduler under test; override this fixture if a function makes it."""
    name: str = request.config.getini(_APP)
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        pytest.fail(
            f'which scheduler? Write cronsensus_app = "shop.jobs:scheduler" below [tool.pytest.ini_options] of '
            f"pyproject.toml, or a fixture cronsensus_app that returns it{f'; {name!r} is not that' if name else ''}",
            pytrace=False,
        )
    from importlib import import_module

    scheduler: Scheduler = getattr(import_module(module), attribute)
    return scheduler


@pytest.fixture
def cronsensus_factory(cronsensus_app: Scheduler) -> Iterator[Callable[..., Kit]]:
    """Return a function that makes a kit of the scheduler, with the options of ``cronsensus.testing.kit``."""
    from cronsensus.testing.scheduler_kit import Kit

    with ExitStack() as kits:
        yield lambda **options: kits.enter_context(Kit(cronsensus_app, **options))


@pytest.fixture
def cronsensus(request: pytest.FixtureRequest, cronsensus_factory: Callable[..., Kit]) -> Kit:
    """Return the scheduler in memory, at a time that the test moves; see ``cronsensus.testing.Kit``."""
    marker = request.node.get_closest_marker("cronsensus")
    return cronsensus_factory(**({} if marker is None else marker.kwargs))
