"""The attempt, as its job function sees it: identity, progress, cancellation, transaction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import Context, ContextVar, Token
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from cronsensus.errors import Cancel, InvalidOption, LeaseLost, UnsupportedTransaction
from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import Claim, LogLine, idempotency_key
from cronsensus.model.states import Origin
from cronsensus.node.hooks import NOTHING, InContext
from cronsensus.node.run_transaction import RunTransaction
from cronsensus.payload.typed import Types
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import ExcInfo, Logger
from cronsensus.triggers.zones import load_zone

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cronsensus.node.async_transaction import AsyncConnection

_log = Logger("cronsensus.node")

Result = TypeVar("Result")

_current: ContextVar[BaseRun | None] = ContextVar("cronsensus_run", default=None)


_OF_THE_NODE = frozenset({
    "at_end", "claim", "effective_ending", "extras", "is_over", "line", "may_begin", "may_have_committed", "raised",
    "for_test", "release_leftovers", "request_stop", "type_result", "was_cut_off",
})  # fmt: skip
"""Attributes for the node and its executors, left out of tab completion."""


class BaseRun:
    """An attempt to execute an occurrence, without the parts that features add; see ``cronsensus.run``."""

    def __init__(
        self,
        claim: Claim,
        *,
        namespace: str = "default",
        on_progress: Callable[[BaseRun, float, float], None] | None = None,
        on_line: Callable[[BaseRun, LogLine], None] | None = None,
        run_transaction: RunTransaction | None = None,
        trusted: Callable[[], bool] = lambda: True,
        extras: Mapping[str, Any] = NOTHING,
        zone: str = "UTC",
    ) -> None:
        self.id: int = claim.id
        self.namespace: str = namespace
        self.job: str = claim.job
        self.key: str = claim.key
        self.origin: Origin = claim.origin
        self.scheduled_for: datetime | None = claim.scheduled_for
        self.due_at: datetime = claim.due_at
        self.attempt: int = claim.attempt
        self.token: int = claim.token
        self.session: str = claim.session
        self._lease_lost = Event()
        self._cancelled = Event()
        self._cancel_reason: str | None = None
        self.raised: ExcInfo = None
        self._on_progress = on_progress
        self._on_line = on_line
        self._run_transaction = run_transaction
        self._trusted = trusted
        self.extras = extras
        """Objects that features have added to the run, by name."""
        self._parent = claim.parent
        self.claim = claim
        self._at_end: list[Callable[[], None]] = []
        self.is_over: bool = False
        self.zone = zone

    @property
    def local_time(self) -> datetime | None:
        """The nominal time in the job's ``zone``, as an aware datetime; ``None`` for enqueued work.

        ``run.local_time.date()`` is the calendar day in that zone: a job of 03:00 in Shanghai has a nominal time on the
        day before in UTC.
        """
        return None if self.scheduled_for is None else self.scheduled_for.astimezone(load_zone(self.zone))

    @property
    def idempotency_key(self) -> str:
        """A text that identifies this work to others: a payment provider, a primary key. At most 255 ASCII characters.

        Made of namespace, job, and nominal time or key. It is the same for each attempt, after a takeover, and for a
        backfill or an operator's retry of the same nominal time. Any other work in the same store has another text.
        (Applications with the same namespace in different stores must add what differs.) An operator's retry of
        enqueued work has a new text, because it has a new key.
        """
        return idempotency_key(self.namespace, self.job, self.key, self.scheduled_for)

    # Read-only: the node reads them when the run ends, and a job that overwrote one would end without any message.

    @property
    def lease_lost(self) -> Event:
        """Set when another node may be running this occurrence; see the class."""
        return self._lease_lost

    @property
    def cancelled(self) -> Event:
        """Set when the run should stop; see the class."""
        return self._cancelled

    @property
    def cancel_reason(self) -> str | None:
        """Why the run should stop; ``None`` while it may go on."""
        return self._cancel_reason

    def progress(self, done: float, total: float = 100) -> None:
        """Report progress: written within half a second, and refused once the run is not current.

        Raises:
            InvalidOption: a number is infinite or NaN.
        """
        if not (math.isfinite(done) and math.isfinite(total)):
            raise InvalidOption(f"progress({done!r}, {total!r}) cannot be kept; both must be finite numbers")
        if self._on_progress is not None:
            self._on_progress(self, done, total)

    def line(self, line: LogLine) -> None:
        """Keep a log line with the run. Records that the job writes to ``logging`` arrive here automatically."""
        if self._on_line is not None:
            self._on_line(self, line)

    def check(self) -> None:
        """Raise if the run should stop; call it between the steps of a long job in a thread.

        Raises:
            LeaseLost: the run may be another node's by now.
            Cancel: somebody asked it to stop.
        """
        if self.lease_lost.is_set():
            raise LeaseLost(f"run {self.id} of {self.job!r} is no longer ours; stop and write nothing more")
        if self.cancelled.is_set():
            raise Cancel(self.cancel_reason or "asked to stop")

    # --- effects that commit together with the result -----------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[Connection]:
        """Open a transaction on the store's own database that commits your effects together with the run's result.

        Yields an SQLAlchemy Core ``Connection``. Leaving the block commits both. An exception that leaves it, a crash,
        or a takeover meanwhile undoes both. So the effects of each occurrence are there exactly once.

        - The result is ``None``, or the argument of ``run.complete(...)`` in the block. The run has succeeded with the
          commit: what the function returns or raises afterwards is only logged.
        - At most one transaction of a run is committed. After a rollback another may be opened.
        - Progress and log lines of the block are written with its end.
        - On SQLite the block holds the database's only write lock: nothing else writes, and no lease is renewed.
          A block that is longer than the lease is rolled back. Do slow work before it.

        Not prevented: effects elsewhere than on this connection.

        Raises:
            LeaseLost: the run is no longer current, noticed at the beginning or at the end; nothing is committed.
            UnsupportedTransaction: the store has no transactions, the job runs in a process of its own, there was a
                transaction already, or the block ended the transaction by itself.
            StoreError: the database cannot be used; if it failed in the very commit, the node finds out whether it took
                place, and runs the occurrence again only if nothing was committed.

        Example:
            >>> import tempfile
            >>> from cronsensus import Run, Scheduler
            >>> from sqlalchemy import text
            >>> with tempfile.TemporaryDirectory() as folder, Scheduler(f"sqlite:///{folder}/shop.db") as scheduler:
            ...
            ...     @scheduler.job()
            ...     def book(run: Run) -> int:
            ...         with run.transaction() as conn:
            ...             conn.execute(text("CREATE TABLE IF NOT EXISTS bookings (key TEXT)"))
            ...             conn.execute(text("INSERT INTO bookings VALUES (:key)"), {"key": run.idempotency_key})
            ...             return run.complete(1)
            ...
            ...     book.options(key="order:1").enqueue().result("10s")
            1
        """
        return self._run_transaction_here().open_block(self.lease_lost.is_set)

    def atransaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Do what ``transaction`` does without blocking the event loop: each statement runs on another thread.

        ``async with run.atransaction() as conn``, and then ``await conn.execute(…)``, ``await conn.scalar(…)``,
        ``await conn.scalars(…)``, or ``await conn.run_sync(function)``, which is called with the ``Connection`` itself.
        """
        from cronsensus.node.async_transaction import async_transaction

        return async_transaction(self.transaction)

    def complete(self, result: Result) -> Result:
        """Set the run's result, inside the block of ``transaction``, and return it.

        It is recorded when the block commits; of several calls the last counts.

        Raises:
            InvalidPayload: it is not JSON, or too large.
            UnsupportedTransaction: not inside the block.
        """
        self._run_transaction_here().keep_result(result)
        return result

    def complete_in(self, connection: Any, result: Any = None) -> None:
        """Write the run's success into your own transaction on the store's database.

        Your commit decides both, so call this last, and commit before the function returns; after a rollback you may
        call it again. A function that returns without the commit has failed (``NotCommitted``).

        Args:
            connection: SQLAlchemy's ``Connection`` or ORM ``Session``, or a connection of the store's own driver
                (``sqlite3``, psycopg, PyMySQL). With ``AsyncSession``: ``await session.run_sync(run.complete_in)``.
            result: JSON, or ``None``.

        Raises:
            LeaseLost: the run is no longer current; roll back, and stop. Let it leave your ``with`` block.
            UnsupportedTransaction: the store has no transactions, or the connection is not in a transaction of its
                database.
            InvalidPayload: the result is not JSON, or too large.
        """
        self._run_transaction_here().complete_in(connection, result, self.lease_lost.is_set)

    @property
    def committed(self) -> bool:
        """Whether this run's ``transaction`` is known to be committed; the run has succeeded with it."""
        return self._run_transaction is not None and self._run_transaction.committed

    @property
    def may_have_committed(self) -> bool:
        """Whether a transaction of this run's own may have written its end already."""
        return self._run_transaction is not None and self._run_transaction.may_have_committed

    def _run_transaction_here(self) -> RunTransaction:
        if self._run_transaction is None:
            raise UnsupportedTransaction(
                f"this run of {self.job!r} has no store at hand: a job with executor='process' runs in a process of "
                "its own, which has no connection to it; use executor='thread' (or an async function)"
            )
        return self._run_transaction

    # --- what the node calls ------------------------------------------------------------------------------------------

    def may_begin(self) -> bool:
        """Whether the function may be called now; checked last, by the thread that would call it.

        A process that was suspended since the claim wakes up with its lease over, by the monotonic clock.
        """
        if not self._trusted():
            self.request_stop("lease lost", lease_lost=True)
        return not self.cancelled.is_set()

    def type_result(self, types: Types) -> None:
        """Have ``complete`` and ``complete_in`` accept the type of the function's return annotation."""
        if self._run_transaction is not None:
            self._run_transaction.types = types

    def effective_ending(self, ending: Ending) -> Ending:
        """Return the ending to report: a committed transaction counts, whatever the code did afterwards."""
        return ending if self._run_transaction is None else self._run_transaction.effective_ending(ending)

    def was_cut_off(self, error: BaseException) -> bool:
        """Whether ``error`` ended this run because its store failed under it."""
        return self._run_transaction is not None and self._run_transaction.was_cut_off(error)

    def at_end(self, act: Callable[[], None]) -> None:
        """Call ``act`` when the function has returned or raised; it must not raise."""
        self._at_end.append(act)

    def release_leftovers(self) -> None:
        """Run the ``at_end`` actions, after the function has returned or raised."""
        self.is_over = True
        while self._at_end:
            try:
                self._at_end.pop()()
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a mistake in cronsensus; please report it. What %r left is not put away", self)

    def request_stop(self, reason: str, *, lease_lost: bool = False) -> None:
        """Ask the run to stop. The first reason stands."""
        if self._cancel_reason is None:
            self._cancel_reason = str(reason)
        if lease_lost:
            self.lease_lost.set()
        self.cancelled.set()

    def __dir__(self) -> list[str]:
        public_names = (name for name in super().__dir__() if not name.startswith("_") or name.startswith("__"))
        return sorted(set(public_names) - _OF_THE_NODE)

    def __repr__(self) -> str:
        return f"<Run {self.job} {self.key} attempt={self.attempt} token={self.token}>"


def current_run() -> BaseRun | None:
    """Return the run that this code is part of, or ``None``.

    A context variable: it crosses into tasks that the job starts, and into threads started with
    ``contextvars.copy_context`` or ``asyncio.to_thread``.
    """
    return _current.get()


def find_run_of_context(context: Context) -> BaseRun | None:
    """Return the run to which code in ``context`` belongs."""
    return context.get(_current)


def enter_run(run: BaseRun | None) -> None:
    """Make ``run`` the current one in this context; executors call it at the start of a run's own context."""
    _current.set(run)
    if run is not None:
        for extra in run.extras.values():
            if isinstance(extra, InContext):
                extra.enter_context()


def swap_current_run(run: BaseRun) -> Token[BaseRun | None]:
    """Make ``run`` the current one until ``restore_current_run`` is called with the returned token."""
    return _current.set(run)


def restore_current_run(token: Token[BaseRun | None]) -> None:
    """Restore the current run from before ``swap_current_run``."""
    _current.reset(token)
