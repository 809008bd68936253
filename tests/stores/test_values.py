"""Values that a store has no room for: refused with our own error before anything is written, and never cut off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.session import SessionSpec
from cronsensus.stores import Store, open_store
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.schema import releases
from cronsensus.stores.sql.sql_store import SqlStore

LEASE = timedelta(seconds=60)
BEYOND = 2**70


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return a store of each kind, with a job."""
    urls = {"memory": "memory://test-values", "sqlite": f"sqlite:///{tmp_path}/values.db"}
    made = open_store(urls.get(request.param) or request.getfixturevalue(f"{request.param}_url"))
    made.migrate()
    made.define_jobs([JobSpec(name="job", function="f")], release="r1")
    yield made
    made.close()


def a_spec(**changed: str) -> SessionSpec:
    known = {"id": "s1", "node": "n", "host": "h", "release": "r1", "version": "0"}
    return SessionSpec(pid=1, pid_started=1, concurrency=1, **(known | changed))  # type: ignore[arg-type]


IMPOSSIBLE: dict[str, Callable[[Store], object]] = {
    "a long node": lambda store: store.open_session(a_spec(node="n" * 201), lease=LEASE),
    "a long release": lambda store: store.open_session(a_spec(release="r" * 201), lease=LEASE),
    "a release with NUL": lambda store: store.open_session(a_spec(release="a\0b"), lease=LEASE),
    "a release with half a character": lambda store: store.open_session(a_spec(release="\ud800"), lease=LEASE),
    "a long holder": lambda store: store.lock("lock", "h" * 401, ttl=LEASE),
    "a holder with NUL": lambda store: store.lock("lock", "a\0b", ttl=LEASE),
    "an endless lock": lambda store: store.lock("lock", "h", ttl=timedelta.max),
    "an endless extension": lambda store: extended(store, timedelta.max),
    "a large priority": lambda store: store.enqueue([Item(job="job", key="k", priority=2**31)]),
    "a priority that is no number": lambda store: store.enqueue([Item(job="job", key="k", priority="1")]),  # type: ignore[arg-type]
}


def extended(store: Store, ttl: timedelta) -> bool:
    grant = store.lock("lock", "h", ttl=LEASE)
    assert grant is not None
    return store.extend(grant, ttl=ttl)


def test_a_value_that_no_store_keeps_is_refused_by_each_of_them(store: Store) -> None:
    taken = []
    for name, verb in IMPOSSIBLE.items():
        with contextlib.suppress(InvalidOption):
            verb(store)
            taken.append(name)
    assert taken == []


def test_numbers_that_no_row_has_find_nothing_or_are_refused(store: Store) -> None:
    looks: list[Callable[[], object]] = [
        lambda: store.occurrences(OccurrenceFilter(), after=BEYOND),
        # A host whose clock is set back a little is noted there.
        lambda: [one for one in store.trail(after=BEYOND) if one.by != "the store"],
        lambda: store.occurrence(BEYOND),
    ]
    for look in looks:
        with contextlib.suppress(InvalidOption):
            assert not look()
    assert store.look().jobs == ()  # and the handle is as good as before


def test_what_a_column_has_no_room_for_is_not_cut_off_where_a_key_may_stand_already(store: Store) -> None:
    """MySQL's INSERT IGNORE would keep the first 200 characters, and say nothing."""
    if not isinstance(store, SqlStore) or store.capabilities.name == "sqlite":
        pytest.skip("only servers with columns of a length")
    with pytest.raises(InvalidOption), store._write_transaction() as tx:
        tx.send_rows("insert_release", [(store.namespace, "r" * 201, 1)])
    assert store.look().jobs == ()


def test_a_key_that_stands_already_is_still_passed_over(mysql_url: str) -> None:
    store = MysqlStore(mysql_url)
    store.migrate()
    with store._write_transaction() as tx:
        view = store._sqlalchemy_view(tx.connection)
        view.execute(insert(releases).values(namespace=store.namespace, release="r", first_seen_at=1))
        tx.send_rows("insert_release", [(store.namespace, "r", 2)])
        [(seen,)] = view.execute(select(releases.c.first_seen_at))
        assert seen == 1
    store.close()
