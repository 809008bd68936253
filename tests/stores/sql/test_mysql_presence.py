"""Where a lock of MySQL means something as a sign of life, and which of a session's names a connection takes."""

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.stores.sql.mysql import MysqlStore, mysql_presence
from cronsensus.stores.sql.mysql.mysql_dialect import driver_of
from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection, open_connection, run_text
from cronsensus.stores.sql.mysql.mysql_url import read_url

LEASE = timedelta(minutes=5)
PLACE = ("database", "namespace")


def present(store: Any, sessions: list[str], place: tuple[str, str] = PLACE) -> set[str] | None:
    """Ask through a handle."""
    with store._glance_transaction() as tx:
        return mysql_presence.list_present(tx, driver_of(tx.connection), place, sessions)


def test_a_connection_takes_the_first_free_name_and_frees_it_with_the_session(mysql_url: str) -> None:
    first, second = open_connection(read_url(mysql_url)), open_connection(read_url(mysql_url))
    place, store = (mysql_url, "default"), MysqlStore(mysql_url)
    names = mysql_presence.names_of(place, "s1")
    assert mysql_presence.show_sign(first, place, "s1")
    assert mysql_presence.show_sign(second, place, "s1")
    assert [first.lock, second.lock] == names[:2]
    assert present(store, ["s1", "s2"], place) == {"s1"}
    assert mysql_presence.show_sign(second, place, None)
    assert present(store, ["s1"], place) == {"s1"}
    first.close()
    while present(store, ["s1"], place):  # the server may not have read it yet
        pass
    assert run_text(second, "SELECT @@wait_timeout") == ((mysql_presence.IDLE_FOR,),)
    second.close()
    store.close()


def test_names_that_are_all_taken_are_tried_again(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_presence, "SIGNS", 1)
    former, driver = open_connection(read_url(mysql_url)), open_connection(read_url(mysql_url))
    place = (mysql_url, "default")
    assert mysql_presence.show_sign(former, place, "s1")
    assert mysql_presence.show_sign(driver, place, "s1")
    locks = [driver.lock]
    mysql_presence.show_sign(former, place, None)
    assert mysql_presence.show_sign(driver, place, "s1")
    assert [*locks, driver.lock] == [None, *mysql_presence.names_of(place, "s1")]
    former.close()
    driver.close()


def test_behind_a_proxy_no_sign_is_shown_and_none_is_missed(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MysqlStore(mysql_url)
    store.migrate()
    assert "frees when" in store.describe()["evidence_of_death"]
    monkeypatch.setattr(BoundedConnection, "greeted_by", property(lambda _: 1))
    assert "through a proxy" in store.describe()["evidence_of_death"]
    driver = open_connection(read_url(mysql_url))
    assert not mysql_presence.show_sign(driver, PLACE, "s1")
    assert present(store, ["s1"]) is None
    driver.close()
    store.register_presence("s1")
    store.wait(0.05)
    assert store._sign._driver is None
    store.close()


def test_where_several_servers_are_written_to_no_sign_is_shown(mysql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_presence, "_SEVERAL", "SELECT 'wsrep_on', 'ON'")
    driver = open_connection(read_url(mysql_url))
    assert not mysql_presence.show_sign(driver, PLACE, "s1")
    assert driver.lock is None
    assert "several servers" in mysql_presence.describe_presence(driver)
    driver.close()
