"""A connection of the store's own: how its transactions end, and what becomes of one that is lost."""

import sqlite3
from collections.abc import Iterator

import pytest

from cronsensus.stores.sql.connection import Connection


@pytest.fixture
def driver() -> Iterator[sqlite3.Connection]:
    driver = sqlite3.connect(":memory:", isolation_level=None)
    driver.execute("CREATE TABLE words (word NOT NULL)")
    yield driver
    driver.close()


def words(driver: sqlite3.Connection) -> list[str]:
    return [word for (word,) in driver.execute("SELECT word FROM words")]


def is_closed(driver: sqlite3.Connection) -> bool:
    try:
        driver.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def test_a_transaction_is_committed_at_its_end_and_undone_by_an_exception(driver):
    connection = Connection(driver)
    for word, error in (("kept", None), ("undone", KeyboardInterrupt)):
        try:
            with connection.transaction():
                connection.execute_text("BEGIN")
                connection.execute_text(f"INSERT INTO words VALUES ('{word}')")
                if error is not None:
                    raise error
        except KeyboardInterrupt:
            assert error is not None
        assert not driver.in_transaction
    assert words(driver) == ["kept"]


def test_a_transaction_that_is_dropped_after_its_connection_ends_quietly(driver):
    """As after a signal handler's exception: a warning out of a finalizer would be all that the user sees of it."""
    connection = Connection(driver)
    dropped = connection.transaction()
    dropped.__enter__()
    connection.execute_text("BEGIN")
    connection.close()
    dropped.gen.close()


def test_a_connection_that_is_lost_is_closed(driver):
    connection = Connection(driver)
    del connection
    assert is_closed(driver)


def test_a_lost_copy_in_a_forked_child_is_left_alone(driver, monkeypatch):
    connection = Connection(driver)
    monkeypatch.setattr("os.getpid", lambda: -1)
    del connection
    assert not is_closed(driver)


def test_closing_twice_is_no_error(driver):
    connection = Connection(driver)
    connection.close()
    connection.close()
    assert is_closed(driver)
