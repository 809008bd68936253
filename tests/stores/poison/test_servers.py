"""What PostgreSQL and MySQL let in: numbers at their ends, broken JSON, NULL. Each case in a namespace of its own."""

import itertools
import os

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import NullPool

from cronsensus.stores import open_store
from cronsensus.timing.clock import ManualClock
from tests.stores.poison.scene import START, furnish, goes_on
from tests.stores.poison.sql import DOOMED, poisons, pour, together

ALL = os.environ.get("CRONSENSUS_TEST_POISON") == "all"
TURNS = 12 if ALL else 1
"""How often the columns of a table are poisoned together, each time with other values."""
LAST = 2**63 - 1
"""MySQL gives no number after this one, to no row of the table."""
NUMBERED = {"id", "number"}
"""Columns that it numbers."""

pytestmark = pytest.mark.timeout(3600 if ALL else 600)

cases = (f"case {number}" for number in itertools.count())


@pytest.fixture
def place(request):
    """Return the kind of server that the test is for, and an empty place there."""
    return request.param, request.getfixturevalue(f"conforming_{request.param}_url")


def outside(kind, url):
    """Connect beside the store."""
    if kind == "mysql":
        return create_engine(make_url(url).set(drivername="mysql+pymysql"), poolclass=NullPool).connect()
    schema = make_url(url).query["schema"]
    bare = make_url(url).set(drivername="postgresql+psycopg").difference_update_query(["schema"])
    connection = create_engine(bare, poolclass=NullPool).connect()
    connection.exec_driver_sql(f"SET search_path = {schema}")
    connection.commit()
    return connection


def goes_on_after(place, *some):
    """Pour poison into a furnished store and let a node go on there; return how much of it was let in."""
    kind, url = place
    clock, namespace = ManualClock(START), next(cases)
    store = open_store(url, namespace=namespace, clock=clock)
    try:
        furnish(store, clock)
        with outside(kind, url) as connection:
            let_in = sum(pour(connection, one, namespace) for one in some)
        goes_on(store, clock)
    finally:
        store.close()
    return let_in


each_server = pytest.mark.parametrize("place", ["postgres", "mysql"], indirect=True)


@each_server
@pytest.mark.parametrize("table", DOOMED, ids=lambda name: name.removeprefix("cronsensus_"))
def test_poison_in_the_columns_of_one_table_stops_nothing_else(place, table):
    failed = {}
    for turn in range(TURNS):
        some = together(list(poisons(sqlite=False)), turn + len(table)).get(table, [])
        try:
            goes_on_after(place, *some)
        except Exception as error:  # noqa: BLE001 - told below
            failed[", ".join(map(str, some))] = f"{type(error).__name__}: {str(error)[:300]}"
    assert not failed


if ALL:
    COLUMNS = list(dict.fromkeys((poison.table, poison.column) for poison in poisons(sqlite=False)))

    @each_server
    @pytest.mark.parametrize(("table", "column"), COLUMNS, ids=lambda name: name.removeprefix("cronsensus_"))
    def test_poison_in_one_column_stops_nothing_else(place, table, column):
        failed = {}
        for poison in poisons(sqlite=False):
            used_up = place[0] == "mysql" and column in NUMBERED and poison.value == LAST
            if poison[:2] == (table, column) and not used_up:
                try:
                    goes_on_after(place, poison)
                except Exception as error:  # noqa: BLE001 - told below
                    failed[str(poison)] = f"{type(error).__name__}: {str(error)[:300]}"
        assert not failed
