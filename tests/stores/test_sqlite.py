"""The SQLite store passes the suite, in a file of its own per test."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from cronsensus.clock import Clock
from cronsensus.stores import Store
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance import StoreConformance

IN_MEMORY = Path("/dev/shm")


class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> Iterator[None]:
        # What survives a power cut is not in question here, and a disk that syncs for every commit takes long.
        with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as folder:
            self.path = Path(folder) / "cronsensus.db"
            yield

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return SqliteStore(f"sqlite:///{self.path}", namespace=namespace, clock=clock)

    def make_connection(self) -> Connection:
        return create_engine(f"sqlite:///{self.path}", poolclass=NullPool).connect()
