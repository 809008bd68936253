"""Effects that commit together with the result (G5): all of both, or nothing of either, and never twice."""

# ruff: noqa: D102, PT012, S101, S608, SIM300 - the name of a test is its sentence; a block is what is tested; expected
# == actual; table names are ours

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from cronsensus.errors import LeaseLost, UnsupportedTransaction
from cronsensus.model.occurrence import Claim, LogLine, Note
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import EFFECTS, LEASE, START, THREADS, StoreTest
from cronsensus.testing.conformance.steps import give_back, say

A_MOMENT = 0.3
"""Seconds for another handle to act while a transaction is open; it may have to wait for the end of that."""


class Transacting(StoreTest):
    """Hazards of a shared transaction: a takeover in the middle, a second block, an end that comes too early.

    A store that says ``transactional_finish=False`` refuses in every one of these tests.
    """

    # --- the scene --------------------------------------------------------------------------------------------------

    def begun(self, **policies: Any) -> Claim:
        """Return the claim of one running occurrence of session ``s1``."""
        if self.store.capabilities.transactional_finish:
            assert self.mine
        self.queue(**policies)
        self.session()
        self.enqueue()
        return self.take()

    def refused(self) -> bool:
        """Whether the store says that it has no transactions; then each use of one has to raise."""
        if self.store.capabilities.transactional_finish:
            return False
        claim = self.begun()
        with pytest.raises(UnsupportedTransaction, match="G5"), self.store.transaction(claim):
            pass
        with pytest.raises(UnsupportedTransaction, match="G5"):
            self.store.complete_in(object(), claim)
        assert State.RUNNING is self.look(claim).state
        return True

    def meanwhile(self, act: Callable[[Store], object]) -> Callable[[], None]:
        """Let another thread ``act`` while a transaction is open, and go on soon; return what waits for its end."""
        other, done = self.sibling(), threading.Event()

        def run() -> None:
            act(other)
            done.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        done.wait(A_MOMENT)

        def ended() -> None:
            thread.join(60)
            assert done.is_set(), "the other thread hangs, or failed"

        return ended

    # --- together ---------------------------------------------------------------------------------------------------

    def test_effects_and_result_are_there_together(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.complete('{"a": "ü🧨"}')
        found, run = self.look(claim), self.runs(claim)[0]
        assert (State.SUCCEEDED, '{"a": "ü🧨"}', None) == (found.state, found.result, found.error)
        assert ("succeeded", claim.token, self.store.now()) == (run.end, run.token, run.finished_at)
        assert 1 == self.count()

    def test_a_table_that_is_declared_to_sqlalchemy_is_found_where_the_user_has_it(self) -> None:
        if self.refused():
            return
        from sqlalchemy import Column, MetaData, String, Table, insert

        effects = Table(EFFECTS, MetaData(), Column("test", String(40)), Column("word", String(40)))
        claim = self.begun()
        with self.store.transaction(claim) as transaction:
            transaction.connection.execute(insert(effects).values(test=self.mine, word="one"))
            transaction.complete()
        assert 1 == self.count()

    def test_an_exception_undoes_both_and_the_run_goes_on(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with pytest.raises(KeyError, match="the user's own"), self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.complete("1")
            raise KeyError("the user's own")
        assert (State.RUNNING, None) == (self.look(claim).state, self.look(claim).result)
        assert 0 == self.count()
        assert self.finish(claim, result="2").accepted

    def test_a_transaction_without_complete_is_rolled_back(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
        assert State.RUNNING is self.look(claim).state
        assert 0 == self.count()

    def test_after_a_rollback_the_run_may_begin_another(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        for completes in (False, True):
            with self.store.transaction(claim) as transaction:
                self.effect(transaction.connection)
                if completes:
                    transaction.complete()
        assert State.SUCCEEDED is self.look(claim).state
        assert 1 == self.count()

    def test_the_last_notes_of_a_run_commit_with_its_effects(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        note = Note(claim.id, claim.token, (3, 4), (LogLine(START, "info", "in the block"),))
        with suppress(ZeroDivisionError), self.store.transaction(claim) as transaction:
            transaction.complete(None, [note])
            raise ZeroDivisionError
        assert [] == self.store.logs(claim.id)
        with self.store.transaction(claim) as transaction:
            transaction.complete(None, [note])
        assert ["in the block"] == [line.text for _, _, line in self.store.logs(claim.id)]
        assert (3, 4) == self.look(claim).progress

    # --- the first answer stands ------------------------------------------------------------------------------------

    def test_a_later_outcome_is_answered_with_succeeded(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with self.store.transaction(claim) as transaction:
            transaction.complete("1")
        before = self.snapshot()
        for state in (State.FAILED, State.PENDING, State.CANCELLED, State.SUCCEEDED):
            answer = self.finish(claim, state, result="2")
            assert (True, State.SUCCEEDED) == (answer.accepted, answer.state)
        assert [False] == give_back(self.store, [claim])
        self.lease_out()
        assert [] == self.store.reclaim()
        assert before[2] == self.snapshot()[2]

    def test_a_run_that_has_ended_gets_no_transaction(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        self.finish(claim)
        with pytest.raises(LeaseLost, match="succeeded"), self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
        assert 0 == self.count()

    def test_of_many_blocks_of_one_run_one_commits(self) -> None:
        if self.refused():
            return
        claim = self.begun()

        def block(store: Store, number: int) -> bool:
            with suppress(LeaseLost), store.transaction(claim) as transaction:
                self.effect(transaction.connection, str(number))
                transaction.complete(str(number))
                return True
            return False

        won = self.race(block)
        assert [True] == [one for one in won if one]
        assert 1 == self.count()
        assert THREADS == len(won)

    # --- taken over -------------------------------------------------------------------------------------------------

    def test_a_run_that_was_taken_over_gets_no_transaction(self) -> None:
        if self.refused():
            return
        old = self.begun()
        self.lease_out()
        self.store.reclaim()
        self.session("s2")
        new = self.take("s2")
        with pytest.raises(LeaseLost), self.store.transaction(old) as transaction:
            self.effect(transaction.connection, "old")
        with self.store.transaction(new) as transaction:
            self.effect(transaction.connection, "new")
            transaction.complete()
        assert 1 == self.count()

    def test_a_run_given_back_and_taken_again_by_its_session_commits_nothing_under_the_old_token(self) -> None:
        if self.refused():
            return
        old = self.begun()
        assert [True] == give_back(self.store, [old])
        new = self.take()
        assert (old.session, True) == (new.session, old.token < new.token)
        with pytest.raises(LeaseLost), self.store.transaction(old) as transaction:
            self.effect(transaction.connection, "old")
            transaction.complete("1")
        with self.outside() as connection:
            self.effect(connection, "old")
            with pytest.raises(LeaseLost):
                self.store.complete_in(connection, old, "1")
            connection.rollback()
        assert (State.RUNNING, 0) == (self.look(new).state, self.count())
        with self.store.transaction(new) as transaction:
            self.effect(transaction.connection, "new")
            transaction.complete("2")
        assert ("2", 1) == (self.look(new).result, self.count())

    def test_expired_lease_undoes_no_effects_before_a_takeover(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        self.lease_out()
        with self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.complete()
        assert [] == self.store.reclaim()
        assert (State.SUCCEEDED, 1) == (self.look(claim).state, self.count())

    def test_a_takeover_in_the_middle_wins_or_loses_as_a_whole(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        took_over: list[Callable[[], None]] = []
        lost = True
        with suppress(LeaseLost):
            with self.store.transaction(claim) as transaction:
                self.effect(transaction.connection)
                self.clock.advance(2 * LEASE)
                took_over.append(self.meanwhile(lambda other: other.reclaim()))
                transaction.complete("1")
            lost = False
        took_over[0]()
        assert (State.PENDING if lost else State.SUCCEEDED) is self.look(claim).state
        assert (0 if lost else 1) == self.count()

    def test_an_end_that_comes_in_the_middle_wins_or_loses_as_a_whole(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        closed: list[Callable[[], None]] = []
        lost = True
        with suppress(LeaseLost):
            with self.store.transaction(claim) as transaction:
                self.effect(transaction.connection)
                closed.append(self.meanwhile(lambda other: self.finish(claim, State.FAILED, store=other)))
                transaction.complete("1")
            lost = False
        closed[0]()
        assert (State.FAILED if lost else State.SUCCEEDED) is self.look(claim).state
        assert (0 if lost else 1) == self.count()
        assert 1 == len(self.runs(claim))

    def test_a_request_to_cancel_does_not_undo_what_is_done(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        self.store.cancel(claim.id, by="someone", why="changed my mind")
        with self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.complete()
        assert (State.SUCCEEDED, 1) == (self.look(claim).state, self.count())

    # --- an end that comes too early --------------------------------------------------------------------------------

    def test_a_commit_inside_the_block_is_refused(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with pytest.raises(UnsupportedTransaction, match="commit"), self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.connection.commit()
        assert (State.RUNNING, 0) == (self.look(claim).state, self.count())

    @pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK"])
    def test_a_transaction_that_is_ended_by_a_statement_records_no_result(self, how: str) -> None:
        if self.refused():
            return
        claim = self.begun()
        with pytest.raises(UnsupportedTransaction, match="ended"), self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.connection.exec_driver_sql(how)
            transaction.complete("1")
        assert (State.RUNNING, None) == (self.look(claim).state, self.look(claim).result)
        assert self.finish(claim, State.FAILED).accepted

    def test_a_block_that_was_ended_takes_no_more_effects(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with pytest.raises(Exception, match=r"closed|inside"), self.store.transaction(claim) as transaction:
            transaction.connection.rollback()
            self.effect(transaction.connection)
            transaction.complete()
        assert (State.RUNNING, 0) == (self.look(claim).state, self.count())

    def test_a_connection_that_the_block_closed_records_no_result(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with pytest.raises(UnsupportedTransaction, match="ended"), self.store.transaction(claim) as transaction:
            self.effect(transaction.connection)
            transaction.connection.close()
            transaction.complete()
        assert (State.RUNNING, 0) == (self.look(claim).state, self.count())
        with self.store.transaction(claim) as transaction:
            transaction.complete()

    # --- in a transaction of the user's own -------------------------------------------------------------------------

    def test_the_commit_of_a_user_decides_on_effects_and_result(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        for ends, state, effects in (("rollback", State.RUNNING, 0), ("commit", State.SUCCEEDED, 1)):
            with self.outside() as connection:
                self.effect(connection)
                note = Note(claim.id, claim.token, None, (LogLine(START, "info", ends),))
                self.store.complete_in(connection, claim, "7", [note])
                getattr(connection, ends)()
            assert (state, effects) == (self.look(claim).state, self.count())
        assert "7" == self.look(claim).result
        assert ["commit"] == [line.text for _, _, line in self.store.logs(claim.id)]
        assert (True, State.SUCCEEDED) == (self.finish(claim, State.FAILED).accepted, self.look(claim).state)

    def test_a_session_of_an_orm_will_do(self) -> None:
        if self.refused():
            return
        from sqlalchemy.orm import Session

        claim = self.begun()
        with self.outside() as connection, Session(connection.engine) as session:
            self.effect(session.connection())
            self.store.complete_in(session, claim)
            session.commit()
        assert (State.SUCCEEDED, 1) == (self.look(claim).state, self.count())

    def test_a_session_of_an_orm_on_the_lent_connection_commits_with_the_block(self) -> None:
        if self.refused():
            return
        from sqlalchemy.orm import Session

        claim = self.begun()
        with self.store.transaction(claim) as transaction, Session(transaction.connection) as session:
            self.effect(session.connection())
            session.commit()
            assert 0 == self.count()
            transaction.complete()
        assert (State.SUCCEEDED, 1) == (self.look(claim).state, self.count())

    def test_a_connection_of_the_driver_will_do(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with self.outside() as connection:
            raw = connection.connection.driver_connection
            cursor = raw.cursor()
            cursor.execute(self.insert())
            cursor.close()
            self.store.complete_in(raw, claim, "1")
            assert (State.RUNNING, 0) == (self.look(claim).state, self.count())
            raw.commit()
        assert (State.SUCCEEDED, "1", 1) == (self.look(claim).state, self.look(claim).result, self.count())

    def test_a_users_transaction_that_reads_an_old_snapshot_has_its_lines_after_those_written_since(self) -> None:
        if self.refused():
            return
        lines = [LogLine(START, "INFO", text) for text in ("before", "meanwhile", "at the end")]
        with self.outside() as connection:
            known = connection.dialect.get_isolation_level_values(connection.connection.dbapi_connection)
        levels = [level for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE") if level in known]
        assert self.mine
        self.queue()
        self.session()
        for level in levels:
            self.enqueue()
            claim = self.take()
            say(self.store, [Note(claim.id, claim.token, lines=(lines[0],))])
            with self.outside() as plain:
                connection = plain.execution_options(isolation_level=level)
                connection.exec_driver_sql(f"SELECT COUNT(*) FROM {EFFECTS} WHERE test = '{self.mine}'").scalar()
                assert say(self.sibling(), [Note(claim.id, claim.token, lines=(lines[1],))]) == [True]
                self.effect(connection)
                self.store.complete_in(connection, claim, "7", [Note(claim.id, claim.token, lines=(lines[2],))])
                connection.commit()
            assert State.SUCCEEDED is self.look(claim).state
            assert [(1, lines[0]), (2, lines[1]), (3, lines[2])] == [
                (number, line) for number, _, line in self.store.logs(claim.id)
            ]
        assert len(levels) == self.count()

    def test_in_a_users_transaction_a_run_that_was_taken_over_is_refused(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        self.lease_out()
        self.store.reclaim()
        with self.outside() as connection:
            self.effect(connection)
            with pytest.raises(LeaseLost):
                self.store.complete_in(connection, claim)
            connection.rollback()
        assert (State.PENDING, 0) == (self.look(claim).state, self.count())

    def test_a_connection_that_commits_each_statement_is_refused(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        with self.outside() as connection:
            each = connection.execution_options(isolation_level="AUTOCOMMIT")
            for given in (each, each.connection.driver_connection):
                with pytest.raises(UnsupportedTransaction, match="autocommit"):
                    self.store.complete_in(given, claim)
        assert State.RUNNING is self.look(claim).state

    def test_complete_in_refuses_something_that_is_no_connection(self) -> None:
        if self.refused():
            return
        claim = self.begun()
        for given in (None, object(), "a url", self.store):
            with pytest.raises(UnsupportedTransaction, match="cannot use"):
                self.store.complete_in(given, claim)
        assert State.RUNNING is self.look(claim).state
