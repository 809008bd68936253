"""Enqueuing in a transaction of a user's: the run and the user's rows are there together, or neither is."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; a block is what is tested; expected ==
# actual

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from cronsensus.errors import StoreBusy, UnknownJob, UnsupportedTransaction
from cronsensus.model.occurrence import Enqueued, Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import DAY, HOUR, MINUTE, SECOND, START, StoreTest, minute

A_MOMENT = 0.3
"""Seconds for another transaction to come as far as it can while one is open."""
JOB = "billing"


def of_job(key: str | None = None, job: str = JOB, **wishes: Any) -> Item:
    """Return what is to be enqueued."""
    return Item(job=job, key=key, **wishes)


def enqueue_on(store: Store, key: str, _: Any) -> Enqueued:
    """Enqueue one run as any program does."""
    [made] = store.enqueue([of_job(key)])
    return made


class EnqueuingIn(StoreTest):
    """Hazards of a transaction of a user's: it is rolled back, it stays open, it leads elsewhere, it is one of two.

    A store that says ``transactional_finish=False`` refuses in every one of these tests.
    """

    # --- the scene --------------------------------------------------------------------------------------------------

    def shares_nothing(self) -> bool:
        """Whether the store says that it has no transactions; then enqueuing in one has to raise."""
        self.queue(JOB)
        if self.store.capabilities.transactional_finish:
            assert self.mine
            return False
        with pytest.raises(UnsupportedTransaction, match="no transaction"):
            self.store.enqueue_in(object(), [of_job()])
        assert [] == self.enqueued()
        return True

    def enqueued(self) -> list[Occurrence]:
        """Read what was enqueued of the job."""
        return self.store.occurrences(OccurrenceFilter(job=JOB), limit=2000)

    def add(self, connection: Any, key: str | None = None, *, store: Store | None = None, **more: Any) -> Enqueued:
        """Enqueue one run on a connection."""
        [made] = (store or self.store).enqueue_in(connection, [of_job(key, **more)])
        return made

    def in_another_thread(self, act: Callable[[Any], object]) -> Callable[[], object]:
        """Let ``act`` begin on a connection of its own, and come as far as it can; return what waits for its answer."""
        answers: list[object] = []

        def run() -> None:
            with self.outside() as connection:
                try:
                    answers.append(act(connection))
                    connection.commit()
                except Exception as error:  # noqa: BLE001 - the test looks at it
                    answers.append(error)
                    connection.rollback()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(A_MOMENT)

        def answer() -> object:
            thread.join(self.patience)
            assert answers, "the other thread hangs"
            return answers[0]

        return answer

    # --- with the commit, or not at all -----------------------------------------------------------------------------

    def test_a_run_that_was_enqueued_in_a_transaction_is_there_when_that_commits(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            self.effect(connection)
            made = self.add(connection)
            assert (True, State.PENDING, JOB) == (made.created, made.state, made.job)
            assert (None, 0) == (self.store.occurrence(made.id), self.count())
            connection.commit()
        found = self.look(made)
        assert made.created_at == found.created_at
        assert (made.key, Origin.ENQUEUE, State.PENDING) == (found.key, found.origin, found.state)
        assert 1 == self.count()
        self.session()
        claim = self.take()
        assert made.id == claim.id
        self.finish(claim)

    def test_headers_of_a_run_that_was_enqueued_in_a_transaction_go_along(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            self.add(connection, args=(1,), headers={"traceparent": "00-01"})
            connection.commit()
        self.session()
        claim = self.take()
        assert ((1,), {"traceparent": "00-01"}) == (claim.args, claim.headers)

    def test_a_run_that_was_enqueued_in_a_transaction_never_was_if_that_is_rolled_back(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            self.effect(connection)
            self.add(connection, "key")
            connection.rollback()
            assert ([], 0) == (self.enqueued(), self.count())
            assert self.add(connection, "key").created
            connection.commit()
        assert ["key"] == [one.key for one in self.enqueued()]

    def test_a_rollback_to_a_savepoint_takes_the_run_with_it(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            self.effect(connection)
            kept = self.add(connection, "kept")
            connection.exec_driver_sql("SAVEPOINT ours")
            undone = self.add(connection, "key")
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT ours")
            again = self.add(connection, "key")
            assert (True, True) == (undone.created, again.created)
            connection.commit()
        assert {kept.id, again.id} == {one.id for one in self.enqueued()}

    def test_a_run_is_enqueued_in_a_transaction_of_an_orm(self) -> None:
        if self.shares_nothing():
            return
        from sqlalchemy.orm import Session

        with self.outside() as connection, Session(connection.engine) as session:
            self.effect(session.connection())
            with session.begin_nested() as savepoint:
                self.add(session, "undone")
                savepoint.rollback()
            self.add(session, "key")
            assert [] == self.enqueued()
            session.commit()
        assert ["key"] == [one.key for one in self.enqueued()]

    def test_a_run_is_enqueued_in_a_transaction_of_the_driver(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            raw = connection.connection.driver_connection
            cursor = raw.cursor()
            cursor.execute(self.insert())
            cursor.close()
            made = self.add(raw, args=("100 %", "a:b", 'ä"'))
            assert ([], 0) == (self.enqueued(), self.count())
            raw.commit()
        assert (("100 %", "a:b", 'ä"'), 1) == (self.look(made).args, self.count())

    # --- the same as enqueue ----------------------------------------------------------------------------------------

    def test_what_is_enqueued_in_a_transaction_is_as_what_enqueue_makes(self) -> None:
        if self.shares_nothing():
            return
        self.define(self.job(JOB, trigger=None, args=(1,), kwargs={"copies": 2}, priority=3))
        self.clock.advance(SECOND)
        wishes: list[dict[str, Any]] = [
            {},
            {"args": (), "kwargs": {}},
            {"args": ("text", None, 1.5), "kwargs": {"key": "x"}},
            {"delay": HOUR, "expires_in": MINUTE},
            {"due_at": START + DAY, "priority": -7, "expires_in": MINUTE},
            {"due_at": START - DAY},
            {"delay": timedelta.max, "expires_in": timedelta.max},
        ]
        with self.outside() as connection:
            inside = [self.add(connection, f"in {number}", **wish) for number, wish in enumerate(wishes)]
            many = self.store.enqueue_in(connection, [of_job(f"many {n}", **wish) for n, wish in enumerate(wishes)])
            connection.commit()
        plain = self.store.enqueue([of_job(f"plain {n}", **wish) for n, wish in enumerate(wishes)])

        def seen(made: Enqueued) -> tuple[Any, ...]:
            one = self.look(made)
            return one.due_at, one.args, one.kwargs, one.priority, one.created_at, one.origin

        assert [seen(one) for one in plain] == [seen(one) for one in inside] == [seen(one) for one in many]
        self.clock.advance(2 * DAY)
        self.session()
        claimed = {claim.id for claim in self.claim()}
        for one in (plain, inside, many):
            assert [True, True, True, False, False, True, False] == [made.id in claimed for made in one]
            assert [State.MISSED] * 2 == [self.look(made).state for made in one[3:5]]

    def test_a_thousand_runs_are_enqueued_in_one_transaction(self) -> None:
        if self.shares_nothing():
            return
        items = [of_job(f"key {number % 900}", args=(number,)) for number in range(1000)]
        with self.outside() as connection:
            made = self.store.enqueue_in(connection, items)
            assert [] == self.enqueued()
            connection.commit()
        assert 900 == len(self.enqueued()) == sum(one.created for one in made)
        assert [one.id for one in made[:100]] == [one.id for one in made[900:]]
        with self.outside() as connection:
            unnamed = self.store.enqueue_in(connection, [of_job() for _ in range(5)])
            connection.commit()
        assert 5 == len({one.id for one in unnamed}) == sum(one.created for one in unnamed)

    # --- keys -------------------------------------------------------------------------------------------------------

    def test_a_known_key_makes_nothing_in_a_transaction_and_tells_what_stands_there(self) -> None:
        if self.shares_nothing():
            return
        [first] = self.store.enqueue([of_job("key", args=(1,))])
        self.session()
        self.finish(self.take())
        with self.outside() as connection:
            again = self.add(connection, "key", args=(2,))
            new, known, twice = self.store.enqueue_in(connection, [of_job("new"), of_job("key"), of_job("new")])
            later = self.add(connection, "new")
            connection.commit()
        assert (first.id, False, State.SUCCEEDED) == (again.id, again.created, again.state)
        assert again.payload is not None
        assert (True, False, False, False) == (new.created, known.created, twice.created, later.created)
        assert new.id == twice.id == later.id
        assert 2 == len(self.enqueued())

    def test_of_two_transactions_with_one_key_the_second_waits_for_the_first(self) -> None:
        if self.shares_nothing():
            return
        for ends, made_by_second in (("commit", False), ("rollback", True)):
            with self.outside() as connection:
                self.effect(connection)
                first = self.add(connection, ends)
                answer = self.in_another_thread(partial(self.add, key=ends, store=self.sibling()))
                getattr(connection, ends)()
            second = answer()
            assert isinstance(second, Enqueued), second
            assert made_by_second is second.created
            assert made_by_second or second.id == first.id
        assert ["commit", "rollback"] == sorted(one.key for one in self.enqueued())

    def test_enqueue_waits_for_a_transaction_that_has_its_key(self) -> None:
        if self.shares_nothing():
            return
        for ends in ("commit", "rollback"):
            with self.outside() as connection:
                self.effect(connection)
                self.add(connection, ends)
                others = [self.sibling(), self.sibling()]
                answers = [self.in_another_thread(partial(enqueue_on, store, ends)) for store in others]
                getattr(connection, ends)()
            found = [answer() for answer in answers]
            assert all(isinstance(one, Enqueued) for one in found), found
            assert [ends == "rollback", False] == sorted(
                (isinstance(one, Enqueued) and one.created for one in found), reverse=True
            )
            assert 1 == sum(one.key == ends for one in self.enqueued())

    def test_a_transaction_that_keeps_a_key_for_too_long_is_not_waited_for(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            self.effect(connection)
            self.add(connection, "key")
            answer = self.in_another_thread(partial(self.add, key="key", store=self.sibling()))
            assert isinstance(answer(), StoreBusy), answer()
            connection.commit()
        assert 1 == len(self.enqueued())

    def test_a_key_that_was_committed_after_a_snapshot_was_taken_is_known_or_said_to_be_in_the_way(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as plain:
            known = plain.dialect.get_isolation_level_values(plain.connection.dbapi_connection)
        for level in [level for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE") if level in known]:
            if self.store.capabilities.hosts == "one":
                continue  # its transactions that write see no old snapshot
            with self.outside() as plain:
                connection = plain.execution_options(isolation_level=level)
                self.effect(connection)
                [first] = self.store.enqueue([of_job(level)])
                try:
                    again = self.add(connection, level)
                    assert (first.id, False) == (again.id, again.created)
                    connection.commit()
                except StoreBusy:
                    assert level != "READ COMMITTED"
                    connection.rollback()
            assert [first.id] == [one.id for one in self.enqueued() if one.key == level]

    # --- an open transaction is in nobody's way ---------------------------------------------------------------------

    def test_schedules_and_other_calls_go_on_while_a_transaction_is_open(self) -> None:
        if self.shares_nothing():
            return
        self.define(self.job(JOB))
        with self.outside() as connection:
            if self.store.capabilities.hosts == "many":  # one host's file has one writer at a time
                self.effect(connection)
                self.add(connection, "key")
            self.clock.advance(MINUTE)
            assert [True] == self.round()
            [other] = self.store.enqueue([of_job("other")])
            assert other.created
            self.store.pause(JOB, by="me", why="test")
            self.store.resume(JOB, by="me", why="")
            self.session()
            for claim in self.claim():
                self.finish(claim)
            self.add(connection, "late")
            connection.commit()
        assert minute(1) in {one.scheduled_for for one in self.enqueued()}
        assert State.PENDING is next(one.state for one in self.enqueued() if one.key == "late")

    def test_what_comes_to_a_job_after_it_was_retired_is_cancelled(self) -> None:
        if self.shares_nothing() or self.store.capabilities.hosts == "one":
            return  # where there is one writer at a time, nothing comes after
        with self.outside() as connection:
            self.effect(connection)
            made = self.add(connection)
            again = self.add(connection, "again")
            self.store.retire(JOB, by="me", why="")
            self.queue("other")
            connection.commit()
        assert [State.PENDING] * 2 == [self.look(one).state for one in (made, again)]
        self.store.prune()
        assert [(State.CANCELLED, "retired")] * 2 == [
            (found.state, found.reason) for found in map(self.look, (made, again))
        ]

    def test_what_came_to_a_retired_job_stays_if_it_is_defined_again(self) -> None:
        if self.shares_nothing() or self.store.capabilities.hosts == "one":
            return
        with self.outside() as connection:
            made = self.add(connection)
            self.store.retire(JOB, by="me", why="")
            connection.commit()
        self.queue(JOB)
        self.store.prune()
        assert State.PENDING is self.look(made).state

    # --- what is refused --------------------------------------------------------------------------------------------

    def test_in_a_transaction_an_unknown_job_and_a_retired_one_are_refused(self) -> None:
        if self.shares_nothing():
            return
        self.queue("old")
        self.store.enqueue([of_job(job="old")])
        self.sibling().retire("old", by="me", why="")
        for name in ("nobody", "old"):
            with self.outside() as connection:
                with pytest.raises(UnknownJob, match=name):
                    self.store.enqueue_in(connection, [of_job(), of_job(job=name)])
                connection.rollback()
        assert [] == self.enqueued()

    def test_a_job_that_was_defined_anew_gets_its_new_arguments_in_a_transaction(self) -> None:
        if self.shares_nothing():
            return
        for number in (1, 2):
            self.define(self.job(JOB, trigger=None, args=(number,)), store=self.sibling())
            with self.outside() as connection:
                made = self.add(connection)
                connection.commit()
            assert (number,) == self.look(made).args

    def test_a_job_that_is_younger_than_a_snapshot_can_be_enqueued_in_it(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as plain:
            known = plain.dialect.get_isolation_level_values(plain.connection.dbapi_connection)
        if "REPEATABLE READ" not in known:
            return
        with self.outside() as plain:
            connection = plain.execution_options(isolation_level="REPEATABLE READ")
            self.effect(connection)
            self.queue("young")
            [made] = self.store.enqueue_in(connection, [of_job(job="young")])
            connection.commit()
        assert made.id == self.look(made).id

    def test_enqueuing_refuses_a_connection_that_commits_each_statement(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            each = connection.execution_options(isolation_level="AUTOCOMMIT")
            for given in (each, each.connection.driver_connection):
                with pytest.raises(UnsupportedTransaction, match="autocommit"):
                    self.add(given)
        assert [] == self.enqueued()

    def test_enqueuing_refuses_what_is_no_connection(self) -> None:
        if self.shares_nothing():
            return
        with self.outside() as connection:
            for given in (None, object(), "postgresql://a-url", self.store, connection.engine):
                with pytest.raises(UnsupportedTransaction, match=r"cannot use|takes the connection"):
                    self.add(given)
        assert [] == self.enqueued()
