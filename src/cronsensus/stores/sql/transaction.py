"""A transaction: a connection, the store's clocks as read in it, and methods that send statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from cronsensus.errors import CronsensusError
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.definitions import Definitions
from cronsensus.stores.sql.dialect import Dialect, Reading
from cronsensus.stores.sql.queries import with_pieces
from cronsensus.stores.sql.sending import Begin, Moment, Pending
from cronsensus.stores.unreadable import Unreadable

Value = TypeVar("Value")


class Transaction:
    """The context of every verb. Its clocks are read once, so a step has a single "now".

    Statements by name are queued until an answer is needed, and then all of the queue is sent together; the last of
    them with the COMMIT. Without a network in between each is run at once.

    If a transaction waits for a row after that, its "now" is too early. For due or overdue work that is only a delay.
    Whether the caller's own session is alive is judged by ``moment``, the clock as the store reads it once the
    session's row is locked. A clock of this host could not tell the wait from the time on the network.

    Attributes:
        came_at: when the reading of the clocks arrived, by ``dialect.monotonic``.
        definitions: parsed jobs, kept between transactions.
        was_cut: the connection was gone when it was first used after a rest, or before everything was sent, so nothing
            was written.
    """

    __slots__ = (
        "_begin",
        "_behind",
        "_on_clocks",
        "_queue",
        "_reading",
        "came_at",
        "connection",
        "definitions",
        "dialect",
        "namespace",
        "was_cut",
    )

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        namespace: str,
        definitions: Definitions,
        *,
        read: bool = True,
        begin: Begin = "",
    ) -> None:
        """Start; ``read`` the clocks now or when needed; ``begin``: begin the transaction with the first statements."""
        self.connection = connection
        self.dialect = dialect
        self.namespace = namespace
        self.definitions = definitions
        self.was_cut = False
        self._queue: list[Pending] = []
        self._behind: list[Pending] = []
        self._begin: Begin = begin
        self._on_clocks: Callable[[], None] | None = None
        self._reading: Reading | None = None
        self.came_at = 0.0
        if read and not begin:
            self._came(dialect.read_clocks(connection))

    # --- statements by name -------------------------------------------------------------------------------------------

    def send(
        self,
        name: str,
        *,
        expect: int | None = None,
        otherwise: CronsensusError | None = None,
        also: Iterable[str] | None = None,
        **values: Any,
    ) -> Pending:
        """Send a statement, at the latest with the COMMIT.

        ``expect``: how many rows it must touch; otherwise nothing is written, and ``otherwise`` is raised. ``also``:
        the optional pieces of the statement to include.
        """
        query = self.dialect.find_query(name)
        if also is not None:
            query = with_pieces(query, frozenset(also))
        pending = Pending(query, values, None, expect, self.flush, otherwise=otherwise)
        self._add(pending)
        return pending

    def send_last(self, name: str, **values: Any) -> Sequence[Any]:
        """Return the rows of a query that is sent together with the COMMIT."""
        pending = self.send(name, **values)
        self.commit()
        return pending.rows

    def send_first(self, name: str, **values: Any) -> Sequence[Any]:
        """Return the rows, at least one, of a query that needs ``now``; if it is the first, it also reads the clock.

        The server then uses its own clock, and returns it in the column ``asked``.
        """
        moment = self.moment if self._reading is None and self.dialect.server_epoch else None
        if not isinstance(moment, Moment):
            return self.send(name, now=self.now, **values).rows
        asked_at = self.dialect.monotonic()
        rows = self.send(name, now=moment, **values).rows
        self._came(Reading(rows[0].asked, rows[0].asked, self.epoch, asked_at))
        return rows

    def send_in(self, name: str, list_name: str, values: Iterable[Any], **values_of_all: Any) -> list[Pending]:
        """Send a query with ``IN :listed``, in pieces that the database accepts."""
        all_pieces = pieces(list(values), self.dialect.most_parameters)
        return [self.send(name, **cast("Any", {list_name: list(piece)}), **values_of_all) for piece in all_pieces]

    def send_rows(
        self, name: str, rows: Sequence[tuple[Any, ...]], *, one_each: bool = False, **values: Any
    ) -> list[Pending]:
        """Send a statement for many rows, in pieces; ``one_each``: it must touch a row for each of them."""
        if not rows:
            return []
        query = self.dialect.find_query(name)
        sent = [
            Pending(query, values, piece, len(piece) if one_each else None, self.flush)
            for piece in batches(rows, self.dialect.most_rows, self.dialect.most_characters)
        ]
        for pending in sent:
            self._add(pending)
        return sent

    def take_tokens(self, count: int, *, read_by: str = "last_token", **values: Any) -> Pending:
        """Take fencing tokens, ascending; the answer's row has the ``last``; ``read_by``: the statement that reads it.

        They are higher than all earlier tokens, and not below the clock. A store that lost its last commits lost those
        numbers too. The clock has moved on since, so none of them is given again, unless the clock of the server that
        took over lags by more than the loss and the switch took.
        """
        self.send("take_tokens", count=count, floor=self.dialect.floor_of_tokens(self.now))
        return self.send(read_by, **values)

    def send_behind(self, name: str, **values: Any) -> Pending:
        """Send a statement after the COMMIT, in the same trip; it is not sent if the COMMIT goes alone.

        It is a transaction of its own, which begins when the other has ended; if it fails, nothing else does.
        """
        pending = Pending(self.dialect.find_query(name), values, None, None, self.flush, behind=True)
        self._behind.append(pending)
        return pending

    def _add(self, pending: Pending) -> None:
        self._queue.append(pending)
        if not self.dialect.queues_statements:
            self.flush()

    def flush(self) -> None:
        """Send all queued statements."""
        self._send(commit=False)

    def commit(self) -> None:
        """Send the queue together with the COMMIT; if it is empty, the connection commits."""
        if self._queue and self._on_clocks is not None:
            self.flush()  # the clock check may write before the end
        if self._queue:
            self._send(commit=True)

    def _send(self, *, commit: bool) -> None:
        queue, self._queue = self._queue + (self._behind if commit else []), []
        begin, self._begin = self._begin, ""
        if not queue and not begin:
            return
        try:
            reading = self.dialect.send_statements(self.connection, queue, begin=begin, commit=commit)
        except Exception as error:
            was_stale = (
                bool(begin) and not commit and self.connection.was_good and self.dialect.is_connection_error(error)
            )
            self.was_cut = was_stale or self.dialect.is_error_before_commit(error)
            raise
        if begin:
            self.connection.was_good = True
            self._reading, self.came_at = reading, self.dialect.monotonic()
            self.report_clocks()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back the block, and nothing else of the transaction, if an exception leaves it."""
        self.flush()
        self.connection.execute_text("SAVEPOINT cronsensus_part")
        try:
            yield
            self.flush()
        except Exception:
            with suppress(Exception):  # after a deadlock the savepoint is gone; the first error is raised
                self.dialect.undo_transaction(self.connection, "ROLLBACK TO SAVEPOINT cronsensus_part")
            raise
        self.connection.execute_text("RELEASE SAVEPOINT cronsensus_part")

    def on_clocks(self, act: Callable[[], None]) -> None:
        """Call ``act`` as soon as the clocks are read, before they are used."""
        self._on_clocks = act
        if not self._begin:
            self.report_clocks()

    def report_clocks(self) -> None:
        """Call the action of ``on_clocks``."""
        act, self._on_clocks = self._on_clocks, None
        if act is not None:
            act()

    @property
    def moment(self) -> Any:
        """Return the lease clock for a statement by name: a value, or a placeholder for the server's clock."""
        return self.dialect.clock_value(self.connection)

    def instant(self, plus: int = 0) -> Any:
        """Return the store's clock, plus some microseconds, for a statement by name."""
        return (self.moment if self._begin else self.now) + plus

    # --- clocks -------------------------------------------------------------------------------------------------------

    @property
    def unreadable(self) -> Unreadable:
        """Return the log of rows that were left out."""
        return self.definitions.unreadable

    @property
    def reading(self) -> Reading:
        """Return the reading of the clocks."""
        if self._begin:
            self.flush()
        if self._reading is None:
            return self._came(self.dialect.read_clocks(self.connection))
        return self._reading

    def _came(self, reading: Reading) -> Reading:
        self._reading, self.came_at = reading, self.dialect.monotonic()
        return reading

    @property
    def now(self) -> int:
        """Return the store's clock, microseconds."""
        return self.reading.now

    @property
    def lease_now(self) -> int:
        """Return the clock that judges leases, microseconds, within ``epoch``."""
        return self.reading.lease

    @property
    def epoch(self) -> str:
        """Return the epoch of that clock."""
        return self.dialect.server_epoch or self.reading.epoch

    @property
    def passed(self) -> int:
        """Return the microseconds since the clocks were read, or slightly more."""
        return self.dialect.lease_now(self.reading) - self.lease_now

    def catch_up(self) -> None:
        """Move the reading to the present: more than a moment has passed since the clocks were read."""
        reading, elapsed = self.reading, self.passed
        self._reading = replace(
            reading,
            now=reading.now + elapsed,
            lease=reading.lease + elapsed,
            asked_at=reading.asked_at + elapsed / 1_000_000,
        )

    @property
    def by_now(self) -> int:
        """Return an upper bound of the store's clock now, microseconds: later than everything committed so far.

        ``now`` is not: another transaction may have read the clock after this one, and have ended already.
        """
        return self.now + self.passed


def pieces(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Cut ``values`` into pieces of at most ``size``."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def batches(rows: Sequence[tuple[Any, ...]], max_rows: int, max_characters: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Cut rows into pieces of at most ``most``, and of about ``characters`` characters of text."""
    if len(rows) <= 1 or (len(rows) <= max_rows and sum(map(_length, zip(*rows, strict=True))) <= max_characters):
        if rows:
            yield rows
        return
    start = length = 0
    for place, row in enumerate(rows):
        row_length = _length(row)
        if place > start and (place - start >= max_rows or length + row_length > max_characters):
            yield rows[start:place]
            start, length = place, 0
        length += row_length
    yield rows[start:]


def _length(values: tuple[Any, ...]) -> int:
    """Return how many characters of text are among values."""
    if _PLAIN.issuperset(map(type, values)):  # most columns of hundreds of rows
        return 0
    return len("".join([value for value in values if isinstance(value, str)]))


_PLAIN = frozenset({int, float, type(None)})
