"""Places with the tables made: one for all tests of a worker, emptied after each, for making tables takes longest.

Only for tests of verbs. What is about set-up, and what leaves processes or open transactions behind, asks for a place
of its own: ``postgres_url``, ``mysql_url``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, create_engine, inspect, make_url
from sqlalchemy.pool import NullPool

from cronsensus.stores.sql.mysql import MysqlStore, mysql_driver
from cronsensus.stores.sql.postgres import PostgresStore, postgres_driver
from cronsensus.stores.sql.schema import metadata
from cronsensus.testing.conformance import Basics, Racing
from tests.servers.fixtures import PATIENCE, fresh_mysql, fresh_postgres, from_afar

KEPT = {"cronsensus_schema", "cronsensus_counters"}
"""Tables that have rows as soon as they are made."""


class Emptied:
    """A place, and the connection that empties it."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self._connection = connection

    def empty(self) -> None:
        """Make it what it was when its tables had just been made.

        Raises:
            sqlalchemy.exc.OperationalError: something in it is still locked.
        """
        ours = metadata.tables.keys()
        with self._connection.begin():
            for table in ours - KEPT:
                self._connection.exec_driver_sql(f"DELETE FROM {table}")
            self._connection.exec_driver_sql("UPDATE cronsensus_counters SET value = 0 WHERE name = 'token'")
            for table in inspect(self._connection).get_table_names():
                if table not in ours:  # a table of the user's
                    self._connection.exec_driver_sql(f"DROP TABLE {table}")


@contextmanager
def _emptied(url: str, driver: str, *settings: str) -> Iterator[Emptied]:
    engine = create_engine(make_url(url).set(drivername=driver).difference_update_query(["schema"]), poolclass=NullPool)
    with engine.connect() as connection:
        for setting in settings:
            connection.exec_driver_sql(setting)
        connection.commit()
        yield Emptied(url, connection)
    engine.dispose()


@pytest.fixture(scope="session")
def _emptied_postgres(postgres_server_url: str) -> Iterator[Emptied]:
    with fresh_postgres(postgres_server_url) as url:
        store = PostgresStore(url)
        store.migrate()
        store.close()
        schema = make_url(url).query["schema"]
        with _emptied(
            url, "postgresql+psycopg", f"SET search_path = {schema}", f"SET lock_timeout = '{PATIENCE}s'"
        ) as place:
            yield place


@pytest.fixture(scope="session")
def _emptied_mysql(mysql_server_url: str) -> Iterator[Emptied]:
    with fresh_mysql(mysql_server_url) as url:
        store = MysqlStore(url)
        store.migrate()
        store.close()
        settings = (f"SET lock_wait_timeout = {PATIENCE}", f"SET innodb_lock_wait_timeout = {PATIENCE}")
        with _emptied(url, "mysql+pymysql", *settings) as place:
            yield place


def is_about_set_up(request: pytest.FixtureRequest) -> bool:
    """Return whether a test of the suite is about the making of tables, and so begins without them."""
    return request.function.__qualname__.partition(".")[0] in {Basics.__name__, Racing.__name__}


def _place(request: pytest.FixtureRequest, kind: str) -> Iterator[str]:
    # A busy machine may pause in the middle of a transaction for longer than a healthy node does.
    for driver in (mysql_driver, postgres_driver):
        request.getfixturevalue("monkeypatch").setattr(driver, "VERB_IDLE_SECONDS", 60.0)
    if is_about_set_up(request):
        yield request.getfixturevalue(f"{kind}_url")
        return
    place: Emptied = request.getfixturevalue(f"_emptied_{kind}")
    with from_afar(place.url, request.getfixturevalue("distance")) as url:
        yield url
    place.empty()


@pytest.fixture
def conforming_postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place for a test of the suite that every store passes."""
    yield from _place(request, "postgres")


@pytest.fixture
def conforming_mysql_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty place for a test of the suite that every store passes."""
    yield from _place(request, "mysql")
