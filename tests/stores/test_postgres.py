"""The PostgreSQL store passes the suite, each test in an empty schema."""

import pytest
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.pool import NullPool

from cronsensus.clock import Clock
from cronsensus.stores import Store
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.testing.conformance import StoreConformance


class TestPostgresStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, conforming_postgres_url: str) -> None:
        self.url = conforming_postgres_url

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return PostgresStore(self.url, namespace=namespace, clock=clock)

    def make_connection(self) -> Connection:
        url = make_url(self.url).set(drivername="postgresql+psycopg").difference_update_query(["schema"])
        return create_engine(url, poolclass=NullPool).connect()
