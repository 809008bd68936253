"""Where guarded functions are tested: each test in an empty store of its own, on every store."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cronsensus import Scheduler
from tests.scratch import BUSY, copy_migrated_sqlite, scratch_folder

SQL = ["sqlite", "postgres", "mysql"]
_names = count()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder, in memory where there is room."""
    with scratch_folder() as empty:
        yield empty


def _place(request: pytest.FixtureRequest, kind: str) -> str:
    if kind == "memory":
        return f"memory://once-{next(_names)}"
    if kind == "sqlite":
        path = request.getfixturevalue("folder") / "once.db"
        copy_migrated_sqlite(path)
        return f"sqlite:///{path}?{BUSY}"
    url: str = request.getfixturevalue(f"{kind}_url")
    return url


@pytest.fixture(params=["memory", *SQL, "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store."""
    return _place(request, request.param)


@pytest.fixture(params=[*SQL, "redis"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store that several processes can reach."""
    return _place(request, request.param)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def telling_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store with notifications."""
    return _place(request, request.param)


@pytest.fixture(params=SQL)
def sql_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store whose database effects can commit in."""
    return _place(request, request.param)


@pytest.fixture(params=["postgres", "mysql", "redis"])
def server_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store on a server."""
    return _place(request, request.param)


@pytest.fixture(params=["postgres", "mysql"])
def sql_server_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty SQL store on a server."""
    return _place(request, request.param)


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    """Return a scheduler that is not started."""
    made = Scheduler(url, lease="60s")
    yield made
    made._opened.close()


@pytest.fixture
def local() -> Iterator[Scheduler]:
    """Return a scheduler in memory, for what does not depend on the store."""
    made = Scheduler(f"memory://once-{next(_names)}")
    yield made
    made._opened.close()
