"""Each safeguard of a run's transaction has a test of the suite that fails without it; and what is SQLite's own."""

import sqlite3
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, RootTransaction, create_engine, text
from sqlalchemy.pool import NullPool

from cronsensus.errors import StoreBusy, UnsupportedTransaction
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Item
from cronsensus.model.states import State
from cronsensus.stores.sql import completing, enqueue_in, lending, users_connection
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance.fixtures import LEASE, a_session
from cronsensus.testing.conformance.steps import take
from tests.stores.one_test import run_on_sqlite


def nothing(*_: Any, **__: Any) -> None: ...


@contextmanager
def nothing_around(*_: Any, **__: Any):
    yield


Patch = Callable[[pytest.MonkeyPatch], None]


def looks_nowhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(completing, "_require_current", nothing)


def looks_at_the_beginning_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(completing, "complete_run", nothing)


def commits_when_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lending, "_commits_refused", nothing_around)


def has_no_mark(patch: pytest.MonkeyPatch) -> None:
    execute = Connection.exec_driver_sql

    def without(self: Connection, statement: str, *more: Any) -> Any:
        if lending.MARK not in statement:
            return execute(self, statement, *more)
        return None

    patch.setattr(Connection, "exec_driver_sql", without)


def commits_what_is_not_complete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lending._LentTransaction, "completed", property(lambda self: True, nothing), raising=False)


def commits_whatever_the_block_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RootTransaction, "rollback", RootTransaction.commit)


def takes_each_statement_for_a_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(users_connection.OfSqlalchemy, "commits_each", lambda self: False)
    patch.setattr(users_connection._Sqlite, "commits_each", lambda self: False)


def takes_all_for_fresh(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueue_in, "_are_fresh", lambda jobs, answer: True)


def looks_for_no_key(patch: pytest.MonkeyPatch) -> None:
    by_job = enqueue_in._by_job
    patch.setattr(enqueue_in, "_by_job", lambda places: {} if len(places) == 1 else by_job(places))


SAFEGUARDS: list[tuple[Patch, str, tuple[str, ...]]] = [
    (looks_nowhere, "test_of_many_blocks_of_one_run_one_commits", ()),
    (looks_nowhere, "test_a_run_that_was_taken_over_gets_no_transaction", ()),
    (looks_nowhere, "test_in_a_users_transaction_a_run_that_was_taken_over_is_refused", ()),
    (looks_at_the_beginning_only, "test_effects_and_result_are_there_together", ()),
    (looks_at_the_beginning_only, "test_a_takeover_in_the_middle_wins_or_loses_as_a_whole", ()),
    (looks_at_the_beginning_only, "test_the_commit_of_a_user_decides_on_effects_and_result", ()),
    (commits_whatever_the_block_raised, "test_an_exception_undoes_both_and_the_run_goes_on", ()),
    (commits_when_told, "test_a_commit_inside_the_block_is_refused", ()),
    (has_no_mark, "test_a_transaction_that_is_ended_by_a_statement_records_no_result", ("COMMIT",)),
    (commits_what_is_not_complete, "test_a_transaction_without_complete_is_rolled_back", ()),
    (takes_each_statement_for_a_transaction, "test_a_connection_that_commits_each_statement_is_refused", ()),
    (takes_each_statement_for_a_transaction, "test_enqueuing_refuses_a_connection_that_commits_each_statement", ()),
    (
        takes_all_for_fresh,
        "test_a_job_that_was_defined_anew_gets_its_new_arguments_in_a_transaction",
        (),
    ),
    (looks_for_no_key, "test_a_known_key_makes_nothing_in_a_transaction_and_tells_what_stands_there", ()),
]


@pytest.mark.parametrize(("without", "test", "arguments"), SAFEGUARDS)
def test_without_its_safeguard_the_suite_rejects_the_store(tmp_path, monkeypatch, without: Patch, test, arguments):
    error = run_on_sqlite(tmp_path / "whole", test, *arguments)
    assert error is None, error
    with monkeypatch.context() as patch:
        without(patch)
        assert run_on_sqlite(tmp_path / "broken", test, *arguments) is not None


# --- SQLite's own -----------------------------------------------------------------------------------------------------


def running(store: SqliteStore) -> Claim:
    store.define_jobs([JobSpec(name="job", function="job")], release="r1")
    store.open_session(a_session("s1"), lease=LEASE)
    store.enqueue([Item(job="job")])
    [claim] = take(store, "s1", 1, ["job"], lease=LEASE)
    return claim


def test_open_block_keeps_other_writers_out(place, open_sqlite):
    store, other = open_sqlite(), SqliteStore(f"sqlite:///{place / 'jobs.db'}?busy_timeout=50ms")
    claim = running(store)
    with store.transaction(claim) as transaction:
        with pytest.raises(StoreBusy):
            other.renew("s1", lease=LEASE)
        assert [view.end for view in other.runs(claim.id)] == [None]
        transaction.complete()
    assert other.renew("s1", lease=LEASE).alive
    other.close()


def test_what_a_block_sets_on_its_connection_never_meets_a_verb(open_sqlite):
    store = open_sqlite()
    claim = running(store)
    with store.transaction(claim) as transaction:
        transaction.connection.execute(text("CREATE TEMP TABLE cronsensus_jobs (wrong)"))
        transaction.complete()
    assert store.occurrence(claim.id).state is State.SUCCEEDED
    assert [view.spec.name for view in store.jobs()] == ["job"]


def test_a_connection_to_another_file_is_refused(tmp_path, open_sqlite):
    store = open_sqlite()
    claim = running(store)
    elsewhere = SqliteStore(f"sqlite:///{tmp_path}/elsewhere.db")
    elsewhere.migrate()
    twin = running(elsewhere)
    elsewhere.close()
    assert twin.id == claim.id
    raw = sqlite3.connect(tmp_path / "elsewhere.db")
    session = "another session, as every one is"
    raw.execute("UPDATE cronsensus_occurrences SET session = ?, token = ?", [session, claim.token])
    with pytest.raises(Exception, match="no longer current"):
        store.complete_in(raw, claim)
    raw.rollback()
    raw.close()


@pytest.mark.parametrize("isolation_level", ["", "DEFERRED", "IMMEDIATE", None])
def test_a_connection_of_sqlite3_is_used_as_it_is_set(place, open_sqlite, isolation_level):
    store = open_sqlite()
    claim = running(store)
    raw = sqlite3.connect(place / "jobs.db", isolation_level=isolation_level)
    if isolation_level is None:
        with pytest.raises(UnsupportedTransaction, match="autocommit"):
            store.complete_in(raw, claim)
        raw.execute("BEGIN")
    store.complete_in(raw, claim, "1")
    assert raw.in_transaction
    assert store.occurrence(claim.id).state is State.RUNNING
    raw.execute("COMMIT")
    raw.close()
    assert store.occurrence(claim.id).state is State.SUCCEEDED


def test_a_database_without_the_tables_of_the_store_is_named_as_the_cause(tmp_path, open_sqlite):
    store = open_sqlite()
    claim = running(store)
    engine = create_engine(f"sqlite:///{tmp_path}/nothing.db", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE accounts (id INTEGER)"))
        with pytest.raises(UnsupportedTransaction, match="leads to a database without"):
            store.complete_in(connection, claim)
    engine.dispose()
