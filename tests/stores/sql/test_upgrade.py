"""A store that version 1 made is upgraded to what a new store is, with what it holds; on each SQL server."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, NullPool, create_engine, inspect, make_url, text

from cronsensus.errors import SchemaMismatch
from cronsensus.model.job import JobSpec
from cronsensus.stores import open_store
from cronsensus.stores.sql.schema import metadata
from cronsensus.stores.sql.version import VERSION
from cronsensus.triggers import every

VERSION_1 = Path(__file__).parent / "version_1"
DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}


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


def make_version_1(url: str, kind: str) -> None:
    statements = (VERSION_1 / f"{kind}.sql").read_text(encoding="utf-8").split(";\n")
    with connect(url, kind) as connection:
        maria = getattr(connection.dialect, "is_mariadb", False)
        for statement in statements:
            if statement.strip():
                # The tables were made on MariaDB; on MySQL they are made with what that calls it.
                connection.exec_driver_sql(statement if maria else statement.replace("_nopad_bin", "_0900_bin"))
        connection.execute(
            text(
                "INSERT INTO cronsensus_releases (namespace, release, first_seen_at) VALUES ('default', 'r0', 1)"
                if kind != "mysql"
                else "INSERT INTO cronsensus_releases (namespace, `release`, first_seen_at) VALUES ('default', 'r0', 1)"
            )
        )
        connection.commit()


def test_store_of_version_1_is_refused_then_upgraded_to_the_tables_of_a_new_store(url: str, kind: str):
    make_version_1(url, kind)
    store = open_store(url)
    try:
        with pytest.raises(SchemaMismatch, match=rf"version 1, .*needs {VERSION}; run: cronsensus db upgrade"):
            store.check()
        assert store.migrate() == ["m0002_additions", "m0003_signs"]
        assert store.migrate() == []
        store.check()
        store.define_jobs([JobSpec(name="job", function="job", trigger=every("1h"))], release="r1")
        assert store.job("job") is not None
        with connect(url, kind) as connection:
            upgraded = shape(connection)
            # What stood in it stands.
            assert connection.execute(text("SELECT count(*) FROM cronsensus_releases")).scalar() == 2
            for table in reversed(metadata.sorted_tables):
                connection.exec_driver_sql(f"DROP TABLE {table.name}")
            if kind == "postgres":
                connection.exec_driver_sql("DROP SEQUENCE cronsensus_tokens")
            connection.commit()
        assert store.migrate() == ["m0001_first", "m0002_additions", "m0003_signs"]
        with connect(url, kind) as connection:
            assert shape(connection) == upgraded
    finally:
        store.close()
