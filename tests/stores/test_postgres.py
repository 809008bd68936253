"""The PostgreSQL store passes the suite, each test in an empty schema, also without its one trip."""

import pytest
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.pool import NullPool

from cronsensus.stores import Store
from cronsensus.stores.sql.postgres import PostgresStore, at_once
from cronsensus.testing.conformance import Claiming, Enqueuing, Finishing, Firing, Herds, Stepping, StoreConformance
from cronsensus.timing.clock import Clock


class OnPostgres:
    kind: type[PostgresStore] = PostgresStore

    @pytest.fixture(autouse=True)
    def _place(self, conforming_postgres_url: str) -> None:
        self.url = conforming_postgres_url

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        return self.kind(self.url, namespace=namespace, clock=clock)

    def make_connection(self) -> Connection:
        url = make_url(self.url).set(drivername="postgresql+psycopg").difference_update_query(["schema"])
        return create_engine(url, poolclass=NullPool).connect()


class TestPostgresStore(OnPostgres, StoreConformance):
    pass


class WithoutOneTrip(PostgresStore):
    in_one_trip = False


class TestPostgresStoreWithoutOneTrip(OnPostgres, Firing, Stepping, Claiming, Enqueuing, Finishing, Herds):
    kind = WithoutOneTrip

    @pytest.fixture(autouse=True)
    def _refuse_one_trip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for verb in ("close_one", "enqueue_one", "fire_one", "start_due"):
            monkeypatch.setattr(at_once, verb, lambda *_: pytest.fail("it took one trip"))
