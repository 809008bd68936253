"""The transaction of a run on the store's database, which commits together with its end: at most one.

::

    none ──block──▶ open ──▶ doubtful ──commit answered──▶ committed
      │  ◀──raised, rolled back──┘            └── no answer: the store knows, and answers when the end is reported
      └──complete_in──▶ pledged: the user's own commit decides, without news of it

A failure of the store is no failure of the function: its effects are undone, and the attempt ends as if its node had
crashed.

A commit cannot be undone. So when the run has ended, ``effective_ending`` returns what to report: for a committed
transaction, success, whatever the code did afterwards; if it is not known whether it was committed, *no* success. That
is no risk: if the run did succeed, the store answers that, and changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import structs

from cronsensus.errors import LeaseLost, StoreError, UnsupportedTransaction
from cronsensus.model.ending import Ending
from cronsensus.model.ends import End, Final
from cronsensus.model.occurrence import Claim, Note, RunError
from cronsensus.model.states import State
from cronsensus.node.forks import leave_if_forked
from cronsensus.payload.typed import UNTYPED, Types
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import this_process
from cronsensus.stores.base import Store, is_passing_failure

if TYPE_CHECKING:
    from sqlalchemy import Connection

_log = Logger("cronsensus.node")

LONGEST_WAIT_FOR_NOTES = 0.2
"""Most seconds that a user's transaction waits for a write of this run's progress and log lines."""

UNCOMMITTED = RunError(
    type="NotCommitted",
    message=(
        "the run wrote its end into a transaction that was never committed, so neither its effects nor its result are "
        "there; commit before the function returns"
    ),
)
"""The error of a run that called ``complete_in`` and returned without the commit."""


class HeldProgress(Protocol):
    """A buffer of progress and log lines; those of a run can be held back for its transaction to write."""

    def hold_notes(self, occurrence: int, token: int, *, most: float = -1.0) -> None:
        """Keep other threads from writing this run's notes; wait up to ``most`` seconds for a write in progress."""

    def held_notes(self, occurrence: int, token: int) -> Note | None:
        """Return the notes held back."""

    def release_notes(self, occurrence: int, token: int, written: Note | None = None) -> None:
        """Drop the notes that were ``written``, and let the others be written as usual."""


class _State(Enum):
    NONE = "none"
    OPEN = "open"
    DOUBTFUL = "doubtful"
    COMMITTED = "committed"
    PLEDGED = "pledged"


_WHY_NOT = {
    _State.OPEN: "it is in one already; do everything in that one",
    _State.DOUBTFUL: "the answer to the commit of the one before was lost, and it may have taken place; let the "
    "exception end the run: the node asks the store, and runs it again only if nothing was committed",
    _State.COMMITTED: "the one before is committed, and the run succeeded with it; do everything in that one",
    _State.PLEDGED: "run.complete_in() has written its end into another one",
}


class RunTransaction:
    """The transaction of a run. Safe to share between the threads of a job; only one of them gets the transaction."""

    def __init__(self, store: Store, claim: Claim, progress_buffer: HeldProgress, types: Types = UNTYPED) -> None:
        self._store = store
        self._claim = claim
        self._progress_buffer = progress_buffer
        self.types = types
        self._process = this_process.pid
        self._lock = threading.Lock()
        self._state = _State.NONE
        self._result: str | None = None
        self._cut_off_by: Exception | None = None

    @property
    def committed(self) -> bool:
        """Whether it is known here that the run's transaction was committed."""
        return self._state is _State.COMMITTED

    @property
    def may_have_committed(self) -> bool:
        """Whether a transaction may have written the run's end already, as far as is known here."""
        # Not ``in`` a set: hashing an Enum member is a Python call, and this is read three times for each run.
        return self._state is not _State.NONE and self._state is not _State.OPEN

    @contextmanager
    def open_block(self, lost: Callable[[], bool]) -> Iterator[Connection]:
        """Open the transaction, and commit it with the result when the block ends well; ``Run.transaction``."""
        self._enter_state(_State.OPEN)
        process = os.getpid()
        self._result = None
        written_notes = transaction = None
        raised_by_job = False
        try:
            with self._store.transaction(self._claim) as transaction:
                # From here on the database may keep all others from writing (SQLite does), also this node's own notes
                # of the run; and once it is committed, notes are refused.
                try:
                    yield transaction.connection
                except BaseException as error:
                    leave_if_forked(process, error)
                    raised_by_job = True
                    raise
                # A forked child that leaves the block would commit its parent's transaction.
                leave_if_forked(process)
                if lost():
                    # After a request to stop, its code may have left the block early, with half of the work done.
                    raise LeaseLost(self._lost_words())
                note = self._progress_buffer.held_notes(self._claim.id, self._claim.token)
                transaction.complete(self._result, [] if note is None else [note])
                self._state = _State.DOUBTFUL
            self._state = _State.COMMITTED
            written_notes = note
        except Exception as error:
            # Judged by the connection, not by the error: the job's code may have wrapped the error, and a similar one
            # may come from elsewhere.
            connection_lost = transaction is not None and transaction.lost
            if connection_lost or (not raised_by_job and isinstance(error, StoreError) and error.retryable):
                self._cut_off_by = error
            raise
        finally:
            if self._state is _State.OPEN:
                self._state = _State.NONE
            self._progress_buffer.release_notes(self._claim.id, self._claim.token, written_notes)

    def keep_result(self, result: Any) -> None:
        """Keep the result for the end of the block; ``Run.complete``."""
        text = self.types.write_result(result)
        with self._lock:
            if self._state is not _State.OPEN:
                raise UnsupportedTransaction(
                    "run.complete() gives the result of run.transaction(), so it belongs inside that block; "
                    "a run without a transaction just returns its result"
                )
            self._result = text

    def complete_in(self, connection: Any, result: Any, lost: Callable[[], bool]) -> None:
        """Write the end into the user's transaction; ``Run.complete_in``."""
        text = self.types.write_result(result)
        if lost():
            raise LeaseLost(self._lost_words())
        with self._lock:
            called_before = self._state is _State.PLEDGED  # called again after a rollback, as the user knows
        if not called_before:
            self._enter_state(_State.PLEDGED)
        # Notes join the user's transaction; after a rollback they are written later, after a commit they are refused.
        note = self._progress_buffer.held_notes(self._claim.id, self._claim.token)
        try:
            self._store.complete_in(connection, self._claim, text, [] if note is None else [note])
        except BaseException:
            if not called_before:
                self._state = _State.NONE
                self._progress_buffer.release_notes(self._claim.id, self._claim.token)
            raise
        self._result = text

    def was_cut_off(self, error: BaseException) -> bool:
        """Whether ``error`` ended the run because the store failed, not because of the job; runs code of the job.

        That is so if it, or an error that it came from, left the block of a transaction, where the job has no choice.
        For any other call of this store only the error itself counts: code that caught it and raised another has
        decided.
        """
        if is_passing_failure(self._store, error):
            return True
        checked: set[int] = set()
        to_check = [] if self._cut_off_by is None else [error]
        while to_check:
            cause = to_check.pop()
            if cause is self._cut_off_by:
                return True
            if id(cause) not in checked:
                checked.add(id(cause))
                to_check += [chained for chained in (cause.__cause__, cause.__context__) if chained is not None]
                to_check += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        return False

    def effective_ending(self, ending: Ending) -> Ending:
        """Return the ending to report, when the run's code has ended."""
        state = self._state
        if state is _State.COMMITTED:
            self._log_not_recorded(ending)
            return structs.replace(
                ending, kind="returned", result=self._result, error=None, reason=None, retry_after=None
            )
        if state is _State.PLEDGED:
            self._progress_buffer.release_notes(self._claim.id, self._claim.token)
        if (state is _State.PLEDGED or state is _State.DOUBTFUL) and ending.kind == "returned":
            cut_off = state is _State.DOUBTFUL and self._cut_off_by is not None
            return structs.replace(ending, kind="raised", result=None, error=UNCOMMITTED, cut_off=cut_off)
        return ending

    def _enter_state(self, state: _State) -> None:
        if self._process != os.getpid():
            raise UnsupportedTransaction(
                "this is a forked child of the process that the run belongs to, and its connection is the parent's; "
                "write in the parent, with what the child computed"
            )
        with self._lock:
            if self._state is not _State.NONE:
                raise UnsupportedTransaction(
                    f"this run has no second transaction to give: {_WHY_NOT[self._state]}. "
                    "(One that was rolled back may be followed by another.)"
                )
            self._state = state
        # On SQLite the node's own step may be waiting for the user's transaction.
        self._progress_buffer.hold_notes(
            self._claim.id, self._claim.token, most=-1.0 if state is _State.OPEN else LONGEST_WAIT_FOR_NOTES
        )

    def _lost_words(self) -> str:
        return (
            f"the lease of this node ran out while {self._claim.job!r} (occurrence {self._claim.id}) was in its "
            "transaction, which is rolled back; another node may run it. On SQLite the transaction itself keeps the "
            "lease from being renewed: do slow work before it, or give the scheduler a longer lease"
        )

    def _log_not_recorded(self, ending: Ending) -> None:
        run_text = f"occurrence {self._claim.id} of {self._claim.job!r} succeeded with its transaction"
        if ending.kind != "returned":
            error_text = _format_error(ending.error, ending.reason or ending.kind)
            _log.warning("%s, and is recorded so; what came after is not: %s (%s)", run_text, error_text, ending.kind)
        elif ending.result not in {None, self._result}:
            _log.warning("%s; what it returned later is not recorded: give it to run.complete() in the block", run_text)


def uncommitted_end(claim: Claim) -> End:
    """Return the end of a run whose transaction was not committed, as far as this node knows."""
    return End.of(claim, Final(State.FAILED, error=UNCOMMITTED))


def log_unrecorded(end: End) -> None:
    """Log the end of a run that was not recorded, because its transaction had been committed before."""
    if end.error is not UNCOMMITTED:
        error_text = _format_error(end.error, end.then.reason or end.state)
        _log.warning(
            "occurrence %d succeeded with its transaction, and is recorded so; what came after is not: %s",
            end.id, error_text,
        )  # fmt: skip


def _format_error(error: RunError | None, default: str) -> str:
    return default if error is None else f"{error.type}: {error.message}"
