"""What another node commits while a verb waits for a row is what the verb decides by.

SQLite has one writer at a time, so there the wait is played: what the other node did is done as soon as the statement
is sent that waits for it on a server. ``test_standing_still.py`` has real waits on real servers.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from cronsensus.errors import LeaseLost, StoreUnavailable
from cronsensus.model.job import JobSpec, Policies
from cronsensus.model.occurrence import Claim, Item, LogLine, Note
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.planning import plan
from cronsensus.stores.sql import finishing, sql_locks
from cronsensus.stores.sql.schema import locks as lock_rows
from cronsensus.stores.sql.schema import sessions as session_rows
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.sqlite.sqlite_dialect import SqliteDialect
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.testing.conformance.fixtures import LEASE, START, a_session
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, say, settle, take, win_named
from cronsensus.timing.clock import ManualClock
from cronsensus.triggers import every

HOUR = timedelta(hours=1)
LEASE_ENDS = LEASE // timedelta(microseconds=1)
Act = Callable[[SqliteStore], object]


@pytest.fixture
def store(open_sqlite: Callable[..., SqliteStore], clock: ManualClock) -> SqliteStore:
    store = open_sqlite(clock=clock)
    store.define_jobs(
        [
            JobSpec(name="job", function="job"),
            JobSpec(name="limited", function="limited", policies=Policies(concurrency=1)),
        ],
        release="r1",
    )
    store.open_session(a_session("s1"), lease=LEASE)
    return store


@contextmanager
def when_asked(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[Transaction, Sequence[Any]], Sequence[Any]]
) -> Iterator[list[str]]:
    """Let ``act`` make the rows of a statement of that name, once it was sent; give the names of all that are sent."""
    sent: list[str] = []
    send = Transaction.send

    def sending(tx: Transaction, one: str, **values: Any) -> Pending:
        sent.append(one)
        pending = send(tx, one, **values)
        if one == name:
            pending.receive_answer(act(tx, pending.rows), pending.count)
        return pending

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "send", sending)
        yield sent


def a_claim(store: SqliteStore, job: str = "job") -> Claim:
    store.enqueue([Item(job=job)])
    (claim,) = take(store, "s1", 1, [job], lease=LEASE)
    return claim


# --- the lease ran out while its row was waited for -------------------------------------------------------------------


def claims(store: SqliteStore) -> object:
    return take(store, "s1", 1, ["job"], lease=LEASE)


@pytest.mark.parametrize("left", [1, 0])
@pytest.mark.parametrize(
    "act",
    [
        claims,
        lambda store: win_named(store, "s1", "job", key="key", lease=LEASE),
        lambda store: store.lock("lock", "me", ttl=LEASE, session="s1"),
        # Another lease than the first time: one that ends in the same microsecond was begun in this transaction.
        lambda store: store.open_session(a_session("s1"), lease=HOUR),
    ],
    ids=["claim", "acquire", "lock", "open"],
)
def test_a_lease_that_ran_out_while_its_row_was_waited_for_has_run_out(
    act: Act, left: int, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue([Item(job="job")])
    now = SqliteDialect.clock_value
    # A claim asks twice: before it chooses, and when it has the session's row.
    late = itertools.count(-1 if act.__name__ == "claims" else 0)

    def moment(dialect: SqliteDialect, connection: Any) -> int:
        return int(now(dialect, connection)) + (LEASE_ENDS - left if next(late) >= 0 else 0)

    monkeypatch.setattr(SqliteDialect, "clock_value", moment)
    if left:
        act(store)
    else:
        with pytest.raises(LeaseLost):
            act(store)
        assert store.counts().pending == 1


def test_a_renewal_that_came_too_late_by_the_time_it_had_its_row_renews_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        later = SqliteDialect.clock_value
        patch.setattr(SqliteDialect, "clock_value", lambda *given: later(*given) + LEASE_ENDS)
        assert not store.renew("s1", lease=HOUR).alive
    assert store.sessions()[0].expires_in == LEASE


def test_a_step_whose_session_ends_while_it_looks_for_work_records_its_results_alone(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = a_claim(store)
    store.define_jobs([JobSpec(name="hourly", function="f", trigger=every("1h", start=START))], release="r1")
    store.renew("s1", lease=2 * HOUR)
    store.enqueue([Item(job="job")])
    clock.advance(HOUR)
    made = tuple(plan(job, store.now()) for job in store.look().jobs)
    outcome = an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)
    step = Step(ends=(outcome,), plans=made, want=Want(limit=1, functions=["job"], lease=LEASE))

    def ends(tx: Transaction, found: Sequence[Any]) -> Sequence[Any]:
        store._sqlalchemy_view(tx.connection).execute(update(session_rows).values(ended_at=tx.now))
        return found

    with when_asked(monkeypatch, "lock_session", ends):
        done = store.step("s1", step)
    assert (done.lost, done.carried_out, done.claims) == (True, (False,), ())
    assert [settled.accepted for settled in done.settled] == [True]
    assert [job.watermark for job in store.look().jobs] == [one.watermark_seen for one in made]
    assert (store.counts().running, store.counts().pending) == (0, 1)


# --- the other one renewed, or is about to ----------------------------------------------------------------------------


def test_a_lock_whose_session_renewed_its_lease_in_this_moment_is_not_taken(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.lock("lock", "me", ttl=HOUR, session="s1")
    clock.advance(LEASE)

    def renews(tx: Transaction, found: Any) -> Any:
        store._sqlalchemy_view(tx.connection).execute(
            update(session_rows).values(lease_until=tx.lease_now + LEASE_ENDS)
        )
        return found

    with when_asked(monkeypatch, "lock_session", renews):
        assert store.lock("lock", "you", ttl=HOUR) is None
    assert [one.holder for one in store.locks()] == ["me"]


def test_a_run_whose_session_is_about_to_renew_takes_room_still(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_claim(store, "limited")
    clock.advance(LEASE)
    store.enqueue([Item(job="limited")])
    store.open_session(a_session("s2"), lease=LEASE)
    with when_asked(monkeypatch, "lock_overdue_sessions", lambda *_: []):
        assert take(store, "s2", 1, ["limited"], lease=LEASE) == []
    assert len(take(store, "s2", 1, ["limited"], lease=LEASE)) == 1


# --- rows that somebody else has locked -------------------------------------------------------------------------------


def test_a_dead_session_whose_row_is_not_at_hand_is_left_for_the_next_look(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = a_claim(store)
    clock.advance(LEASE)
    with when_asked(monkeypatch, "try_lock_session", lambda *_: []):
        assert store.reclaim() == []
    with when_asked(monkeypatch, "try_lock_runs", lambda *_: []):
        assert store.reclaim() == []
        assert store.reclaim(["s1"]) == []
    assert [one.id for one in store.reclaim()] == [claim.id]


def test_limited_job_that_another_session_has_locked_is_left_out(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.define_jobs(
        [
            JobSpec(name="first", function="f", policies=Policies(concurrency=2, priority=9)),
            JobSpec(name="second", function="f", policies=Policies(concurrency=2)),
        ],
        release="r1",
    )
    store.enqueue([Item(job="first"), Item(job="second")])
    with when_asked(monkeypatch, "lock_more_limited", lambda *_: []) as sent:
        assert [one.job for one in take(store, "s1", 2, ["f"], lease=LEASE)] == ["first"]
    assert [one for one in sent if "limited" in one] == ["lock_limited", "lock_more_limited"]
    assert [one.job for one in take(store, "s1", 2, ["f"], lease=LEASE)] == ["second"]


# --- a lock that another took since the look --------------------------------------------------------------------------


def places(store: SqliteStore) -> list[int]:
    with store._read_transaction() as tx:
        found = store._sqlalchemy_view(tx.connection).execute(select(lock_rows.c.place).order_by(lock_rows.c.place))
        return [row.place for row in found]


def test_a_lock_that_became_full_since_the_look_is_not_taken(store: SqliteStore) -> None:
    wanted = sql_locks.PlaceRequest(name="lock", holder="you", ttl=HOUR, session=None, limit=2)
    assert store.lock("lock", "me", ttl=HOUR, limit=2)
    with store._write_transaction() as tx:
        assert sql_locks.take_lock(tx, wanted) is not None
        assert sql_locks.take_lock(tx, wanted) is None
        assert sql_locks.take_lock(tx, replace(wanted, limit=3)) is None
    assert places(store) == [0, 1]


def test_a_refused_lock_leaves_no_place_behind(store: SqliteStore) -> None:
    first, second = (store.lock("lock", "me", ttl=HOUR, limit=2) for _ in range(2))
    assert first
    assert second
    assert store.unlock(first)
    with store._write_transaction() as tx:
        assert (
            sql_locks.take_lock(tx, sql_locks.PlaceRequest(name="lock", holder="you", ttl=HOUR, session=None, limit=1))
            is None
        )
    assert places(store) == [1]


# --- a write that finds fewer rows than were locked -------------------------------------------------------------------


def test_a_write_that_finds_less_than_was_locked_is_undone(store: SqliteStore, clock: ManualClock) -> None:
    claim = a_claim(store)
    store.define_jobs([JobSpec(name="hourly", function="f", trigger=every("1h", start=START))], release="r1")
    store.enqueue([Item(job="job")])
    clock.advance(HOUR)
    store.open_session(a_session("s2"), lease=LEASE)
    before = store.occurrence(claim.id), store.runs(claim.id)
    made = [plan(job, store.now()) for job in store.look().jobs]
    outcome = an_end(id=claim.id, token=claim.token, state=State.SUCCEEDED)
    acts: list[Act] = [
        lambda store: settle(store, [outcome]),
        lambda store: give_back(store, [claim]),
        lambda store: take(store, "s2", 1, ["job"], lease=LEASE),
        lambda store: carry_out(store, made, "s2"),
    ]
    many = SqliteDialect.run_many
    for act in acts:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteDialect, "run_many", lambda *given: many(*given) - 1)
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                act(store)
        assert (store.occurrence(claim.id), store.runs(claim.id)) == before
    assert store.counts().pending == 1
    assert [job.watermark for job in store.look().jobs] == [job.watermark_seen for job in made]


# --- who begins while jobs are defined --------------------------------------------------------------------------------


def test_opening_a_node_session_waits_for_definitions_and_a_guest_session_does_not(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session, waits in ((a_session("s2"), True), (a_session("s3", is_node=False), False)):
        with when_asked(monkeypatch, "", lambda _, found: found) as sent:
            store.open_session(session, lease=LEASE)
        assert ("lock_oldest_release" in sent) == waits


# --- a look from before another's commit ------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "first"), [(0, 2), (1, 2), (5, 6)])
def test_lines_follow_those_that_are_seen_and_those_that_are_known_otherwise(
    after: int, first: int, store: SqliteStore
) -> None:
    claim = a_claim(store)
    line = LogLine(START, "INFO", "a line")
    say(store, [Note(claim.id, claim.token, lines=(line,))])
    notes = [Note(claim.id, claim.token, lines=(line, line))]
    with store._write_transaction() as tx:
        locked = finishing.LockedRuns(tx, [claim.id], notes=notes)
        assert finishing.keep_notes(tx, notes, locked.read_rows(), locked.last_lines(), after=after) == [True]
    with store._write_transaction() as tx:
        assert finishing.last_line(tx, claim.id) == first + 1
