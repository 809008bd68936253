"""MySQL commits before and after each CREATE: a migration may stop anywhere, and whoever comes next finishes it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymysql.err import OperationalError
from sqlalchemy import event

from cronsensus.errors import StoreBusy, StoreUnavailable
from cronsensus.stores.sql import migrations, version
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.mysql import mysql_driver as driver
from cronsensus.stores.sql.mysql import mysql_store as store
from tests.servers.fixtures import mysql_connection

ALL_STEPS = [name for _, name, _ in migrations.MIGRATIONS]


class Killed(BaseException):
    """As SIGKILL: nothing that is written after it happens."""


def tables_of(url: str) -> dict[str, str]:
    """Return how each table is made, by name; but for the next id, which is another in each database."""
    with mysql_connection(url) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW TABLES")
        names = sorted(row[0] for row in cursor.fetchall())
        made = {}
        for name in names:
            cursor.execute(f"SHOW CREATE TABLE `{name}`")
            # The order of indexes is that of a set.
            text = re.sub(r" AUTO_INCREMENT=\d+", "", (cursor.fetchone() or ["", ""])[1])
            made[name] = "\n".join(sorted(line.rstrip(",") for line in text.splitlines()))
        return made


@contextmanager
def killed_after_one_change(handle: MysqlStore) -> Iterator[list[str]]:
    """Kill the handle's process when it is about to make its second change to the schema."""
    made: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(("CREATE", "ALTER")):
            if made:
                raise Killed
            made.append(statement)

    engine = handle._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield made
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.timeout(300)
def test_a_process_may_die_between_any_two_statements(mysql_url, mysql_server_url):
    changes = 0
    while True:
        handle = MysqlStore(mysql_url)
        try:
            with killed_after_one_change(handle) as made:
                handle.migrate()
        except Killed:
            changes += 1
            assert len(made) == 1, "it did not get any further"
        else:
            break
        finally:
            handle.close()
    assert changes > 25, "that were not all tables and indexes"
    found = tables_of(mysql_url)
    with mysql_connection(mysql_server_url) as connection:
        connection.cursor().execute("CREATE DATABASE IF NOT EXISTS test_in_one_go")
    at_once = MysqlStore(mysql_url.rpartition("/")[0] + "/test_in_one_go")
    try:
        at_once.migrate()
        assert found == tables_of(at_once._url_and_clock[0])
        check_counter(mysql_url)
    finally:
        at_once.close()
        with mysql_connection(mysql_server_url) as connection:
            connection.cursor().execute("DROP DATABASE test_in_one_go")


def check_counter(url: str) -> None:
    with mysql_connection(url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT name, value FROM cronsensus_counters")
        found = dict(cursor.fetchall())
        assert found.pop("identity") > 0
        assert found == {"token": 0}
        cursor.execute("SELECT version FROM cronsensus_schema")
        assert list(cursor.fetchall()) == [(number,) for number, _, _ in migrations.MIGRATIONS]


def test_the_lock_is_waited_for_but_not_for_ever(mysql_url, monkeypatch):
    monkeypatch.setattr(store, "_MIGRATING_FOR", 1.0)
    first, second = MysqlStore(mysql_url), MysqlStore(mysql_url)
    with (
        first._migration_connection(),
        pytest.raises(StoreBusy, match=r"another process has been migrating for 1 s.*IS_USED_LOCK"),
    ):
        second.migrate()
    assert second.migrate() == ALL_STEPS
    for handle in (first, second):
        handle.close()


def test_a_failed_migration_lets_go_of_the_lock(mysql_url, monkeypatch):
    handle, other = MysqlStore(mysql_url), MysqlStore(mysql_url)

    def fail(*_: Any) -> None:
        raise KeyError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "apply_step", fail)
        with pytest.raises(KeyError):
            handle.migrate()
    monkeypatch.setattr(store, "_MIGRATING_FOR", 1.0)
    assert other.migrate() == ALL_STEPS
    for one in (handle, other):
        one.close()


def test_null_from_get_lock_is_no_lock(mysql_url, monkeypatch):
    """GET_LOCK answers NULL for an error; that is neither yes nor no."""
    real = driver.run_text
    monkeypatch.setattr(store, "run_text", lambda to, text: ((None,),) if "GET_LOCK" in text else real(to, text))
    handle = MysqlStore(mysql_url)
    with pytest.raises(StoreUnavailable, match="could not give the lock of migrations"):
        handle.migrate()
    handle.close()


def test_databases_of_one_server_migrate_beside_each_other(mysql_url, mysql_server_url, monkeypatch):
    monkeypatch.setattr(store, "_MIGRATING_FOR", 1.0)
    mine, theirs = MysqlStore(mysql_url), MysqlStore(mysql_server_url)
    with mine._migration_connection(), theirs._migration_connection():
        pass
    mine.close()
    theirs.close()


def test_a_look_that_meets_another_process_at_work_is_repeated(mysql_url, monkeypatch):
    """MySQL answers so to a transaction that began before the table was made, and meets it in the middle."""
    look, met = version.of, iter([1412])

    def of(tx):
        for code in met:
            raise OperationalError(code, "Table definition has changed")
        return look(tx)

    monkeypatch.setattr(version, "of", of)
    handle = MysqlStore(mysql_url)
    try:
        assert handle.migrate() != []
        assert handle.migrate() == []
    finally:
        handle.close()
