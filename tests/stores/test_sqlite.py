"""The SQLite store passes the suite, in a file of its own per test."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from cronsensus.stores import Store
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance import StoreConformance
from cronsensus.timing.clock import Clock
from tests.scratch import copy_migrated_sqlite, scratch_folder
from tests.stores.conftest import is_about_set_up


class TestSqliteStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, request: pytest.FixtureRequest) -> Iterator[None]:
        with scratch_folder() as folder:
            self.path = folder / "cronsensus.db"
            if not is_about_set_up(request):
                copy_migrated_sqlite(self.path)
            yield

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return SqliteStore(f"sqlite:///{self.path}", namespace=namespace, clock=clock)

    def make_connection(self) -> Connection:
        return create_engine(f"sqlite:///{self.path}", poolclass=NullPool).connect()
