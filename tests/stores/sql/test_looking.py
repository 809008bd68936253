"""A look is of one moment, also where it takes two statements and something is fired between them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.planning import plan
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.postgres import PostgresStore
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.testing.conformance.fixtures import START, a_session
from cronsensus.testing.conformance.steps import an_end
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every

KINDS: dict[str, Callable[..., SqlStore]] = {"url": SqliteStore, "postgres_url": PostgresStore, "mysql_url": MysqlStore}
LEASE = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)


@pytest.fixture(params=KINDS, ids=["sqlite", "postgres", "mysql"])
def two(request: pytest.FixtureRequest) -> Iterator[tuple[SqlStore, SqlStore, ManualClock]]:
    """Two handles on a store in which one job is due, and their clock."""
    clock = ManualClock(START)
    url = request.getfixturevalue(request.param)
    stores = KINDS[request.param](url, clock=clock), KINDS[request.param](url, clock=clock)
    stores[0].migrate()
    stores[0].define_jobs([JobSpec(name="job", function="f", trigger=every("1m", start=START))], release="r1")
    stores[0].open_session(a_session("s1"), lease=LEASE)
    stores[0].open_session(a_session("s2"), lease=LEASE)
    clock.advance(90)
    yield *stores, clock
    for store in stores:
        store.close()


def fire_between(monkeypatch: pytest.MonkeyPatch, other: SqlStore, clock: ManualClock, times: int) -> None:
    """Let another node fire what is due, and take it, each time that what is due is about to be read."""
    send, left = Transaction.send, [times]

    def meanwhile(self: Transaction, name: str, **values: Any) -> Any:
        if name == "due_jobs" and left[0]:
            left[0] -= 1
            monkeypatch.setattr(Transaction, "send", send)
            seen = other.look().jobs
            plans = tuple(plan(job, clock.now()) for job in seen)
            other.step("s2", Step(plans=plans, want=Want(limit=10, functions=["f"], lease=LEASE)))
            monkeypatch.setattr(Transaction, "send", meanwhile)
        return send(self, name, **values)

    monkeypatch.setattr(Transaction, "send", meanwhile)


def test_a_job_fired_during_a_look_is_seen_whole_or_not_at_all(two, monkeypatch):
    store, other, clock = two
    fire_between(monkeypatch, other, clock, 1)
    seen = store.look()
    if seen.jobs:  # a snapshot, of before
        assert seen.next_job is None
        assert not seen.holders
    else:
        assert seen.next_job == START + 2 * MINUTE
        assert [holder.id for holder in seen.holders] == ["s2"]


def test_a_look_that_never_sees_one_moment_is_repeated_at_once(two, monkeypatch):
    store, _, clock = two
    send, nothing = Transaction.send, SimpleNamespace(rows=[])
    gone = lambda self, name, **given: nothing if name == "due_jobs" else send(self, name, **given)  # noqa: E731
    monkeypatch.setattr(Transaction, "send", gone)
    seen = store.look()
    assert seen.jobs == ()
    assert seen.next_job == seen.now == clock.now()


def test_a_look_says_how_long_ago_the_clock_came(two, monkeypatch):
    """The clock comes with the first answer; another trip passes where jobs are due."""
    store, _, clock = two
    send = Transaction.send

    def far(self: Transaction, name: str, **values: Any) -> Any:
        if name == "due_jobs":
            clock.advance(0.04)
        return send(self, name, **values)

    monkeypatch.setattr(Transaction, "send", far)
    seen = store.look()
    assert seen.jobs
    assert (seen.now, seen.age) == (clock.now() - timedelta(seconds=0.04), pytest.approx(0.04))


def test_a_step_says_how_long_ago_the_clock_of_its_claims_came(two, monkeypatch):
    """The clock comes with the first answer; another trip or two pass until the session is locked."""
    store, _, clock = two
    seen = store.look()
    send = Transaction.send

    def far(self: Transaction, name: str, **values: Any) -> Any:
        if name == "lock_session":
            clock.advance(0.08)
        return send(self, name, **values)

    monkeypatch.setattr(Transaction, "send", far)
    plans = tuple(plan(job, clock.now()) for job in seen.jobs)
    step = Step(plans=plans, ends=(an_outcome(),), want=Want(limit=10, functions=["f"], lease=LEASE))
    done = store.step("s1", step)
    [claim] = done.claims
    assert (claim.claimed_at, done.age) == (clock.now() - timedelta(seconds=0.08), pytest.approx(0.08))


def an_outcome() -> End:
    """Return the end of a run that nobody knows: it has a step of one plan go the way of all others."""
    return an_end(id=999, token=1, session="s1", state=State.SUCCEEDED)
