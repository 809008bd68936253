"""How a file comes to have its tables: by one of many processes, forward only, and never half."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from cronsensus.errors import SchemaMismatch
from cronsensus.model.job import JobSpec
from cronsensus.stores.sql import migrations, version
from cronsensus.stores.sql.schema import metadata
from cronsensus.stores.sql.version import FIRST, VERSION

PROCESSES = 8
ALL_STEPS = [name for _, name, _ in migrations.MIGRATIONS]
START = """
store = SqliteStore(url)
say("ready")
hear()
applied = store.migrate()
store.check()
store.define_jobs([JobSpec(name="job", function="job", trigger=every("1h"))], release="r1", complete=True)
store.open_session(a_session(str(os.getpid())), lease=LEASE)
say(" ".join(applied) or "nothing")
store.close()
"""


def tables(path: Path) -> dict[str, str]:
    with sqlite3.connect(path) as connection:
        found = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE name LIKE 'cronsensus%'").fetchall())
    connection.close()
    return found


@pytest.mark.parametrize("attempt", range(2))
def test_eight_processes_start_in_the_same_instant_on_no_file(attempt, run_child, open_sqlite):
    children = [run_child(START) for _ in range(PROCESSES)]
    assert [child.hear() for child in children] == ["ready"] * PROCESSES
    for child in children:
        child.say()
    # Each step is taken by one.
    taken = [word for child in children for word in child.hear().split() if word != "nothing"]
    assert sorted(taken) == ALL_STEPS
    store = open_sqlite(migrated=False)
    assert len(store.sessions()) == PROCESSES
    assert len(store.history("job").eras) == 1


def test_migrating_again_does_nothing(open_sqlite):
    store = open_sqlite()
    assert store.migrate() == []
    assert store.sibling().migrate() == []
    store.check()


def test_a_process_that_finds_the_schema_as_it_should_be_loads_no_sqlalchemy(place, open_sqlite):
    open_sqlite()
    program = (
        "import sys; from cronsensus.stores import open_store\n"
        f"store = open_store('sqlite:///{place}/jobs.db')\n"
        "store.migrate(); store.check(); store.look(); store.counts(); store.close()\n"
        "print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_table_and_index_that_is_declared_is_there(place, open_sqlite):
    open_sqlite()
    declared = {table.name for table in metadata.tables.values()}
    declared |= {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    assert declared <= tables(place / "jobs.db").keys()


@pytest.mark.parametrize("empty_file", [False, True])
def test_a_store_without_a_schema_is_named_as_such(empty_file, place, open_sqlite):
    if empty_file:
        (place / "jobs.db").touch()
    store = open_sqlite(migrated=False)
    for verb in (store.check, store.look, store.counts, lambda: store.trigger("job", by="ann")):
        with pytest.raises(SchemaMismatch, match="cronsensus db upgrade"):
            verb()
    assert (place / "jobs.db").exists() == empty_file, "only migrate() makes files"


def test_a_newer_schema_is_refused(place, open_sqlite):
    store = open_sqlite()
    with store._write_transaction() as tx:
        tx.connection.execute_text("INSERT INTO cronsensus_schema VALUES (999, 'm0999_later', 0)")
    before = tables(place / "jobs.db")
    for verb in (store.check, store.migrate, store.sibling().check):
        with pytest.raises(SchemaMismatch, match=rf"999.*knows only {VERSION}.*pip install --upgrade cronsensus"):
            verb()
    assert tables(place / "jobs.db") == before


@pytest.mark.parametrize("number", [1, 4])
def test_a_schema_that_no_release_made_is_refused_and_left_alone(number, place, open_sqlite):
    store = open_sqlite()
    with store._write_transaction() as tx:
        tx.connection.execute_text(f"DELETE FROM cronsensus_schema WHERE version > {FIRST}")
        tx.connection.execute_text(f"UPDATE cronsensus_schema SET version = {number}")
    before = tables(place / "jobs.db")
    for verb in (store.check, store.migrate, store.sibling().check):
        with pytest.raises(
            SchemaMismatch, match=rf"version {number}, made before cronsensus 0.1.0.*name an empty database and run"
        ):
            verb()
    assert tables(place / "jobs.db") == before
    assert store.describe()["schema"] == number


@pytest.fixture
def a_second_version(monkeypatch):
    """A later cronsensus, which has one more migration; ``fail`` makes that one fail half-way."""

    class Later:
        fail = False

        def upgrade(self, connection):
            connection.execute(text("CREATE TABLE cronsensus_later (id INTEGER PRIMARY KEY)"))
            if self.fail:
                raise RuntimeError("half-way")

    later = Later()
    monkeypatch.setattr(version, "VERSION", VERSION + 1)
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, (VERSION + 1, "m0999_later", later.upgrade)))
    return later


@pytest.fixture
def an_old_store(open_sqlite):
    """A store as today's version left it, with something in it."""
    store = open_sqlite()
    store.define_jobs([JobSpec(name="job", function="job")], release="r1")
    return store


def test_an_older_schema_is_upgraded_and_keeps_what_it_holds(an_old_store, a_second_version, place):
    with pytest.raises(SchemaMismatch, match=rf"version {VERSION}.*needs {VERSION + 1}.*cronsensus db upgrade"):
        an_old_store.check()
    assert an_old_store.migrate() == ["m0999_later"]
    assert an_old_store.migrate() == []
    an_old_store.check()
    assert an_old_store.job("job") is not None
    assert "cronsensus_later" in tables(place / "jobs.db")
    assert an_old_store.describe()["schema"] == VERSION + 1


def test_an_empty_store_walks_through_all_versions(a_second_version, open_sqlite):
    store = open_sqlite(migrated=False)
    assert store.migrate() == [*ALL_STEPS, "m0999_later"]


def test_a_migration_that_fails_leaves_nothing_behind(an_old_store, a_second_version, place):
    before = tables(place / "jobs.db")
    a_second_version.fail = True
    with pytest.raises(RuntimeError, match="half-way"):
        an_old_store.migrate()
    assert tables(place / "jobs.db") == before
    a_second_version.fail = False
    assert an_old_store.migrate() == ["m0999_later"]


def test_the_numbers_of_migrations_have_no_gap():
    assert [number for number, _, _ in migrations.MIGRATIONS] == list(range(FIRST, VERSION + 1))
    assert [name for _, name, _ in migrations.MIGRATIONS if not name.startswith("m0")] == []
