"""Sessions and what is taken over from them: what else a row may hold, and what must not depend on it."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import delete, insert, update
from sqlalchemy.sql.base import Executable

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.states import State
from cronsensus.model.step import Step, Want
from cronsensus.stores.sql import sessions
from cronsensus.stores.sql.schema import counters, jobs, occurrences, runs
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import LARGEST_COUNT
from cronsensus.testing.conformance.fixtures import LEASE, START, a_session
from cronsensus.testing.conformance.steps import an_end, give_back, settle, take
from cronsensus.timing.clock import ManualClock

HOUR = timedelta(hours=1)


@pytest.fixture
def store(open_sqlite: Callable[..., SqliteStore], clock: ManualClock) -> SqliteStore:
    store = open_sqlite(clock=clock)
    store.define_jobs([JobSpec(name=name, function="f") for name in ("job", "other")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    return store


def by_hand(store: SqliteStore, *statements: Executable) -> None:
    """Write into the store what no verb writes."""
    with store._write_transaction() as tx:
        for statement in statements:
            store._sqlalchemy_view(tx.connection).execute(statement)


def two_claims(store: SqliteStore) -> tuple[Claim, Claim]:
    """Let the session hold a run of each job."""
    store.enqueue([Item(job="job"), Item(job="other")])
    first, second = take(store, "s1", 2, ["f"], lease=LEASE)
    return first, second


def stands(store: SqliteStore, claim: Claim) -> tuple[State, int]:
    found = store.occurrence(claim.id)
    assert found is not None
    return found.state, found.crashes


def told(store: SqliteStore) -> list[str]:
    return [text.partition(":")[0] for text in store.unreadable]


# --- renewing ---------------------------------------------------------------------------------------------------------


def test_a_store_without_an_identity_is_not_called_by_a_name(store: SqliteStore) -> None:
    by_hand(store, delete(counters).where(counters.c.name == "identity"))
    assert store.identity() is None
    for session, alive in (("s1", True), ("never opened", False)):
        renewal = store.renew(session, lease=LEASE)
        assert (renewal.alive, renewal.store) == (alive, "")


# --- ending -----------------------------------------------------------------------------------------------------------


def test_a_session_that_lives_and_is_not_presumed_dead_is_not_ended(store: SqliteStore) -> None:
    with store._write_transaction() as tx:
        assert sessions.reclaim_session(tx, "s1", presumed=False) == []
    assert store.renew("s1", lease=LEASE).alive


def test_runs_locked_by_another_transaction_are_reported(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, locked = two_claims(store)
    clock.advance(LEASE)
    held_up: list[tuple[str, Sequence[int]]] = []
    send = Transaction.send

    def without_one(tx: Transaction, name: str, **values: Any) -> Pending:
        sent = send(tx, name, **values)
        if name == "try_lock_runs":
            sent.receive_answer([row for row in sent.rows if row.id != locked.id], 1)
        return sent

    monkeypatch.setattr(Transaction, "send", without_one)
    with store._write_transaction() as tx:
        assert sessions.reclaim_session(tx, "s1", presumed=False, on_blocked=lambda *one: held_up.append(one)) == []
    assert held_up == [("s1", [locked.id])]
    assert stands(store, locked) == (State.RUNNING, 0)


# --- what becomes of a run --------------------------------------------------------------------------------------------


def test_a_run_whose_definition_cannot_be_read_is_failed_and_told_and_those_beside_it_go_back(
    store: SqliteStore, clock: ManualClock
) -> None:
    bad, good = two_claims(store)
    by_hand(store, update(jobs).where(jobs.c.name == "job").values(spec="{"))
    store._definitions.specs._kept.clear()
    clock.advance(LEASE)
    taken = store.reclaim()
    assert [(one.job, one.became) for one in taken] == [("job", State.FAILED), ("other", State.PENDING)]
    assert (stands(store, bad), stands(store, good)) == ((State.FAILED, 1), (State.PENDING, 1))
    assert told(store) == ["job 1 whose run was cut off"]


def test_a_run_whose_job_is_gone_is_failed_under_the_number_of_the_job(store: SqliteStore, clock: ManualClock) -> None:
    two_claims(store)
    by_hand(store, delete(jobs).where(jobs.c.name == "job"))
    clock.advance(LEASE)
    assert [(one.job, one.became) for one in store.reclaim()] == [("job 1", State.FAILED), ("other", State.PENDING)]


def test_crashes_are_counted_as_far_as_a_column_counts(store: SqliteStore, clock: ManualClock) -> None:
    claim, other = two_claims(store)
    by_hand(store, update(occurrences).where(occurrences.c.id == claim.id).values(crashes=LARGEST_COUNT))
    clock.advance(LEASE)
    store.reclaim()
    assert (stands(store, claim), stands(store, other)) == ((State.FAILED, LARGEST_COUNT), (State.PENDING, 1))


def test_a_run_that_the_database_refuses_to_take_back_stays_and_those_beside_it_are_taken_back(
    store: SqliteStore, clock: ManualClock
) -> None:
    refused, other = two_claims(store)
    clash = {"token": refused.token, "occurrence_id": 99, "attempt": 1, "session": "s0"}
    by_hand(store, insert(runs).values(**clash, started_at=1, finished_at=2, end="failed"))
    clock.advance(LEASE)
    assert [one.id for one in store.reclaim()] == [other.id]
    assert (stands(store, refused), stands(store, other)) == ((State.RUNNING, 0), (State.PENDING, 1))
    assert [run.end for run in store.runs(other.id)] == ["crashed"]
    assert told(store) == [f"run {refused.id} that was cut off is left out"]


def test_result_that_the_database_refuses_undoes_no_other_part_of_its_step(store: SqliteStore) -> None:
    refused, other = two_claims(store)
    clash = {"token": refused.token, "occurrence_id": 99, "attempt": 1, "session": "s0"}
    by_hand(store, insert(runs).values(**clash, started_at=1, finished_at=2, end="failed"))
    store.enqueue([Item(job="job")])
    ends = [an_end(id=one.id, token=one.token, session="s1", state=State.SUCCEEDED) for one in (refused, other)]
    done = store.step("s1", Step(ends=tuple(ends), want=Want(limit=1, functions=("f",), lease=LEASE)))
    assert [one.accepted for one in done.settled] == [False, True]
    assert len(done.claims) == 1
    assert (stands(store, refused)[0], stands(store, other)[0]) == (State.RUNNING, State.SUCCEEDED)
    assert told(store) == [f"the end of run {refused.id} cannot be recorded"]


@pytest.mark.parametrize(("began", "told"), [(5, 5), (0, 0), (None, 9)])
def test_an_attempt_of_which_it_is_not_known_when_it_began_began_when_it_ended(began: int | None, told: int) -> None:
    row: Any = SimpleNamespace(reserved=None, token=7, id=1, attempt=2, session="s1", node="n", started_at=began)
    assert sessions.attempt_row(row, 9, "failed", "why", "{}") == (7, 1, 2, "s1", "n", told, 9, "failed", "why", "{}")


# --- giving up --------------------------------------------------------------------------------------------------------


def test_claims_that_are_given_up_in_one_step_are_answered_each_for_itself(store: SqliteStore) -> None:
    ended, running = two_claims(store)
    assert settle(store, [an_end(id=ended.id, token=ended.token, state=State.SUCCEEDED)])[0].accepted
    of_nothing = structs.replace(running, id=987_654)
    old = structs.replace(running, token=running.token - 1)
    of_another = structs.replace(running, session="s2")
    with store._write_transaction() as tx:
        answers = sessions.cut_off_claims(tx, [ended, of_nothing, old, of_another, running, running], "stopped")
    assert answers == [None, None, None, None, State.PENDING, None]
    assert (stands(store, ended), stands(store, running)) == ((State.SUCCEEDED, 0), (State.PENDING, 0))


def test_a_claim_that_is_not_current_is_not_given_up_for_the_one_that_is(store: SqliteStore) -> None:
    _, running = two_claims(store)
    with store._write_transaction() as tx:
        assert sessions.cut_off_claims(tx, [structs.replace(running, token=running.token - 1)], "crashed") == [None]
    assert stands(store, running) == (State.RUNNING, 0)


def test_a_run_that_cannot_be_read_is_not_given_up(store: SqliteStore) -> None:
    bad, good = two_claims(store)
    by_hand(store, update(occurrences).where(occurrences.c.id == bad.id).values(crashes="many"))
    assert give_back(store, [bad, good], cut="stopped") == [False, True]
    assert stands(store, good) == (State.PENDING, 0)
    assert told(store) == [f"run {bad.id} that was cut off is left out"]


# --- beginning --------------------------------------------------------------------------------------------------------


def test_a_session_that_is_opened_again_has_its_whole_lease_again(store: SqliteStore, clock: ManualClock) -> None:
    clock.advance(LEASE / 2)
    assert store.open_session(a_session("s1"), lease=HOUR) == START + LEASE / 2
    assert [one.expires_in for one in store.sessions()] == [HOUR]


# --- a part of a transaction ------------------------------------------------------------------------------------------


def test_a_savepoint_undoes_its_own_part_alone(store: SqliteStore) -> None:
    name = "INSERT INTO cronsensus_counters VALUES ('{}', {})"
    with store._write_transaction() as tx:
        tx.connection.execute_text(name.format("before", 1))
        with pytest.raises(sqlite3.IntegrityError), tx.savepoint():  # noqa: PT012
            tx.connection.execute_text(name.format("undone", 1))
            tx.connection.execute_text(name.format("refused", "NULL"))
        with tx.savepoint():
            tx.connection.execute_text(name.format("after", 1))
    with store._read_transaction() as tx:
        found = tx.connection.execute_text("SELECT name FROM cronsensus_counters").fetchall()
    assert {row[0] for row in found} & {"before", "undone", "after"} == {"before", "after"}


def test_error_that_ended_the_whole_transaction_within_a_savepoint_is_the_one_that_is_raised(
    store: SqliteStore,
) -> None:
    """As MySQL does after a deadlock: the verb is done again because of that error, and of no other."""
    with pytest.raises(KeyError, match="deadlock"), store._write_transaction() as tx, tx.savepoint():  # noqa: PT012
        tx.connection.execute_text("ROLLBACK")
        raise KeyError("deadlock")
