"""Where the tests of locks hold them: each test in an empty place of its own, on every kind of place."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cronsensus.lock import opening
from tests.scratch import BUSY, copy_migrated_sqlite, scratch_folder
from tests.servers.programs import ServiceMissing
from tests.servers.redis import RedisServer

SHARED_STORES = ["sqlite", "postgres", "mysql", "redis"]
"""Stores that several processes can reach."""
_names = count()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder, in memory where there is room."""
    with scratch_folder() as empty:
        yield empty


@pytest.fixture(scope="session")
def masters() -> Iterator[list[RedisServer]]:
    """Return three independent Redis servers, running; a test that breaks servers uses others."""
    try:
        servers = [RedisServer(durable=False) for _ in range(3)]
    except ServiceMissing as missing:
        pytest.skip(f"service missing: {missing}")
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.end()


def _place(request: pytest.FixtureRequest, kind: str) -> Iterator[str]:
    number = next(_names)
    if kind == "memory":
        yield f"memory://lock-{number}"
    elif kind == "sqlite":
        path = request.getfixturevalue("folder") / "locks.db"
        copy_migrated_sqlite(path)
        yield f"sqlite:///{path}?{BUSY}"
    elif kind == "files":
        yield f"file://{request.getfixturevalue('folder') / 'locks'}"
    elif kind == "redlock":
        servers = request.getfixturevalue("masters")
        with pytest.MonkeyPatch.context() as patch:
            # These are all alive: one without an answer for half a second is short of processor time.
            for module in ("redlock", "redlock_client"):
                patch.setattr(f"cronsensus.integrations.{module}.ANSWER_SECONDS", 5.0)
            yield ",".join(f"{server.url}?prefix=test-{number}" for server in servers)
    else:
        yield request.getfixturevalue(f"{kind}_url")
    opening.close_all()


@pytest.fixture(params=["memory", *SHARED_STORES])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of an empty store."""
    yield from _place(request, request.param)


@pytest.fixture(params=SHARED_STORES)
def shared_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of an empty store that several processes can reach."""
    yield from _place(request, request.param)


@pytest.fixture(params=["memory", *SHARED_STORES, "redlock", "files"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place of any kind, as text; see ``places``."""
    yield from _place(request, request.param)


@pytest.fixture(params=["memory", *SHARED_STORES, "redlock"])
def timed(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place where a lock has a TTL."""
    yield from _place(request, request.param)


@pytest.fixture(params=[*SHARED_STORES, "redlock", "files"])
def shared(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place of any kind that several processes can reach."""
    yield from _place(request, request.param)


@pytest.fixture(params=[*SHARED_STORES, "files"])
def shared_by_several(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place that several processes can reach, and where several may hold a lock."""
    yield from _place(request, request.param)


@pytest.fixture(params=[*SHARED_STORES, "redlock"])
def shared_timed(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place that several processes can reach, and where a lock has a TTL."""
    yield from _place(request, request.param)
