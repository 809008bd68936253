"""A store that the release before made is upgraded to what a new store is, with what it holds; on each SQL server."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, inspect, make_url

from cronsensus.errors import SchemaMismatch
from cronsensus.model.job import JobSpec
from cronsensus.stores import open_store
from cronsensus.stores.sql import migrations, version
from cronsensus.stores.sql.migrations import additions
from cronsensus.stores.sql.schema import metadata
from cronsensus.stores.sql.version import VERSION
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.triggers import every

DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}

STEPS = [name for _, name, _ in migrations.MIGRATIONS]
NUMBERS = list(range(version.FIRST, VERSION + 2))


def connect(url: str, kind: str) -> Connection:
    place = make_url(url).set(drivername=DRIVERS[kind])
    connection = create_engine(place.difference_update_query(["schema"]), poolclass=NullPool).connect()
    if "schema" in place.query:
        connection.exec_driver_sql(f"SET search_path = {place.query['schema']}")
    return connection


def shape(connection: Connection) -> dict[str, Any]:
    """Return what can be seen of the tables, but for the order of columns."""
    look = inspect(connection)
    return {
        table: (
            {
                column["name"]: (str(column["type"]), column["nullable"], column["default"])
                for column in look.get_columns(table)
            },
            sorted(str(index["name"]) for index in look.get_indexes(table)),
        )
        for table in metadata.tables
    }


@pytest.fixture(params=list(DRIVERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return str(request.getfixturevalue(f"{kind}_url"))


def as_before(url: str, kind: str) -> None:
    """Take away what a release adds that has one more step."""
    with connect(url, kind) as connection:
        on = " ON cronsensus_occurrences" if kind == "mysql" else ""
        connection.exec_driver_sql(f"DROP INDEX cronsensus_occurrences_nominal{on}")
        connection.exec_driver_sql("ALTER TABLE cronsensus_sessions DROP COLUMN shown")
        connection.exec_driver_sql("DROP TABLE cronsensus_trail")
        connection.commit()


def test_store_of_the_release_before_is_upgraded_to_the_tables_of_a_new_store(
    url: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    with closing(open_store(url)) as before:
        assert before.migrate() == STEPS
        before.define_jobs([JobSpec(name="job", function="job", trigger=every("1h"))], release="r1")
        with connect(url, kind) as connection:
            made = shape(connection)
        as_before(url, kind)
        with monkeypatch.context() as release:
            release.setattr(version, "VERSION", VERSION + 1)
            later = (VERSION + 1, "m0999_later", additions.add_missing)
            release.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, later))
            with closing(open_store(url)) as store:
                with pytest.raises(
                    SchemaMismatch, match=rf"version {VERSION}, .*needs {VERSION + 1}; run: cronsensus db upgrade"
                ):
                    store.check()
                assert store.migrate() == ["m0999_later"]
                assert store.migrate() == []
                store.check()
                assert store.job("job") is not None, "what stood in it stands"
                store.open_session(a_session("s1"), lease=timedelta(seconds=10))
        with connect(url, kind) as connection:
            assert shape(connection) == made
        with pytest.raises(
            SchemaMismatch, match=rf"has schema version {VERSION + 1}, but this cronsensus knows only {VERSION}"
        ):
            before.check()


def test_new_store_walks_through_a_step_that_adds_and_is_given_nothing_twice(
    url: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(version, "VERSION", VERSION + 1)
    later = (VERSION + 1, "m0999_later", additions.add_missing)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, later))
    with closing(open_store(url)) as store:
        assert store.migrate() == [*STEPS, "m0999_later"]
    with connect(url, kind) as connection:
        assert list(connection.exec_driver_sql("SELECT version FROM cronsensus_schema ORDER BY 1").scalars()) == NUMBERS
