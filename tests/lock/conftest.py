"""Where the tests of locks hold them: each test in an empty place of its own, on every store."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cronsensus.lock import opening

IN_MEMORY = Path("/dev/shm")
SHARED = ["sqlite", "postgres", "mysql", "redis"]
"""Stores that several processes can reach."""
_names = count()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return an empty folder, where a sync costs nothing if there is such a place."""
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as name:
        yield Path(name)


def _place(request: pytest.FixtureRequest, kind: str) -> Iterator[str]:
    if kind == "memory":
        yield f"memory://lock-{next(_names)}"
    elif kind == "sqlite":
        yield f"sqlite:///{request.getfixturevalue('folder') / 'locks.db'}"
    else:
        yield request.getfixturevalue(f"{kind}_url")
    opening.close_all()


@pytest.fixture(params=["memory", *SHARED])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of an empty place."""
    yield from _place(request, request.param)


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of an empty place that several processes can reach."""
    yield from _place(request, request.param)
