"""The PostgreSQL store: connections, notifications, signs of life, and verbs in a single trip."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, cast

from psycopg import RawCursor

from cronsensus.errors import StoreError, StoreUnavailable
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Enqueued, Item
from cronsensus.model.session import LockGrant
from cronsensus.model.step import Done, Step, Want
from cronsensus.stores.clock_watch import ClockReading
from cronsensus.stores.sql import sql_locks
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.dialect import TryAgain
from cronsensus.stores.sql.enqueue_in import InOneStatement, Plans
from cronsensus.stores.sql.postgres import at_once
from cronsensus.stores.sql.postgres import postgres_locks as one_statement
from cronsensus.stores.sql.postgres.postgres_dialect import PostgresDialect, driver_of
from cronsensus.stores.sql.postgres.postgres_driver import PATIENCE, BoundedConnection, open_connection
from cronsensus.stores.sql.postgres.postgres_presence import list_present, show_sign
from cronsensus.stores.sql.postgres.postgres_url import read_url
from cronsensus.stores.sql.postgres.postgres_wait_queues import NotificationQueues, channel_of, notify_waiters
from cronsensus.stores.sql.postgres.postgres_wake import Wake
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sessions import not_alive
from cronsensus.stores.sql.sql_handle import repeated
from cronsensus.stores.sql.sql_presence import PresenceStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import is_of_values
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import Clock

_MICROSECOND = timedelta(microseconds=1)
GENERAL_CLAIM_FOR = 1.0
"""Seconds for which the general statements claim work after the one-trip claim did not apply."""


class PostgresStore(PresenceStore):
    """A store in a PostgreSQL database, shared by nodes on any number of hosts.

    Example:
        >>> store = PostgresStore("postgresql://app@localhost/app?schema=jobs")
        >>> store.capabilities.hosts
        'many'
    """

    in_one_trip: ClassVar[bool] = True
    """Whether the usual steps and items take one trip (``at_once``). A subclass with ``False`` sends all of them the
    general way; the answers of every verb are the same."""

    def __init__(self, url: str, *, namespace: str = "default", clock: Clock | None = None) -> None:
        """Make a handle on the database that ``url`` names; nothing is opened yet.

        Raises:
            InvalidOption: the URL cannot be read, or has an option that does not exist.
        """
        self._url = read_url(url)
        self._postgres = PostgresDialect(self._url, clock)
        super().__init__(
            namespace=namespace,
            url_and_clock=(url, clock),
            where=self._url.where,
            dialect=self._postgres,
            connect=self._open_driver,
            lend=lambda: open_connection(self._url, lent=True),
        )
        self._place = (self._url.schema, namespace)
        self._wake_ups = Wake(self._open_driver, self._place)
        self._unusual_until = float("-inf")
        """Until then work is claimed in the general way."""

    def _close(self) -> None:
        """Close the connections."""
        self._wake_ups.close()
        super()._close()

    def _has_one_trip(self) -> bool:
        return self.in_one_trip and self._postgres.has_pipeline

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, session: str, step: Step) -> Done:
        """Carry out a step; the usual steps of a scheduled occurrence in a single trip."""
        done = None
        if not self._is_pooled() and self._has_one_trip():
            try:
                done = self._step_in_one_trip(session, step)
            except TryAgain as error:
                cause, dialect = error.__cause__, self._postgres
                is_answer_lost = (
                    isinstance(cause, Exception)
                    and dialect.is_connection_error(cause)
                    and not dialect.is_error_before_commit(cause)
                )
                if (step.plans or step.want) and is_answer_lost:
                    # It may have claimed, and a claim is not repeated: the caller reads what its session holds.
                    lost_error = f"{self._where}: the connection was lost before a step was answered"
                    raise StoreUnavailable(lost_error) from error
            except Exception as error:
                if not is_of_values(error):
                    raise
        return super()._step(session, step) if done is None else done

    def _step_in_one_trip(self, session: str, step: Step) -> Done | None:
        """Return the answer; ``None``: the step needs the general way, and nothing was written."""
        if (only_end := at_once.only_end(step)) is not None:
            with self._glance_transaction() as tx:
                return at_once.close_one(tx, *only_end)
        if len(step.plans) == 1:
            with self._glance_transaction() as tx:
                only_plan = at_once.only_plan(tx, step, step.plans[0])
                if only_plan is not None and not at_once.was_closed(driver_of(tx.connection)):
                    return at_once.fire_one(tx, session, *only_plan)
        if (only_want := at_once.only_want(self._definitions, step)) is not None:
            return self._claim_due(session, *only_want)
        return None

    def _claim_due(self, session: str, want: Want, specs: dict[str, JobSpec]) -> Done | None:
        if PATIENCE.monotonic() < self._unusual_until:
            return None
        with self._glance_transaction() as tx:
            if at_once.was_closed(driver_of(tx.connection)):
                return None
            claims = at_once.start_due(tx, session, want, specs)
        if claims is None:
            self._unusual_until = PATIENCE.monotonic() + GENERAL_CLAIM_FOR
            return None
        if not claims.unreadable:
            return claims.done
        # The general claim logs rows that it cannot read, and leaves them alone.
        self._unusual_until = float("inf")
        super()._step(session, Step(give_back=claims.unreadable))
        return claims.done if claims.done.claims else None

    # --- enqueuing ----------------------------------------------------------------------------------------------------

    def _enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences, and notify nodes; a single one usually in one trip."""
        enqueued = self._enqueue_in_one_trip(items)
        return super()._enqueue(items) if enqueued is None else [enqueued]

    @repeated
    def _enqueue_in_one_trip(self, items: Sequence[Item]) -> Enqueued | None:
        """Return the answer; ``None``: the item needs the general way, and nothing was written."""
        cached_item = at_once.only_item(self._definitions, items)
        if cached_item is None or not self._has_one_trip():
            return None
        asked_at = self._dialect.monotonic()
        with self._in_transaction(None, None) as tx:
            if at_once.was_closed(driver_of(tx.connection)):
                return None  # the general way notices it in its first trip, and repeats
            self._notify_behind(tx)
            enqueued = at_once.enqueue_one(tx, cached_item)
        reading = ClockReading(tx.now, asked_at, self._dialect.monotonic())
        if self._clock_watch.compare_reading(reading) is None:
            self._clock_watch.keep_reading(reading)
        else:
            with suppress(StoreError), self._write_transaction():  # it finds the same, and records it
                pass
        return enqueued

    @property
    def _notifies_after(self) -> bool:
        return self._url.wake == "after"

    def _make_plans(self, *args: Any) -> Plans:
        return InOneStatement(*args, channel=self._wake_ups.channel, patience=self._url.timeout / 2)

    # --- wake-ups and signs of life -----------------------------------------------------------------------------------

    def _wait(self, timeout: float) -> bool:
        """Wait for a notification."""
        with self._errors_explained():
            return self._wake_ups.wait(timeout)

    def _register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` while a thread waits on this handle, and from its next renewal here."""
        super()._register_presence(session)
        self._wake_ups.register_presence(session)

    def _show_sign(self, connection: Connection, session: str) -> bool:
        if not self._postgres.is_pooled:
            show_sign(driver_of(connection), connection.info, self._place, session)
        return not self._postgres.is_pooled

    def _list_present(self, tx: Transaction, sessions: Sequence[str]) -> Collection[str] | None:
        return None if self._postgres.is_pooled else list_present(tx, self._place, sessions)

    def _notify(self) -> None:
        """Wake the other handles of this namespace, on all hosts."""
        self._notify_nodes(self._wake_ups.notify_listeners)

    def _notify_behind(self, tx: Transaction) -> Pending:
        return tx.send_behind("notify_nodes", channel=self._wake_ups.channel, sender=self._wake_ups.name)

    def _notify_nodes(self, notify: Callable[[BoundedConnection], None]) -> None:
        self._on_idle(lambda connection: notify(driver_of(connection)))

    # --- locks --------------------------------------------------------------------------------------------------------

    def _lock(self, name: str, holder: str, *, ttl: timedelta, session: str | None, limit: int) -> LockGrant | None:
        """Take a lock, usually in a single statement; see ``postgres_locks``."""
        request = sql_locks.PlaceRequest(name=name, holder=holder, ttl=ttl, session=session, limit=limit)
        turn = one_statement.turn_of(*self._place, name)
        if self._is_pooled():  # behind a pooler each transaction needs its settings
            return None if self._is_locked(request) else self._lock_with_care(request, turn)
        values = (self.namespace, name, holder, session, ttl // _MICROSECOND, limit, turn)
        for _ in range(2):  # if the place that seemed free was just taken, try again
            answer = self._run_statement(self._lock_statements.take, *values).fetchone()
            alive, seemed_free, token, place = cast("tuple[bool, bool, int | None, int]", answer)
            if session is not None and not alive:
                raise not_alive(session)
            if token is not None:
                return LockGrant(name=name, holder=holder, token=token, place=place, session=session)
            if not seemed_free:
                return None
        return self._lock_with_care(request, turn)

    @repeated
    def _is_locked(self, request: sql_locks.PlaceRequest) -> bool:
        with self._read_transaction() as tx:
            return sql_locks.is_taken(tx, request)

    @repeated
    def _lock_with_care(self, request: sql_locks.PlaceRequest, turn: int) -> LockGrant | None:
        with self._write_transaction() as tx:
            driver_of(tx.connection).execute("SELECT pg_advisory_xact_lock(%s)", [turn], prepare=False)
            return sql_locks.take_lock(tx, request)

    @repeated
    def _extend(self, grant: LockGrant, ttl: timedelta) -> bool:
        """Extend a lock that is still held, in one statement."""
        if self._is_pooled():
            return super()._extend(grant, ttl)
        values = (*self._encode_grant(grant), ttl // _MICROSECOND)
        return self._run_statement(self._lock_statements.extend, *values).rowcount == 1

    def _unlock(self, grant: LockGrant) -> bool:
        """Free a lock that is still held, in one statement, and then notify the first waiter.

        Raises:
            StoreUnavailable: the connection was cut, and the lock is no longer held under this token: whether it was
                freed or had run out is unknown.
        """
        if self._is_pooled():
            return super()._unlock(grant)
        values = self._encode_grant(grant)
        cut_error: TryAgain | None = None
        try:
            freed = self._run_statement(self._lock_statements.free, *values).rowcount == 1
        except TryAgain as error:
            cut_error = error
            freed = self._run_statement(self._lock_statements.free, *values).rowcount == 1
        if freed or cut_error is not None:
            self._wake_next(grant.name)
        if not freed and cut_error is not None:
            raise StoreUnavailable(
                f"{self._where}: the connection was lost while the lock {grant.name!r} was freed; it is not held under "
                f"token {grant.token} any more, and whether it had run out before cannot be told"
            ) from cut_error
        return freed

    def _encode_grant(self, grant: LockGrant) -> tuple[Any, ...]:
        return self.namespace, grant.name, grant.place, grant.token, grant.holder, grant.session or ""

    def _run_statement(self, text: str, *values: Any) -> RawCursor[Any]:
        """Run a statement that is a transaction by itself."""
        with self._glance_transaction() as tx:
            return one_statement.run_statement(driver_of(tx.connection), text, *values, *self._postgres.clock_arguments)

    def _is_pooled(self) -> bool:
        """Whether there is a pooler before the server; if that is unknown, a connection is opened to find out."""
        if not self._postgres.knows_pooler:
            with self._errors_explained():
                self._connections.release_connection(self._connections.acquire_connection())
        return self._postgres.is_pooled

    @property
    def _lock_statements(self) -> one_statement.Statements:
        return one_statement.statements_of(self._url.schema, injected=self._url_and_clock[1] is not None)

    def _wait_queues(self) -> WaitQueues:
        if self._postgres.is_pooled:  # a pooler does not pass notifications on
            return WaitQueues()
        return NotificationQueues(self._open_driver, channel_of(*self._place), explained=self._errors_explained)

    def _wake_next(self, name: str) -> None:
        """Notify all waiters of a lock."""
        if not self._postgres.is_pooled:
            self._notify_nodes(lambda driver: notify_waiters(driver, channel_of(*self._place), name))

    # --- opening ------------------------------------------------------------------------------------------------------

    def _check_writable(self) -> None:
        """Try to write: a standby, or a user without rights, is noticed now rather than by the first job."""
        with self._write_transaction() as tx:
            tx.take_tokens(1)
            tx.send("touch")

    def _open_driver(self) -> BoundedConnection:
        driver = open_connection(self._url)
        self._postgres.note_pooler(pooled=driver.pooled)
        return driver
