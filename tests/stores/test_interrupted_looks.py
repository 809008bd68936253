"""A signal handler raises in the middle of a look: the next one on the same handle sees what is there, and no other."""

import gc
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from cronsensus.errors import StoreCorrupt
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores import open_store
from cronsensus.stores.base import Store
from cronsensus.stores.sql.sql_handle import SqlHandle
from tests.cancelling import CutCall, Interrupted, each_line

_names = count()
POINTS = int(os.environ.get("CRONSENSUS_TEST_POINTS", "5"))
"""About how many points of each look are tried; a large number: all of them, minutes."""
DRIVERS = {"postgres": "psycopg", "mysql": "pymysql", "redis": "redis"}


class OutOfTime(LookupError):
    """What a handler may raise as well: verbs say "there is none" with such an error, and then all is in order."""


@pytest.fixture(params=["memory", "sqlite", "postgres", "mysql", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind = request.param
    url = {"memory": f"memory://looks-{next(_names)}", "sqlite": f"sqlite:///{tmp_path}/looks.db?synchronous=normal"}
    store = open_store(url[kind] if kind in url else request.getfixturevalue(f"{kind}_url"))
    store.migrate()
    store.define_jobs([JobSpec(name=f"job-{number}", function="f") for number in range(3)], release="r")
    yield store
    store.close()


def folder_of(driver: str | None) -> tuple[str, ...]:
    """Return where a package lies, if there is one."""
    found = None if driver is None else find_spec(driver)
    return () if found is None or found.origin is None else (str(Path(found.origin).parent),)


LOOKS: dict[str, Callable[[Store, int], object]] = {
    "what is due, which is no transaction": lambda store, _: store.look(limit=1),
    "the clock": lambda store, _: store.now(),
}


@pytest.mark.parametrize("raises", [Interrupted, OutOfTime])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_that_is_interrupted_anywhere_leaves_its_handle_in_order(store, look, raises):
    made = store.enqueue([Item(job=f"job-{number}", key=f"key {number}") for number in range(3)])
    ask = LOOKS[look]

    def scenario(cut: CutCall) -> None:
        cut(lambda: ask(store, made[0].id))
        # In the middle of a row an error of Python's own kinds is taken for that row's.
        assert cut.error is None or isinstance(cut.error, (raises, StoreCorrupt) if raises is OutOfTime else raises)
        for one in made[1:]:
            seen = store.occurrence(one.id)
            assert seen is not None
            assert (seen.id, seen.key) == (one.id, one.key)
        assert len(store.look(limit=1).jobs) == 0
        store.now()  # a transaction that was left open is ended by the next one on this thread
        if isinstance(store, SqlHandle) and store._connections.in_use:  # a fork would wait for what is in use
            gc.collect()
            assert not store._connections.in_use

    also = folder_of(DRIVERS.get(store.capabilities.name))
    whole = CutCall(None, raises, also)
    for _ in range(2):
        whole = CutCall(None, raises, also)
        scenario(whole)
    assert each_line(scenario, raises=raises, also=also, every=max(1, len(whole.seen) // POINTS))


@pytest.mark.parametrize("step", ["_read_transaction", "_write_transaction", "_glance_transaction"])
def test_a_connection_is_kept_after_a_verbs_own_no_and_not_after_such_an_error_of_other_code(tmp_path, step):
    store = open_store(f"sqlite:///{tmp_path}/looks.db?synchronous=normal")
    assert isinstance(store, SqlHandle)
    store.migrate()
    (kept,) = store._connections._idle
    with pytest.raises(LookupError):
        store.cancel(99, by="ann", why="there is none")
    assert store._connections._idle == [kept]
    with pytest.raises(OutOfTime), getattr(store, step)():
        raise OutOfTime  # as a handler of the user's in the middle of what the driver does
    assert kept not in store._connections._idle
    store.now()
    store.close()
