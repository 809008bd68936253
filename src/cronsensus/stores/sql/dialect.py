"""The differences between SQL databases: one class for each database implements ``Dialect``.

The verbs are written once. They send the statements of ``queries/*.sql``, and call the dialect where databases differ.
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
"""A row whose columns are read by name or by position."""

_HOST = SystemClock()


@dataclass(frozen=True, slots=True)
class Reading:
    """The store's clocks, read at one moment, in microseconds.

    Attributes:
        now: the clock that judges due times, since 1970 in UTC.
        lease: the clock that judges leases; comparable only within ``epoch``.
        epoch: names the run of the lease clock, such as one boot of a host; in another epoch it has started anew.
        asked_at: the host's monotonic clock just before the server was asked, in seconds.
    """

    now: int
    lease: int
    epoch: str
    asked_at: float = 0.0


class TryAgain(StoreBusy):
    """The database rolled a transaction back in favour of another; nothing was written, the verb can be repeated."""


def cause_of(error: Exception) -> Exception:
    """Return the driver's own error, if SQLAlchemy or Django has wrapped it."""
    if type(error).__module__ == "django.db.utils" and isinstance(error.__cause__, Exception):
        return error.__cause__
    return getattr(error, "orig", None) or error


class Dialect(ABC):
    """What the SQL store needs to know and do for a kind of database."""

    engine_url: str
    """SQLAlchemy's name for the database and its driver."""
    schema: str = ""
    """The schema of the tables, if it is not the connection's default."""
    seeks_between_groups: bool = False
    """Whether GROUP BY seeks in the index from one group to the next, instead of reading each entry."""
    most_parameters: int = 500
    """How many values an ``IN (…)`` may list."""
    most_rows: int = 500
    """How many rows a statement takes."""
    most_characters: int = 10_000_000
    """How many characters of row values a statement takes."""
    queues_statements: bool = False
    """Whether statements by name are queued and sent together, because each trip to the server costs time."""
    evaluates_before_locking: bool = False
    """Whether a locking statement evaluates its condition before it locks, so that the condition may take a lock."""
    is_a_file: bool = False
    """Whether a database is named by the path of a file."""
    server_epoch: str = ""
    """The epoch of the lease clock, if it is always the same."""

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """Return what a store on this database can do."""

    # --- transactions -------------------------------------------------------------------------------------------------

    def prepare_connection(self, connection: Connection) -> None:  # noqa: B027 - most have nothing to note
        """Prepare a new connection."""

    @abstractmethod
    def begin_read(self, connection: Connection) -> None:
        """Begin a transaction that only reads, on a single snapshot."""

    @abstractmethod
    def begin_write(self, connection: Connection) -> None:
        """Begin a transaction that writes; if the database has one writer at a time, wait here for the turn.

        Raises:
            StoreBusy: another writer did not end in time.
        """

    def begin_claim(self, connection: Connection) -> None:
        """Begin a transaction that only claims work: another node may be claiming the same."""
        self.begin_write(connection)

    def begin_for_user_code(self, connection: Connection) -> None:
        """Begin a transaction in which a job's own code writes; ``end_write`` is called after it, too.

        Override it if transactions of the store begin with settings that would disturb that code.
        """
        self.begin_write(connection)

    def end_write(self) -> None:  # noqa: B027 - most have nothing to do
        """Clean up after a transaction that writes has been committed or rolled back."""

    @abstractmethod
    def lock_migrations(self, connection: Connection) -> None:
        """In a write transaction, wait until no other process migrates; the lock ends with it."""

    @abstractmethod
    def read_clocks(self, connection: Connection) -> Reading:
        """Read the store's clocks; in a write transaction this is called after any wait for a lock."""

    def host_now(self) -> int | None:
        """Return the store's time in microseconds if the host's clock is used; ``None``: the server's is."""
        return None

    def lease_now(self, reading: Reading) -> int:
        """Return the lease clock as it is now, or later, without asking the server.

        ``reading`` may be outdated by the time that a row's lock became free. If transactions never wait after they
        have read the clocks, it is still good.
        """
        return reading.lease

    def is_connection_error(self, error: Exception) -> bool:  # noqa: ARG002 - a file is never cut off
        """Whether an error means that the connection is gone, and with it whatever was not committed."""
        return False

    def is_closed_by_server(self, error: Exception) -> bool:  # noqa: ARG002 - a file is never closed
        """Whether an error means that the server, or the network, closed the connection.

        A timeout does not count: a call to a server that does not answer would take the whole time limit again.
        """
        return False

    def is_error_before_commit(self, error: Exception) -> bool:  # noqa: ARG002 - nothing is sent to a file
        """Whether an error means that the connection was gone before the COMMIT was sent: nothing was written."""
        return False

    def is_duplicate_key_error(self, error: Exception) -> bool:  # noqa: ARG002 - with one writer, nothing comes in between
        """Whether an error means that a row was not inserted because its unique key exists."""
        return False

    def is_known_broken(self, connection: Connection) -> bool:  # noqa: ARG002 - a file is never gone
        """Whether a connection is known to be broken, because sending on it has failed."""
        return False

    def monotonic(self) -> float:
        """Return the seconds of a clock that never steps: this host's, or the injected clock's."""
        return _HOST.monotonic()

    # --- statements by name -------------------------------------------------------------------------------------------

    @abstractmethod
    def find_query(self, name: str) -> Query:
        """Return a statement by its name in ``queries/*.sql``."""

    def find_single_row_query(self, name: str) -> Query:
        """Return a statement in its form for a single row, even if it could take many rows."""
        return self.find_query(name)

    @abstractmethod
    def send_statements(
        self, connection: Connection, queue: Sequence[Pending], *, begin: Begin, commit: bool
    ) -> Reading | None:
        """Send statements and set the answer of each, in a single round trip if possible.

        Args:
            connection: on which to send.
            queue: the statements, in their order.
            begin: the kind of transaction to begin before them, if any; then the clocks are read and returned.
            commit: commit after them, unless a statement touched another number of rows than it expects.
        """

    def clock_value(self, connection: Connection) -> Any:
        """Return the value of the lease clock for a statement sent now, or a placeholder for the server's clock."""
        return self.read_clocks(connection).lease

    def floor_of_tokens(self, now: int) -> int | None:
        """Return the lower bound of new tokens, from the clock; ``None``: no bound."""
        return now - 1

    def undo_transaction(self, connection: Connection, text: str) -> None:
        """Roll back the transaction or a part of it, by the statement ``text``."""
        connection.execute_text(text)

    def can_read_without_transaction(self, connection: Connection) -> bool:  # noqa: ARG002 - a transaction costs a file nothing
        """Whether a query may be sent without a transaction, which saves round trips."""
        return False

    # --- errors and settings ------------------------------------------------------------------------------------------

    @abstractmethod
    def translate_error(self, error: Exception) -> CronsensusError | None:
        """Return the error for the user that an error of the driver means; ``None``: it is a bug of ours."""

    @abstractmethod
    def describe_settings(self, connection: Connection) -> dict[str, Any]:
        """Return the relevant settings of the database."""
