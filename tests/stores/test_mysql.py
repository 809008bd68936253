"""The MySQL store passes the suite, each test in an empty database. Which server answers is the fixtures' affair."""

import pytest
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.pool import NullPool

from cronsensus.stores import Store
from cronsensus.stores.sql.mysql import MysqlStore, mysql_driver
from cronsensus.testing.conformance import Looking, StoreConformance
from cronsensus.timing.clock import Clock


class TestMysqlStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, conforming_mysql_url: str) -> None:
        self.url = conforming_mysql_url

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return MysqlStore(self.url, namespace=namespace, clock=clock)

    def make_connection(self) -> Connection:
        return create_engine(make_url(self.url).set(drivername="mysql+pymysql"), poolclass=NullPool).connect()


class TestMysqlStoreThatNumbersBySteps(Looking):
    """As each server of a Galera cluster of three does, so that no two give one number."""

    @pytest.fixture(autouse=True)
    def _place(self, conforming_mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = conforming_mysql_url
        own = mysql_driver.session_settings
        steps = "auto_increment_increment = 3"
        monkeypatch.setattr(mysql_driver, "session_settings", lambda *args, **more: [*own(*args, **more), steps])

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return MysqlStore(self.url, namespace=namespace, clock=clock)
