"""A place for files, handles that are closed again, and real processes that do as they are told, line by line."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from cronsensus.stores.sql import schema as tables
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import START
from cronsensus.timing.clock import Clock, ManualClock
from tests.scratch import copy_migrated_sqlite, scratch_folder

PREAMBLE = """
import os, sys
from datetime import timedelta
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.steps import an_end
from cronsensus.triggers import every

url, LEASE = sys.argv[1], timedelta(seconds=60)

def say(word):
    print(word, flush=True)

def hear():
    return sys.stdin.readline().strip()

def a_session(id):
    return SessionSpec(
        id=id, node="n", host="h", pid=os.getpid(), pid_started=1, release="r1", concurrency=9, version="1"
    )
"""


class Child:
    """A process that runs a script; ``hear`` what it says, ``say`` what it waits for."""

    def __init__(self, script: str, url: str, by: Sequence[str] = ()) -> None:
        """Start a process on ``url``; ``by`` the command that starts it, if one has to."""
        self.process = subprocess.Popen(
            [*by, sys.executable, "-c", PREAMBLE + textwrap.dedent(script), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, word: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder, in memory where there is room."""
    with scratch_folder() as folder:
        yield folder


@pytest.fixture
def url(place: Path) -> str:
    return f"sqlite:///{place / 'jobs.db'}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def open_sqlite(place: Path, url: str) -> Iterator[Callable[..., SqliteStore]]:
    """Open handles on the test's file (or another URL), migrated unless told otherwise; close them at the end."""
    opened: list[SqliteStore] = []

    def open_one(
        options: str = "",
        *,
        clock: Clock | None = None,
        migrated: bool = True,
        namespace: str = "default",
        at: str = "",
    ) -> SqliteStore:
        if migrated and not at and not (path := place / "jobs.db").exists():
            copy_migrated_sqlite(path)
        store = SqliteStore((at or url) + options, namespace=namespace, clock=clock)
        opened.append(store)
        if migrated:
            store.migrate()
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def run_child(url: str) -> Iterator[Callable[[str], Child]]:
    """Start processes on the test's file, and end them with the test."""
    children: list[Child] = []

    def run(script: str) -> Child:
        child = Child(script, url)
        children.append(child)
        return child

    yield run
    for child in children:
        child.end()


@pytest.fixture
def open_postgres(postgres_url: str) -> Iterator[Callable[..., PostgresStore]]:
    """Open handles, migrated unless told otherwise; close them at the end."""
    opened: list[PostgresStore] = []

    def open_one(options: str = "", *, at: str = "", migrated: bool = True) -> PostgresStore:
        url = at or postgres_url
        store = PostgresStore(url + (("&" if "?" in url else "?") + options if options else ""))
        opened.append(store)
        if migrated:
            store.migrate()
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture(scope="module")
def database() -> Iterator[Connection]:
    """Return empty tables in memory, for one statement at a time; what is written is rolled back by the test."""
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()
