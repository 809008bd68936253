"""The base of the SQL store's verbs: connections, transactions, errors, and the schema's version."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from cronsensus.errors import CronsensusError, InvalidOption
from cronsensus.model.job import check_name
from cronsensus.model.ledger import CLOCK_SET_BACK
from cronsensus.process.interrupts import Event
from cronsensus.stores.base import Store
from cronsensus.stores.clock_watch import STORE_ACTOR, ClockReading, ClockWatch
from cronsensus.stores.sql import version
from cronsensus.stores.sql.blocked_takeovers import BlockedTakeovers
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.connections import Connections
from cronsensus.stores.sql.definitions import Definitions
from cronsensus.stores.sql.dialect import Dialect, TryAgain, cause_of
from cronsensus.stores.sql.sending import Begin
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import is_of_values
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import Clock, SystemClock
from cronsensus.timing.instants import from_micros

if TYPE_CHECKING:
    import sqlalchemy as alchemy

Verb = TypeVar("Verb", bound=Callable[..., Any])
Item = TypeVar("Item")
Answer = TypeVar("Answer")
MOST_TRIES = 12
LONGEST_TRYING = 10.0
"""Seconds after which there is no third attempt: an attempt may itself have waited for a lock."""
_PATIENCE = SystemClock()
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Most seconds before the second attempt, and before any; random, so that two transactions do not collide again."""


def repeated(verb: Verb) -> Verb:
    """Repeat a verb if the database rolled its transaction back in favour of another (a deadlock), or lost its read.

    Nothing was written then. A verb is one transaction, so all of it is repeated, on a new reading of the clocks.
    """

    @wraps(verb)
    def repeat(self: SqlHandle, *args: Any, **kwargs: Any) -> Any:
        until = _PATIENCE.monotonic() + LONGEST_TRYING
        longest_pause = FIRST_PAUSE
        for tries in range(1, MOST_TRIES):
            try:
                return verb(self, *args, **kwargs)
            except TryAgain:
                if tries > 1 and _PATIENCE.monotonic() > until:
                    raise
                self._ended.wait(random.uniform(0, longest_pause))
                longest_pause = min(2 * longest_pause, LONGEST_PAUSE)
        return verb(self, *args, **kwargs)

    return cast("Verb", repeat)


class SqlHandle(Store):
    """A handle on a SQL database; a subclass adds the dialect, the connections and the wake-ups."""

    def __init__(
        self,
        *,
        namespace: str,
        url_and_clock: tuple[str, Clock | None],
        where: str,
        dialect: Dialect,
        connect: Callable[[], Any],
        lend: Callable[[], Any] | None = None,
    ) -> None:
        """Make a handle; nothing is opened before the first verb.

        Args:
            namespace: separates applications.
            url_and_clock: the URL and the clock of the subclass, for its siblings.
            where: the store's name in errors.
            dialect: of the database.
            connect: opens a driver's connection for verbs.
            lend: opens a connection for the code of jobs, if those for verbs have settings of their own.
        """
        self.namespace = check_name(namespace, what="namespace")
        self._url_and_clock = url_and_clock
        self._where = where
        self._dialect = dialect
        self._connections = Connections(lambda: self._note_opened(Connection(connect())), where=where)
        self._definitions = Definitions()
        self._ended = Event()
        self._clock_watch = ClockWatch()
        self._blocked_takeovers = BlockedTakeovers()
        self._lent = Connections(lambda: self._note_opened(self._handed_over((lend or connect)())), where=where)

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what this store can do."""
        return self._dialect.capabilities

    def _sibling(self) -> Self:
        url, clock = self._url_and_clock
        sibling: Self = cast("Any", type(self))(url, namespace=self.namespace, clock=clock)
        return sibling

    def forget_idle(self) -> None:
        """Close the idle connections; the next verb opens a new one."""
        self._connections.forget_idle()
        self._lent.forget_idle()

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return a text for each row that was left out because it cannot be read."""
        return self._definitions.unreadable.list_texts()

    def _note_opened(self, connection: Connection) -> Connection:
        self._dialect.prepare_connection(connection)
        return connection

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def _write_transaction(
        self, *, queued: bool = False, begin: Callable[[Connection], None] | None = None
    ) -> Iterator[Transaction]:
        """Write in a transaction; ``queued``: it begins with the first statements that are sent.

        ``begin``: how to begin it, if not as usual for the dialect.
        """
        is_queued = queued and self._dialect.queues_statements
        readings: list[ClockReading] = []
        asked_at = self._dialect.monotonic()
        begins = None if is_queued else begin or self._dialect.begin_write
        with self._in_transaction(begins, self._dialect.end_write) as tx:

            def compare() -> None:
                readings.append(ClockReading(tx.now, asked_at, self._dialect.monotonic()))
                set_back = self._clock_watch.compare_reading(readings[0])
                if set_back is not None:
                    record(tx, STORE_ACTOR, CLOCK_SET_BACK, "", set_back.why, **set_back.details)

            tx.on_clocks(compare)
            yield tx
        # After the commit: until then the next transaction would have to record it.
        for reading in readings:
            self._clock_watch.keep_reading(reading)

    @contextmanager
    def _read_transaction(self, *, queued: bool = False) -> Iterator[Transaction]:
        """Read in a transaction, ``queued`` as in ``_write_transaction``; if its connection is closed, ``TryAgain``.

        A server ends transactions that stand still, so on a busy machine it may end a read that was too slow to go on.
        """
        is_queued = queued and self._dialect.queues_statements
        with self._in_transaction(None if is_queued else self._dialect.begin_read, None, writes=False) as tx:
            yield tx

    @contextmanager
    def _glance_transaction(self) -> Iterator[Transaction]:
        """Read without a transaction if the database allows it: each statement sees the latest state.

        For verbs whose answer needs no snapshot, because any action on it compares again. They are ``repeated``,
        because a connection may turn out to be cut off when it is used after a rest.
        """
        with self._errors_explained():
            connection = self._connections.acquire_connection()
            was_good = connection.was_good
            try:
                if self._dialect.can_read_without_transaction(connection):
                    yield Transaction(connection, self._dialect, self.namespace, self._definitions, read=False)
                else:
                    with connection.transaction():
                        self._dialect.begin_read(connection)
                        yield self._transaction_on(connection)
                connection.was_good = True
            except (CronsensusError, LookupError) as error:
                put_back = (
                    self._connections.release_connection if _raised_by_us(error) else self._connections.throw_away
                )
                put_back(connection)
                raise
            except BaseException as error:
                self._connections.throw_away(connection)
                if was_good and isinstance(error, Exception) and self._dialect.is_connection_error(error):
                    self._connections.forget_idle()
                    raise TryAgain(f"{self._where}: the connection was lost; try again") from error
                raise
            else:
                self._connections.release_connection(connection)

    @contextmanager
    def _in_transaction(
        self, begin: Callable[[Connection], None] | None, ended: Callable[[], None] | None, *, writes: bool = True
    ) -> Iterator[Transaction]:
        """Run a transaction: commit at the end, roll back on any error, drop the connection after an unknown one.

        Without ``begin`` it begins with the first statements. If the connection was cut off while it lay idle, the verb
        is repeated on a new one, because nothing was written.
        """
        tx = None
        with self._errors_explained():
            try:
                connection, transaction = self._begin_transaction(begin)
                with transaction:
                    kind: Begin = "write" if writes else "read"
                    tx = self._transaction_on(connection, begin=kind if begin is None else "")
                    yield tx
                    tx.commit()
            except Exception as error:
                if tx is None or not (tx.was_cut or (not writes and self._dialect.is_closed_by_server(error))):
                    raise
                self._connections.forget_idle()
                raise TryAgain(f"{self._where}: the connection was lost; try again") from error
            finally:
                if ended is not None:
                    ended()

    def _begin_transaction(self, begin: Callable[[Connection], None] | None) -> tuple[Connection, ExitStack]:
        """Begin on a connection; if it was cut off while it lay idle, on a new one."""
        under_way, thread = self._connections.under_way, threading.get_ident()
        while True:
            connection = self._connections.acquire_connection()
            if (left_behind := under_way.pop(thread, None)) is not None:
                # A signal handler raised where this thread was about to end it, and nothing else will: verbs are not
                # nested.
                self._connections.throw_away(left_behind)
            was_good = connection.was_good
            try:
                with ExitStack() as transaction:
                    under_way[thread] = connection
                    transaction.enter_context(self._committing(connection))
                    if begin is not None:
                        begin(connection)
                        connection.was_good = True
                    return connection, transaction.pop_all()
            except Exception as error:
                if not was_good or not self._dialect.is_connection_error(error):
                    raise
                self._connections.forget_idle()

    @contextmanager
    def _committing(self, connection: Connection) -> Iterator[None]:
        try:
            with connection.transaction():
                yield
        except (CronsensusError, LookupError) as error:
            # A verb's own error: rolled back, and the connection stays usable.
            put_back = self._connections.release_connection if _raised_by_us(error) else self._connections.throw_away
            self._ended_here(connection, put_back)
            raise
        except BaseException:
            self._ended_here(connection, self._connections.throw_away)
            raise
        else:
            self._ended_here(connection, self._connections.release_connection)

    def _ended_here(self, connection: Connection, put_back: Callable[[Connection], None]) -> None:
        """Put a connection away, unless this thread has already done so."""
        under_way, thread = self._connections.under_way, threading.get_ident()
        if under_way.get(thread) is connection:
            del under_way[thread]
            put_back(connection)

    def _transaction_on(self, connection: Connection, *, begin: Begin = "") -> Transaction:
        """Return the transaction for a verb."""
        return Transaction(connection, self._dialect, self.namespace, self._definitions, begin=begin)

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except CronsensusError:
            raise
        except (OverflowError, UnicodeEncodeError) as error:  # before it reached the server
            raise InvalidOption(f"{self._where} cannot keep this value: {error}") from error
        except Exception as error:
            explained = self._dialect.translate_error(cause_of(error))
            if explained is None:
                raise
            raise explained from error

    # --- for SQLAlchemy
    # ------------------------------------------------------------------------------------------------

    @property
    def _engine(self) -> alchemy.Engine:
        from cronsensus.stores.sql.engine import engine_of

        return engine_of(self._dialect.engine_url, self._where)

    def _sqlalchemy_view(self, connection: Connection) -> alchemy.Connection:
        """Return SQLAlchemy's view of a connection, in its open transaction; its tables are ours."""
        from cronsensus.stores.sql.engine import keep_connection

        return keep_connection(self._engine, connection.driver, self._dialect.schema)

    def _handed_over(self, driver: Any) -> Connection:
        """Return a connection for the code of jobs."""
        from cronsensus.stores.sql.engine import handed_over
        from cronsensus.stores.sql.lending import LentConnection

        return LentConnection(handed_over(self._engine, driver))

    # --- damaged rows
    # --------------------------------------------------------------------------------------------------

    def _do_carefully(self, act: Callable[..., list[Answer]], name: str) -> list[Answer]:
        """Do all runs at once; if a damaged one prevents that, run by run. If that fails too, log it and go on."""
        try:
            return act(careful=False)
        except Exception as error:
            if not is_of_values(error):
                raise
        try:
            return act(careful=True)
        except Exception as error:
            if not is_of_values(error):
                raise
            self._definitions.unreadable.log_unreadable(name, error)
            return []

    # --- set-up -------------------------------------------------------------------------------------------------------

    @repeated
    def _migrate(self) -> list[str]:
        """Bring the schema up to date.

        Safe when several processes start at once: each step reads the version again under the migration lock.
        """
        applied: list[str] = []
        while not self._is_up_to_date():
            self._load_migrations()
            with self._write_transaction() as tx:
                self._dialect.lock_migrations(tx.connection)
                step = self._take_step(tx)
            # Statements prepared before the change of tables are invalid on these connections.
            self._connections.forget_idle()
            applied += step
        return applied

    @repeated
    def _is_up_to_date(self) -> bool:
        """Whether the schema has this code's version; raise if it is newer."""
        with self._read_transaction() as tx:
            return version.known(tx, self._where) == version.VERSION

    def _load_migrations(self) -> None:
        """Load SQLAlchemy, which is slow, before others have to wait for a lock."""
        from cronsensus.stores.sql import migrations  # noqa: F401
        from cronsensus.stores.sql.engine import engine_of

        engine_of(self._dialect.engine_url, self._where)

    def _take_step(self, tx: Transaction) -> list[str]:
        """Take the next step that the schema needs, under the migration lock; return its name, if it needs one."""
        from cronsensus.stores.sql import migrations

        return migrations.take_next(version.known(tx, self._where), self._sqlalchemy_view(tx.connection), tx.now)

    @repeated
    def _check(self) -> None:
        """Raise unless the schema has this code's version and the store can be written."""
        with self._read_transaction() as tx:
            version.refuse_older(version.known(tx, self._where), self._where)
        self._check_writable()

    def _check_writable(self) -> None:
        """Raise if a write would fail; by default nothing is attempted."""

    def _close(self) -> None:
        self._ended.set()
        self._connections.close()
        self._lent.close()

    @repeated
    def _now(self) -> datetime:
        with self._read_transaction() as tx:
            return from_micros(tx.now)


def _raised_by_us(error: BaseException) -> bool:
    """Whether a verb raised this itself: the error passed through no code but ours.

    A user's signal handler may raise such an error too, in the middle of the driver's exchange. Then the next answer on
    this connection could be the one before.
    """
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith(("cronsensus.", "contextlib")):
            return False
        trace = trace.tb_next
    return True
