"""What differs between SQL databases, as questions that a small class per database answers.

The verbs are written once, and send the statements of ``queries/*.sql``; where databases differ they ask here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cronsensus.errors import CronsensusError, StoreBusy
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.queries import Query
from cronsensus.stores.sql.sending import Begin, Pending
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import SystemClock

AnyRow = Any
"""A row with its columns by name and by place."""

_HOST = SystemClock()


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the store's clocks, in microseconds.

    Attributes:
        now: the clock that judges due times, since 1970 in UTC.
        lease: the clock that judges leases; comparable only within ``epoch``.
        epoch: one life of the lease clock, such as one boot of a host.
        asked_at: the host's monotonic clock just before a server was asked, seconds.
    """

    now: int
    lease: int
    epoch: str
    asked_at: float = 0.0


class TryAgain(StoreBusy):
    """The database ended a transaction in favour of another one; nothing was written, and the verb can be repeated."""


def cause_of(error: Exception) -> Exception:
    """Return the driver's own error, where SQLAlchemy or Django has put one around it."""
    if type(error).__module__ == "django.db.utils" and isinstance(error.__cause__, Exception):
        return error.__cause__
    return getattr(error, "orig", None) or error


class Dialect(ABC):
    """The answers of one database."""

    engine_url: str
    """What SQLAlchemy calls the database and its driver."""
    schema: str = ""
    """Where the tables are, if it is not where the connection leads."""
    groups_by_seeking: bool = False
    """Whether GROUP BY goes from group to group in an index, instead of reading each entry."""
    most_parameters: int = 500
    """How many values one ``IN (…)`` may list."""
    most_rows: int = 500
    """How many rows one statement takes."""
    most_characters: int = 10_000_000
    """How much text of rows one statement takes."""
    sends_later: bool = False
    """Whether statements by name wait for each other, because it costs a trip to send them."""
    asks_before_locking: bool = False
    """Whether a statement that locks rows on a condition knows that first, and the condition may be a lock itself."""
    is_a_file: bool = False
    """Whether a database is named by the path of a file."""
    server_epoch: str = ""
    """The epoch of the lease clock, where it is always the same."""

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """Return what a store on this database can do."""

    # --- transactions -------------------------------------------------------------------------------------------------

    def note_opened(self, connection: Connection) -> None:  # noqa: B027 - most have nothing to note
        """Be told of a new connection."""

    @abstractmethod
    def begin_read(self, connection: Connection) -> None:
        """Begin a transaction that only reads, on one snapshot."""

    @abstractmethod
    def begin_write(self, connection: Connection) -> None:
        """Begin a transaction that writes; where there is one writer at a time, wait here until this is it.

        Raises:
            StoreBusy: another writer did not end in time.
        """

    def begin_claim(self, connection: Connection) -> None:
        """Begin a transaction that claims work and says nothing: another node may be claiming the same."""
        self.begin_write(connection)

    def begin_lent(self, connection: Connection) -> None:
        """Begin a transaction that a job's own code will write in; ``end_write`` is called for it, too.

        To be written where transactions of ours begin with settings that would be in that code's way.
        """
        self.begin_write(connection)

    def end_write(self) -> None:  # noqa: B027 - most have nothing to do
        """Be told that a transaction that writes has ended, one way or the other."""

    @abstractmethod
    def lock_migrations(self, connection: Connection) -> None:
        """In a write transaction, wait until no other process migrates; let go at its end."""

    @abstractmethod
    def read_clocks(self, connection: Connection) -> Reading:
        """Read the store's clocks; in a write transaction this is called after any wait for a lock."""

    def host_now(self) -> int | None:
        """Return the store's time where the host keeps it, microseconds; ``None``: the server does."""
        return None

    def lease_now(self, reading: Reading) -> int:
        """Return the lease clock as it is now, or later; without asking the server.

        ``reading`` may be old by the time that a row's lock came free. Where transactions wait for nothing after they
        read the clocks, it is still good.
        """
        return reading.lease

    def is_cut(self, error: Exception) -> bool:  # noqa: ARG002 - a file is never cut off
        """Whether an error, met at the beginning of a transaction, means that the connection was gone already."""
        return False

    def is_closed(self, error: Exception) -> bool:  # noqa: ARG002 - a file is never closed
        """Whether an error means that the server, or the way to it, closed the connection; not that it was silent.

        A silence has taken as long as a call may, and would again.
        """
        return False

    def is_unsent(self, error: Exception) -> bool:  # noqa: ARG002 - nothing is sent to a file
        """Whether an error means that the connection was gone before all was sent, and so before any COMMIT."""
        return False

    def is_duplicate(self, error: Exception) -> bool:  # noqa: ARG002 - with one writer, nothing comes in between
        """Whether a row was not inserted because one with its key is there."""
        return False

    def is_gone(self, connection: Connection) -> bool:  # noqa: ARG002 - a file is never gone
        """Whether a connection is known to be cut off: something was sent on it, and that was found out."""
        return False

    def monotonic(self) -> float:
        """Return the seconds of a clock that never steps: this host's, or the one that comes with an injected clock."""
        return _HOST.monotonic()

    # --- statements by name -------------------------------------------------------------------------------------------

    @abstractmethod
    def find_query(self, name: str) -> Query:
        """Return a statement by its name in ``queries/*.sql``."""

    def query_alone(self, name: str) -> Query:
        """Return a statement that is run for one row at a time, also where many rows would go together."""
        return self.find_query(name)

    @abstractmethod
    def send_statements(
        self, connection: Connection, queue: Sequence[Pending], *, begin: Begin, commit: bool
    ) -> Reading | None:
        """Send statements and give each its answer, in one trip where possible.

        Args:
            connection: where.
            queue: the statements, in their order.
            begin: which kind of transaction to begin before them; if any, return what the clocks said then.
            commit: commit behind them, unless one touched another number of rows than expected.
        """

    def clock_value(self, connection: Connection) -> Any:
        """Return the value of the lease clock for a statement that is sent now; or what lets the server put it in."""
        return self.read_clocks(connection).lease

    def floor_of_tokens(self, now: int) -> int | None:
        """Return what the statement that takes tokens is told of the clock, below which it gives none."""
        return now - 1

    def undo_transaction(self, connection: Connection, text: str) -> None:
        """Roll back, as a statement says it, all of the transaction or a part of it."""
        connection.execute_text(text)

    def can_glance(self, connection: Connection) -> bool:  # noqa: ARG002 - a transaction costs a file nothing
        """Whether a query may go without a transaction around it, where that saves journeys to a server."""
        return False

    # --- trouble and looks --------------------------------------------------------------------------------------------

    @abstractmethod
    def translate_error(self, error: Exception) -> CronsensusError | None:
        """Return what an error of the driver means to the user; ``None``: it is a mistake of ours."""

    @abstractmethod
    def describe_settings(self, connection: Connection) -> dict[str, Any]:
        """Return the database's settings that matter."""
