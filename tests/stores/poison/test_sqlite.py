"""SQLite lets anything into any column; nothing of it may stop more than the row that it stands in."""

import os
import shutil

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from cronsensus.stores.sql.schema import metadata
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.timing.clock import ManualClock
from tests.scratch import scratch_folder
from tests.stores.poison.scene import START, furnish, goes_on
from tests.stores.poison.sql import WHOLE, poisons, pour

ALL = os.environ.get("CRONSENSUS_TEST_POISON") == "all"
pytestmark = pytest.mark.timeout(3600 if ALL else 600)
MOST = 10_000 if ALL else 1
"""Values for each column; the long form tries all of them."""


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    with scratch_folder() as folder:
        clock = ManualClock(START)
        store = SqliteStore(f"sqlite:///{folder}/furnished.db", clock=clock)
        furnish(store, clock)
        store.close()
        with create_engine(f"sqlite:///{folder}/furnished.db", poolclass=NullPool).connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        yield folder / "furnished.db", clock


def on_a_copy(furnished, poison=None):
    """Pour poison into a copy of the furnished store and let a node go on there; whether it was let in."""
    path, clock = furnished
    copy = path.with_name("copy.db")
    for old in path.parent.glob("copy.db*"):
        old.unlink() if old.is_file() or old.is_fifo() else shutil.rmtree(old, ignore_errors=True)
    shutil.copyfile(path, copy)
    if poison is not None:
        engine = create_engine(f"sqlite:///{copy}", poolclass=NullPool)
        with engine.connect() as connection:
            if not pour(connection, poison):
                return False
    now = ManualClock(clock.now())
    now.advance(clock.monotonic() - now.monotonic())
    now.step(clock.now() - now.now())
    store = SqliteStore(f"sqlite:///{copy}", clock=now)
    try:
        goes_on(store, now)
    finally:
        store.close()
    return True


COLUMNS = [
    (table.name, column.name)
    for table in metadata.tables.values()
    if table.name not in WHOLE
    for column in table.columns
]


def test_an_intact_store_passes(furnished):
    assert on_a_copy(furnished)


def fails_of(furnished, table, column, most):
    """Pour values into a column, one after the other; return what failed."""
    of_column = [poison for poison in poisons(sqlite=True) if (poison.table, poison.column) == (table, column)]
    first = sum(map(ord, table + column)) % len(of_column)
    failed = {}
    for poison in (of_column[first:] + of_column[:first])[:most]:
        try:
            on_a_copy(furnished, poison)
        except Exception as error:  # noqa: BLE001 - told below
            failed[str(poison)] = f"{type(error).__name__}: {str(error)[:300]}"
    return failed


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda name: name.removeprefix("cronsensus_"))
def test_poison_in_one_column_stops_nothing_else(furnished, table, column):
    assert not fails_of(furnished, table, column, MOST)


@pytest.mark.parametrize(("table", "column"), [("cronsensus_jobs", "name"), ("cronsensus_occurrences", "priority")])
def test_what_once_stopped_a_node_stops_it_no_more(furnished, table, column):
    assert not fails_of(furnished, table, column, 10_000)
