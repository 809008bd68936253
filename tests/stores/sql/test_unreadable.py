"""A row that cannot be read is told apart from an exception of the user's that comes while a row is read."""

import contextlib
import sqlite3
from datetime import timedelta

import pytest

from cronsensus.errors import StoreCorrupt, StoreUnavailable
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.unreadable import Unreadable, read_one
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.triggers import every
from tests.cancelling import CutCall, each_line


class SoftTimeLimit(Exception):
    """Raised by a signal handler of the user's, as Celery's is."""


@pytest.mark.parametrize("error", [SoftTimeLimit(), StoreUnavailable("gone"), TimeoutError()])
def test_what_is_no_fault_of_a_row_comes_out_as_it_is(error):
    def read(row: int) -> int:
        raise error

    with pytest.raises(type(error)):
        read_one(1, read, "run 1")
    unreadable = Unreadable()
    with pytest.raises(type(error)):
        unreadable.keep_readable([1], read, str)
    assert unreadable.list_texts() == ()


@pytest.mark.parametrize("error", [KeyError("a"), ValueError("b"), TypeError("c"), AttributeError("d"), IndexError()])
def test_what_a_row_is_to_blame_for_names_the_row(error):
    def read(row: int) -> int:
        raise error

    with pytest.raises(StoreCorrupt, match=r"^run 1: the store holds what this version cannot read"):
        read_one(1, read, "run 1")
    unreadable = Unreadable()
    assert unreadable.keep_readable([1], read, lambda row: f"run {row}") == []
    assert [text.partition(":")[0] for text in unreadable.list_texts()] == ["run 1 is left out"]


def test_an_exception_out_of_a_signal_handler_makes_no_row_unreadable(open_sqlite):
    store: SqliteStore = open_sqlite()
    store.define_jobs([JobSpec(name="job", function="f", trigger=every("1h"))], release="r1")
    store.open_session(a_session("s1"), lease=timedelta(minutes=5))
    [added] = store.enqueue([Item(job="job")])

    def scenario(cut: CutCall) -> None:
        store._definitions.specs._kept.clear()
        cut(lambda: (store.occurrence(added.id), store.job("job"), store.jobs(), store.look()))
        assert cut.error is None or isinstance(cut.error, SoftTimeLimit), repr(cut.error)
        assert store._definitions.unreadable.list_texts() == ()

    assert each_line(scenario, raises=SoftTimeLimit, every=3) > 20


def test_a_page_with_what_cannot_be_read_is_filled_from_the_next(url, open_sqlite):
    """Or it would be taken for the last: the audit would end there, and say that all is well."""
    store: SqliteStore = open_sqlite()
    store.define_jobs([JobSpec(name=f"job-{n}", function="f", trigger=every("1h")) for n in range(5)], release="r1")
    for name in ("job-3", "job-1"):
        store.pause(name, by="somebody", why="a test")
    job = store.job("job-3")
    assert job is not None
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw, raw:
        raw.execute("UPDATE cronsensus_jobs SET revision = 'none' WHERE name = 'job-1'")
        raw.execute("UPDATE cronsensus_trail SET details = '[]' WHERE target = 'job-1'")
        raw.executemany(
            "INSERT INTO cronsensus_verdicts (id, job_id, first, last, state, reason, decided_at)"
            " VALUES (?, ?, ?, 1, 'missed', 'late', 0)",
            [(1, job.id, "none"), (2, job.id, 0)],
        )
    assert [job.spec.name for job in store.jobs(limit=3)] == ["job-0", "job-2", "job-3"]
    assert [one.target for one in store.trail(limit=1)] == ["job-3"]
    assert [one.id for one in store.ranges("job-3", limit=1)] == [2]
