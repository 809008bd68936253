"""The SQLite store passes the suite, in a file of its own per test."""

from pathlib import Path

import pytest

from cronsensus.clock import Clock
from cronsensus.stores import Store
from cronsensus.testing.conformance import StoreConformance


class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "cronsensus.db"

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        from cronsensus.stores.sql.sqlite import SqliteStore

        return SqliteStore(f"sqlite:///{self.path}", namespace=namespace, clock=clock)
