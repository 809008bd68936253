"""The MySQL store passes the suite, each test in an empty database. Which server answers is the fixtures' affair."""

import pytest
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.pool import NullPool

from cronsensus.stores import Store
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.testing.conformance import StoreConformance
from cronsensus.timing.clock import Clock


class TestMysqlStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, conforming_mysql_url: str) -> None:
        self.url = conforming_mysql_url

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return MysqlStore(self.url, namespace=namespace, clock=clock)

    def make_connection(self) -> Connection:
        return create_engine(make_url(self.url).set(drivername="mysql+pymysql"), poolclass=NullPool).connect()
