"""The SQL store: each verb in a transaction; the modules named after the groups of verbs have their statements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from cronsensus.errors import LeaseLost, SchemaMismatch, StoreRefused, UnsupportedTransaction
from cronsensus.model.job import JobSpec
from cronsensus.model.ledger import Identity, Loss, Prune
from cronsensus.model.occurrence import (
    Claim,
    Enqueued,
    Item,
    Note,
    Occurrence,
    OccurrenceFilter,
    Takeover,
)
from cronsensus.model.session import LockGrant
from cronsensus.model.step import Done, Step
from cronsensus.stores.sql import (
    acquiring,
    batching,
    completing,
    defining,
    enqueue_in,
    finishing,
    looking,
    operating,
    pausing,
    pruning,
    pruning_jobs,
    reading_glances,
    reading_jobs,
    retiring,
    rewinding,
    sessions,
    sql_locks,
    sql_reading,
    stepping,
    version,
)
from cronsensus.stores.sql.dialect import AnyRow, Reading, TryAgain
from cronsensus.stores.sql.enqueue_in import Plans, StepByStep
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sql_handle import SqlHandle, repeated
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.sql.users_async_connection import UsersAsyncConnection, run_plan_async, wrap_async_connection
from cronsensus.stores.sql.users_connection import UsersConnection, run_plan, wrap_connection
from cronsensus.stores.transacting import RunTransaction
from cronsensus.stores.unreadable import is_of_values
from cronsensus.stores.values import DefineResult, Partition, Pruned, View
from cronsensus.timing.instants import from_micros

P = ParamSpec("P")
Answer = TypeVar("Answer")


def reads(verb: Callable[Concatenate[Transaction, P], Answer]) -> Callable[Concatenate[SqlHandle, P], Answer]:
    """Make a verb of a function that only reads."""

    @repeated
    def run_verb(self: SqlHandle, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        with self._read_transaction(queued=True) as tx:
            return verb(tx, *args, **kwargs)

    return run_verb


def writes(verb: Callable[Concatenate[Transaction, P], Answer]) -> Callable[Concatenate[SqlHandle, P], Answer]:
    """Make a verb of a function that writes, in a transaction that begins with its first statement."""

    @repeated
    def run_verb(self: SqlHandle, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        with self._write_transaction(queued=True) as tx:
            return verb(tx, *args, **kwargs)

    return run_verb


class SqlStore(SqlHandle):
    """The verbs of a store in a SQL database."""

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @repeated
    def _define_jobs(
        self, specs: Sequence[JobSpec], *, release: str, complete: bool, by: str, retire_after: timedelta
    ) -> DefineResult:
        """Define jobs; first check without the write lock whether there is anything to write."""
        declared = defining.check_definitions(
            specs, release=release, complete=complete, by=by, retire_after=retire_after
        )
        with self._read_transaction(queued=True) as tx:
            nothing_to_do = defining.answer_if_unchanged(tx, declared)
        if nothing_to_do is not None:
            return nothing_to_do
        defining.prepare_definitions(declared, from_micros(tx.now))
        with self._write_transaction(queued=True) as tx:
            return defining.write_definitions(tx, declared)

    _retire = writes(retiring.retire_job)
    _pause = writes(pausing.pause_job)
    _resume = writes(pausing.resume_job)
    _rewind = writes(rewinding.rewind_job)

    # --- the scheduling round -----------------------------------------------------------------------------------------

    @repeated
    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        """Look, in a single statement if no job is due."""
        with self._glance_transaction() as tx:
            return looking.read_view(tx, limit, partition, ahead)

    def _step(self, session: str, step: Step) -> Done:
        """Carry out a step in one transaction; if the session is lost, its results alone.

        If a row cannot be written, the parts are carried out one after the other, and that one is left out.
        """
        try:
            return self._step_at_once(session, step).done(self._dialect.monotonic)
        except LeaseLost:
            results = replace(step, plans=(), want=None)
            answer = self._step(session, results) if results else Done()
            return replace(answer, carried_out=(False,) * len(step.plans), lost=True)
        except Exception as error:
            if not is_of_values(error):
                raise
            parts = stepping.apart(step)
            if len(parts) == 1:
                if step.want is not None:
                    raise
                self._definitions.unreadable.log_unreadable(stepping.name_of(step), error)
                return stepping.refused(step)
        return stepping.joined([self._step(session, part) for part in parts])

    @repeated
    def _step_at_once(self, session: str, step: Step) -> stepping.WrittenStep:
        has_more_than_want = step.notes or step.ends or step.give_back or step.plans
        with self._write_transaction(
            queued=True, begin=None if has_more_than_want else self._dialect.begin_claim
        ) as tx:
            return stepping.take_step(tx, session, step)

    _acquire = writes(acquiring.acquire_occurrences)

    def _transaction(self, claim: Claim) -> AbstractContextManager[RunTransaction]:
        """Lend a connection (SQLAlchemy's ``Connection``) for a transaction."""
        from cronsensus.stores.sql.lending import Lending

        lending = Lending(self._lent, self._dialect, self._transaction_on, self._errors_explained)
        return lending.lend_transaction(claim)

    def _complete_in(self, connection: Any, claim: Claim, result: str | None, notes: Sequence[Note]) -> None:
        """Write an attempt's success, on the caller's connection."""
        from cronsensus.stores.sql import borrowing

        with self._read_transaction() as own:
            engine = self._sqlalchemy_view(own.connection).engine  # by now it knows of which version the server is
            reading = Reading(own.now, own.lease_now, own.epoch)
            # The caller's transaction may read an old snapshot (repeatable read), and lines were written since. By now
            # no other lines of the run are on their way to the store.
            after = finishing.last_line(own, claim.id) if notes else 0
        dialect = borrowing.BorrowingDialect(self._dialect, reading)
        try:
            with self._errors_explained(), borrowing.borrow_connection(connection, engine) as users_connection:
                tx = Transaction(users_connection, dialect, self.namespace, self._definitions)
                completing.complete_run(tx, claim, result, notes, after=after)
        except SchemaMismatch as error:
            raise borrowing.elsewhere_error(self._where) from error
        except TryAgain as error:
            raise borrowing.overtaken_error(error) from error

    _jobs_to_enqueue = reads(enqueue_in.read_jobs)
    _where_it_is = reads(enqueue_in.read_place)
    _standing_keys = reads(enqueue_in.read_standing)

    @cached_property
    def _plans(self) -> Plans:
        """The plans that create occurrences in a user's transaction."""
        return self._make_plans(
            self._dialect,
            self._definitions,
            self.namespace,
            (self._jobs_to_enqueue, self._where_it_is, self._standing_keys),
            self._where,
        )

    @property
    def _notifies_after(self) -> bool:
        """Whether nodes are to be notified after a user's commit, if there is a hook."""
        return False

    def _make_plans(self, *args: Any) -> Plans:
        return StepByStep(*args)

    def _enqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences on the caller's connection; nodes are notified by its commit, if at all."""
        users_connection = wrap_connection(connection, "enqueue_in")
        with self._user_errors_explained(users_connection.database):
            self._prepare_plan(items, is_open=users_connection.is_open)
            notify = self._arrange_notification(users_connection)
            with users_connection.ready():
                return run_plan(self._plans.plan_items(items, notify=notify), users_connection.execute)

    async def _aenqueue_in(self, connection: Any, items: Sequence[Item]) -> list[Enqueued]:
        """Do what ``_enqueue_in`` does, on an async connection."""
        import asyncio

        users_connection = await wrap_async_connection(connection, "enqueue_in")
        with self._user_errors_explained(users_connection.database):
            await asyncio.to_thread(lambda: self._prepare_plan(items, is_open=users_connection.is_open))
            notify = self._arrange_notification(users_connection)
            return await run_plan_async(self._plans.plan_items(items, notify=notify), users_connection.execute)

    def _arrange_notification(self, users_connection: UsersConnection | UsersAsyncConnection) -> bool:
        """Have a hook notify nodes after the commit, if wanted or needed; return whether the transaction must do it."""
        after = self._notifies_after or users_connection.is_two_phase
        return (
            not (after and users_connection.call_after_commit(self.notify, self.notify))
            and not users_connection.is_two_phase
        )

    def _prepare_plan(self, items: Sequence[Item], *, is_open: bool) -> None:
        """Read the jobs and the place that a plan needs; ``is_open``: the user's transaction may hold locks already.

        Raises:
            UnknownJob: no such job, or retired.
        """

    @contextmanager
    def _user_errors_explained(self, database: str) -> Iterator[None]:
        own = self.capabilities.name
        if database != own:
            raise UnsupportedTransaction(
                f"this connection leads to {database}, and the store is {own} ({self._where}); your rows and the run "
                "can commit together only in one database: give a connection to the store's, or enqueue with enqueue()"
            )
        try:
            with self._errors_explained():
                yield
        except SchemaMismatch as error:
            raise self._plans.elsewhere_error() from error
        except StoreRefused as error:
            raise self._plans.refused_error(error) from error
        except TryAgain as error:
            raise enqueue_in.overtaken_error(error) from error

    # --- sessions -----------------------------------------------------------------------------------------------------

    _open_session = writes(sessions.open_session)
    _renew = writes(sessions.renew_session)

    @repeated
    def _close_session(self, session: str) -> list[Takeover]:
        def close(*, careful: bool) -> list[Takeover]:
            with self._write_transaction(queued=True) as tx:
                return sessions.close_session(tx, session, careful=careful)

        return self._do_carefully(close, f"session {session!r} cannot be ended")

    def _reclaim(self, presumed_dead: Collection[str]) -> list[Takeover]:
        """End dead sessions, each in a transaction of its own; read which are dead without the write lock.

        Usually a single session is presumed dead and no other is: then the read of others goes with its end.
        """
        takeovers: list[Takeover] = []
        presumed = next(iter(presumed_dead), None)
        if presumed is None:
            dead = self._find_dead(presumed_dead)
        else:
            takeovers, dead = self._reclaim_one(presumed, presumed_dead, look=True)
        for session in dead:
            if session != presumed:
                takeovers += self._reclaim_one(session, presumed_dead)[0]
        return takeovers

    @repeated
    def _find_dead(self, presumed: Collection[str]) -> list[str]:
        with self._glance_transaction() as tx:
            return [row.id for row in sessions.find_dead(tx, presumed).rows]

    @repeated
    def _reclaim_one(
        self, session: str, presumed: Collection[str], *, look: bool = False
    ) -> tuple[list[Takeover], list[str]]:
        """End a session, if it is dead; return its runs, and with ``look`` which other sessions may be dead."""
        dead: list[str] = []

        def reclaim(*, careful: bool) -> list[Takeover]:
            with self._write_transaction(queued=True) as tx:
                dead_sessions = sessions.find_dead(tx, presumed) if look else None
                takeovers = sessions.reclaim_session(
                    tx,
                    session,
                    presumed=session in presumed,
                    careful=careful,
                    on_blocked=self._blocked_takeovers.report_blocked,
                )
                if dead_sessions is not None:
                    dead[:] = [row.id for row in dead_sessions.rows]
                return takeovers

        return self._do_carefully(reclaim, f"session {session!r} cannot be ended"), dead

    _drain = writes(sessions.drain_session)

    # --- locks --------------------------------------------------------------------------------------------------------

    @repeated
    def _lock(self, name: str, holder: str, *, ttl: timedelta, session: str | None, limit: int) -> LockGrant | None:
        """Take a lock; whether it is held is first read without the write lock."""
        wanted = sql_locks.PlaceRequest(name=name, holder=holder, ttl=ttl, session=session, limit=limit)
        with self._glance_transaction() as tx:
            if sql_locks.is_taken(tx, wanted):
                return None
        with self._write_transaction(queued=True) as tx:
            return sql_locks.take_lock(tx, wanted)

    _extend = writes(sql_locks.extend_lock)
    _unlock_only = writes(sql_locks.free_lock)
    _break_only = writes(sql_locks.break_lock)

    def _unlock(self, grant: LockGrant) -> bool:
        """Free a lock that is still held; once it is free, notify the next waiter."""
        freed = self._unlock_only(grant)
        if freed:
            self._wake_next(grant.name)
        return freed

    def _break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]:
        """Free all places of a lock, and notify the next waiters."""
        broken = self._break_only(name, by=by, why=why)
        for _ in broken:
            self._wake_next(name)
        return broken

    # --- people and programs ------------------------------------------------------------------------------------------

    @repeated
    def _enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences, and notify nodes: in the trip of the COMMIT, if the database can."""
        try:
            with self._write_transaction(queued=True) as tx:
                notification = self._notify_behind(tx)
                made = operating.enqueue_items(tx, items)
        except Exception as error:
            if not self._dialect.is_duplicate_key_error(error):
                raise
            raise TryAgain(f"{self._where}: others made the run of a key, again and again; try later") from error
        if notification is None or not notification.answered:
            self._notify()
        return made

    def _notify_behind(self, tx: Transaction) -> Pending | None:  # noqa: ARG002 - most notify without the database
        """Send the notification of nodes right after the COMMIT; ``None``: not possible."""
        return None

    _wake_only = writes(batching.wake_parked)

    def _wake(self, numbers: Sequence[int], listed: int | None) -> int:
        """Wake parked occurrences, or the batch whose list is complete, and notify nodes."""
        woken = self._wake_only(numbers, listed)
        if woken:
            self._notify()
        return woken

    _trigger = writes(operating.trigger_job)
    _cancel = writes(operating.cancel_occurrence)
    _retry = writes(operating.retry_occurrence)
    _forget = writes(operating.forget_key)
    _backfill = writes(operating.backfill_times)

    # --- maintenance -----------------------------------------------------------------------------------------------

    @repeated
    def _prune(self, before: datetime | None, limit: int) -> Pruned:
        """Delete old rows; find them without the write lock."""
        with self._read_transaction(queued=True) as tx:
            old_rows, waiting = pruning.OldRowsSearch(tx, before, limit), retiring.OverduePending(tx)
            bygone = pruning_jobs.OldHistorySearch(tx, before).read_bygone()
            prunable, overdue = old_rows.read_over(), bool(waiting)
        deleted = Pruned()
        if not prunable.is_empty or overdue:
            with self._write_transaction(queued=True) as tx:
                if overdue:
                    waiting.cancel(tx)
                deleted = pruning.prune_over(tx, prunable)
        self._forget_bygone(bygone, before)
        for _ in range(pruning.MOST_BATCHES):
            if not prunable.has_more:
                break
            with self._read_transaction(queued=True) as tx:
                prunable = pruning.find_further(tx)
            with self._write_transaction(queued=True) as tx:
                pruning.prune_over(tx, prunable)
        return deleted

    def _forget_bygone(self, bygone: pruning_jobs.OldHistory, before: datetime | None) -> None:
        """Delete what is long over of jobs, each kind in a transaction of its own, because each locks other rows."""
        for _ in range(pruning.MOST_BATCHES):
            if bygone.is_empty:
                return
            if bygone.with_old_eras or bygone.pauses:
                with self._write_transaction(queued=True) as tx:
                    pruning_jobs.forget_history(tx, bygone, before)
            if bygone.retired:
                with self._write_transaction(queued=True) as tx:
                    pruning_jobs.forget_retired(tx, bygone.retired)
            if bygone.releases:
                with self._write_transaction(queued=True) as tx:
                    pruning_jobs.forget_releases(tx)
            if bygone.locks:
                with self._write_transaction(queued=True) as tx:
                    pruning_jobs.forget_locks(tx)
            if not bygone.has_more:
                return
            with self._read_transaction(queued=True) as tx:
                bygone = pruning_jobs.OldHistorySearch(tx, before).read_bygone()

    # --- reads --------------------------------------------------------------------------------------------------------

    _job = reads(reading_jobs.read_job)
    _jobs = reads(reading_jobs.list_jobs)
    _edges = reads(reading_jobs.list_edges)
    _history = reads(reading_jobs.read_history)
    _ranges = reads(reading_jobs.list_ranges)
    _occurrence = reads(sql_reading.find_occurrence)
    _occurrence_rows = reads(sql_reading.occurrence_rows)

    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]:
        """Return occurrences by id: in a single trip, if all rows of a page can be read."""

        def fetch(after: int | None, size: int) -> Sequence[AnyRow]:
            return self._occurrence_rows(where, after, size, newest_first=newest_first)

        return self._definitions.unreadable.read_page(
            limit, after, fetch, sql_reading.read_occurrence, lambda row: f"run {row.id}"
        )

    _runs = reads(sql_reading.list_runs)
    _logs = reads(sql_reading.list_logs)
    _sessions = reads(sql_reading.list_sessions)
    _locks = reads(sql_reading.list_locks)
    _counts = reads(sql_reading.read_counts)
    _pending_of = reads(sql_reading.pending_of)
    _children = reads(batching.read_children)
    _parked = reads(batching.list_parked)
    _last_of = reads(reading_glances.last_of)
    _ran_since = reads(reading_glances.ran_since)
    _ended_badly = reads(sql_reading.ended_badly)
    _decided = reads(sql_reading.list_decided)
    _trail = reads(sql_reading.list_trail)

    @repeated
    def _identity(self) -> Identity | None:
        """Return the random number that was made with the tables, and when it was made."""
        with self._read_transaction(queued=True) as tx:
            [row] = tx.send_last("which_store")
        return None if row.id is None else Identity(str(row.id), from_micros(row.since))

    @repeated
    def _note_in_trail(self, act: Loss | Prune, by: str) -> None:
        with self._write_transaction() as tx:
            record(tx, by, act.action, "", act.why, **act.details)

    @repeated
    def _describe(self) -> dict[str, Any]:
        with self._read_transaction() as tx:
            return {
                "store": self.capabilities.name,
                "namespace": self.namespace,
                "schema": version.of(tx),
                **self._dialect.describe_settings(tx.connection),
            }
