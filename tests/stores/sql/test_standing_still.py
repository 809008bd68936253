"""A node that stands still in the middle of a transaction, for as long as its server lets it: others do not wait.

It is played by hand: a handle's own transaction is begun, a verb is carried out in it, and it is left open while
another handle does its work. To the server the connection of a process that is stopped, or lost in the network, looks
like this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

import pytest
from sqlalchemy import NullPool, create_engine, make_url

from cronsensus.errors import LeaseLost, StoreBusy
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.states import State
from cronsensus.model.step import Step
from cronsensus.stores import open_store
from cronsensus.stores.sql import blocked_takeovers, claiming, sessions, stepping
from cronsensus.stores.sql import sql_handle as trying
from cronsensus.stores.sql.mysql import mysql_driver
from cronsensus.stores.sql.postgres import postgres_driver
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.testing.conformance.steps import an_end, give_back, take, win_named
from cronsensus.timing.clock import ManualClock

LEASE = timedelta(seconds=60)
BRIEF = timedelta(seconds=1)
"""A lease that a verb waits longer than, and that no server ends a transaction for."""
PROMPT = 2.0
"""Seconds. A wait for a lock would last for five."""
OVERLAPS: tuple[Literal["allow", "skip"], ...] = ("allow", "skip")
WAITED = 0.3
"""Seconds that a verb waits for a row here: much longer than it takes otherwise."""


@pytest.fixture(params=["postgres", "mysql"])
def handles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SqlStore, SqlStore]]:
    """Return two handles on a store with a job: that of a node that will stand still, and that of another."""
    url = request.getfixturevalue(f"{request.param}_url")
    # What stands still here is to be waited for, however busy the machine is; other tests have it ended by the server.
    monkeypatch.setattr({"postgres": postgres_driver, "mysql": mysql_driver}[request.param], "VERB_IDLE_SECONDS", 60.0)
    store = open_store(url)
    assert isinstance(store, SqlStore)
    store.migrate()
    store.define_jobs([JobSpec(name="job", function="job", trigger=None)], release="r1")
    store.enqueue([Item(job="job", key=str(number)) for number in range(3)])
    other = open_store(url)
    assert isinstance(other, SqlStore)
    for name in ("still", "other"):
        store.open_session(a_session(name), lease=LEASE)
    yield store, other
    store.close()
    other.close()


def one_claim(store: SqlStore, session: str) -> Claim:
    [claim] = take(store, session, 1, ("job",), lease=LEASE)
    return claim


def promptly(verb: Callable[[], object]) -> object:
    """Do it, and fail if it had to wait; the one that it waits for goes on only after that."""
    with ThreadPoolExecutor(1) as pool:
        done = threading.Event()
        future = pool.submit(verb)
        future.add_done_callback(lambda _: done.set())
        if not done.wait(PROMPT):
            pytest.fail("it waits for the node that stands still")
        return future.result()


def test_session_that_stands_still_while_it_renews_is_not_waited_for(handles: tuple[SqlStore, SqlStore]) -> None:
    still, other = handles
    claim = one_claim(still, "still")
    with still._write_transaction() as tx:
        sessions.renew_session(tx, "still", LEASE, LEASE)
        assert promptly(lambda: other.reclaim(["still"])) == []
        assert promptly(lambda: len(take(other, "other", 1, ("job",), lease=LEASE))) == 1
    [taken] = other.reclaim(["still"])
    assert taken.id == claim.id


def test_session_that_stands_still_while_it_finishes_is_not_waited_for(handles: tuple[SqlStore, SqlStore]) -> None:
    still, other = handles
    first, second = one_claim(still, "still"), one_claim(still, "still")
    with still._write_transaction() as tx:
        ended = an_end(id=first.id, token=first.token, state=State.SUCCEEDED)
        stepping.take_step(tx, "still", Step(ends=(ended,)))
        # It holds two, and one of them cannot be judged now: neither is taken, and the session lives on.
        assert promptly(lambda: other.reclaim(["still"])) == []
        assert {one.id for one in other.sessions()} == {"still", "other"}
    [taken] = other.reclaim(["still"])
    assert taken.id == second.id


# --- a transaction of the user's own ----------------------------------------------------------------------------------


@contextmanager
def completed_in_a_transaction_of_the_user(still: SqlStore, claim: Claim) -> Iterator[None]:
    """Complete a run on a connection of the user's own, and neither commit nor roll back until the block ends."""
    url = make_url(still._url_and_clock[0])
    driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}[url.get_backend_name()]
    engine = create_engine(url.set(drivername=driver).difference_update_query(["schema"]), poolclass=NullPool)
    with engine.connect() as connection, connection.begin() as transaction:
        still.complete_in(connection, claim)
        yield
        assert transaction.is_active
        transaction.rollback()
    engine.dispose()


def test_a_run_that_an_open_transaction_of_the_user_completed_keeps_no_other_work_waiting(
    handles: tuple[SqlStore, SqlStore],
) -> None:
    still, other = handles
    claim = one_claim(still, "still")
    with completed_in_a_transaction_of_the_user(still, claim):
        assert promptly(lambda: other.look().backlog)
        assert promptly(lambda: other.renew("still", lease=LEASE).alive)
        assert promptly(lambda: len(take(other, "other", 1, ("job",), lease=LEASE))) == 1
        assert promptly(lambda: other.define_jobs([JobSpec(name="new", function="job")], release="r1").created) == (
            "new",
        )
        assert promptly(other.prune) == 0
        assert promptly(lambda: other.reclaim(["still"])) == []
        assert {one.id for one in other.sessions()} == {"still", "other"}
    [taken] = other.reclaim(["still"])
    assert taken.id == claim.id


def test_a_run_that_cannot_be_taken_over_is_told_of_after_half_a_minute_and_every_ten(
    handles: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    still, other = handles
    clock = ManualClock()
    monkeypatch.setattr(blocked_takeovers, "_CLOCK", clock)
    claim = one_claim(still, "still")
    told = f"run {claim.id} of it cannot be taken over: a transaction that is still open"

    def looks(seconds: int) -> int:
        """Look every ten seconds for so long; return how often it was told by then."""
        for _ in range(0, seconds, 10):
            assert other.reclaim(["still"]) == []
            clock.advance(10)
        return caplog.text.count(told)

    with completed_in_a_transaction_of_the_user(still, claim):
        assert looks(30) == 0
        assert looks(10) == 1
        assert [one.levelname for one in caplog.records if told in one.getMessage()] == ["WARNING"]
        assert looks(590) == 1
        assert looks(10) == 2
    assert [one.id for one in other.reclaim(["still"])] == [claim.id]


def test_a_cancellation_gives_up_on_a_run_that_an_open_transaction_of_the_user_holds(
    handles: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "LONGEST_TRYING", 0.5)
    still, _ = handles
    url, _ = still._url_and_clock
    claim = one_claim(still, "still")
    hasty = open_store(f"{url}{'&' if '?' in url else '?'}timeout=2s")
    try:
        with (
            completed_in_a_transaction_of_the_user(still, claim),
            pytest.raises(StoreBusy, match=r"another transaction held a lock for longer than 1 s; see who.*timeout="),
        ):
            hasty.cancel(claim.id, by="ann", why="")
        assert hasty.cancel(claim.id, by="ann", why="")
    finally:
        hasty.close()


# --- those that wait --------------------------------------------------------------------------------------------------


@contextmanager
def held_up(still: SqlStore, session: str) -> Iterator[None]:
    """Keep a session's row locked meanwhile, as whoever looks whether it lives does for a moment."""
    with still._write_transaction() as tx:
        assert tx.send("lock_session", session=session, space=tx.namespace).rows
        yield


def test_a_renewal_that_waited_for_its_row_succeeds_while_the_lease_lasts(handles: tuple[SqlStore, SqlStore]) -> None:
    still, other = handles
    with ThreadPoolExecutor(1) as pool:
        with held_up(still, "other"):
            renewal = pool.submit(lambda: other.renew("other", lease=LEASE))
            assert not wait([renewal], WAITED).done, "it did not wait"
        assert renewal.result().alive


@pytest.mark.parametrize("verb", ["renew", "open_session", "claim", "acquire", "lock"])
def test_a_verb_that_waited_for_its_session_until_the_lease_ran_out_finds_it_dead(
    handles: tuple[SqlStore, SqlStore], verb: str
) -> None:
    still, other = handles
    brief = a_session("brief")
    verbs: dict[str, Callable[[], object]] = {
        "renew": lambda: other.renew("brief", lease=LEASE).alive or None,
        "open_session": lambda: other.open_session(brief, lease=LEASE),
        "claim": lambda: take(other, "brief", 1, ("job",), lease=LEASE),
        "acquire": lambda: win_named(other, "brief", "job", key="new", lease=LEASE),
        "lock": lambda: SqlStore._lock(other, "lock", "holder", ttl=LEASE, session="brief", limit=1),
    }

    def outcome() -> object:
        try:
            return verbs[verb]()
        except LeaseLost:
            return None

    other.open_session(brief, lease=BRIEF)
    with ThreadPoolExecutor(1) as pool:
        with held_up(still, "brief"):
            asked = pool.submit(outcome)
            assert not wait([asked], 1.2 * BRIEF.total_seconds()).done, "it did not wait"
        assert asked.result() is None


def test_an_attempt_never_bears_an_earlier_time_than_the_end_of_the_one_before(
    handles: tuple[SqlStore, SqlStore],
) -> None:
    still, other = handles
    claim = one_claim(other, "other")
    with still._write_transaction() as tx:  # its clock was read; then it was slow
        [given_back] = give_back(other, [claim])
        assert given_back
        taken = claiming.claim_entries(tx, claiming.ask_for_work(tx, "still", 3, ("job",), LEASE))
        assert taken is not None
    first, second = sorted(other.runs(claim.id), key=lambda run: run.token)
    assert first.finished_at is not None
    assert first.finished_at <= second.started_at


def test_a_run_that_goes_back_while_overlap_is_switched_on_is_switched_too(handles: tuple[SqlStore, SqlStore]) -> None:
    """It is neither pending before, nor running after: two statements for the two states would both miss it."""
    still, other = handles
    policies = {
        name: JobSpec(name="tick", function="job", policies=Policies.read({"overlap": name})) for name in OVERLAPS
    }
    other.define_jobs([policies["allow"]], release="r1")
    other.trigger("tick", by="ann")
    claims = {one.job: one for one in take(still, "still", 9, ("job",), lease=LEASE)}
    failed = an_end(id=claims["tick"].id, token=claims["tick"].token, state=State.PENDING, retry_in=timedelta(0))
    with ThreadPoolExecutor(1) as pool:
        with still._write_transaction() as tx:
            stepping.take_step(tx, "still", Step(ends=(failed,)))
            switched = pool.submit(lambda: other.define_jobs([policies["skip"]], release="r1"))
            assert not wait([switched], WAITED).done, "it did not wait"
        assert switched.result().changed == ("tick",)
    other.trigger("tick", by="ann")
    assert [one.job for one in take(other, "other", 9, ("job",), lease=LEASE)].count("tick") == 1
