"""The differences between SQL databases: methods that a small class for each database implements.

The verbs are written once, and send the statements of ``queries/*.sql``; where databases differ they call the dialect.
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
        epoch: a life of the lease clock, such as a boot of a host.
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
    groups_by_seeking: bool = False
    """Whether GROUP BY seeks from group to group in an index, instead of reading each entry."""
    most_parameters: int = 500
    """How many values an ``IN (…)`` may list."""
    most_rows: int = 500
    """How many rows a statement takes."""
    most_characters: int = 10_000_000
    """How much text of rows a statement takes."""
    sends_later: bool = False
    """Whether statements by name are queued, because each sending costs a round trip."""
    asks_before_locking: bool = False
    """Whether a locking statement evaluates its condition before it locks, so the condition may itself be a lock."""
    is_a_file: bool = False
    """Whether a database is named by the path of a file."""
    server_epoch: str = ""
    """The epoch of the lease clock, if it is always the same."""

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """Return what a store on this database can do."""

    # --- transactions -------------------------------------------------------------------------------------------------

    def note_opened(self, connection: Connection) -> None:  # noqa: B027 - most have nothing to note
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

    def begin_lent(self, connection: Connection) -> None:
        """Begin a transaction in which a job's own code will write; ``end_write`` is called for it, too.

        Override it if our own transactions begin with settings that would disturb that code.
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

    def is_cut(self, error: Exception) -> bool:  # noqa: ARG002 - a file is never cut off
        """Whether an error, met at the beginning of a transaction, means that the connection was gone already."""
        return False

    def is_closed(self, error: Exception) -> bool:  # noqa: ARG002 - a file is never closed
        """Whether an error means that the server, or the way to it, closed the connection; a silent server did not.

        A silent call has taken the whole time limit, and would again.
        """
        return False

    def is_unsent(self, error: Exception) -> bool:  # noqa: ARG002 - nothing is sent to a file
        """Whether an error means that the connection was gone before everything was sent, and so before any COMMIT."""
        return False

    def is_duplicate(self, error: Exception) -> bool:  # noqa: ARG002 - with one writer, nothing comes in between
        """Whether a row was not inserted because its key exists."""
        return False

    def is_gone(self, connection: Connection) -> bool:  # noqa: ARG002 - a file is never gone
        """Whether a connection is known to be cut off, because sending on it has failed."""
        return False

    def monotonic(self) -> float:
        """Return the seconds of a clock that never steps: this host's, or the injected clock's."""
        return _HOST.monotonic()

    # --- statements by name -------------------------------------------------------------------------------------------

    @abstractmethod
    def find_query(self, name: str) -> Query:
        """Return a statement by its name in ``queries/*.sql``."""

    def query_alone(self, name: str) -> Query:
        """Return a statement that is run for a single row at a time, even if it could take many rows."""
        return self.find_query(name)

    @abstractmethod
    def send_statements(
        self, connection: Connection, queue: Sequence[Pending], *, begin: Begin, commit: bool
    ) -> Reading | None:
        """Send statements and set the answer of each, in a single trip if possible.

        Args:
            connection: on which to send.
            queue: the statements, in their order.
            begin: the kind of transaction to begin before them; if any, return the clocks read then.
            commit: commit after them, unless one touched another number of rows than expected.
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

    def can_glance(self, connection: Connection) -> bool:  # noqa: ARG002 - a transaction costs a file nothing
        """Whether a query may be sent without a transaction, to save round trips."""
        return False

    # --- errors and settings ------------------------------------------------------------------------------------------

    @abstractmethod
    def translate_error(self, error: Exception) -> CronsensusError | None:
        """Return the error for the user that an error of the driver means; ``None``: it is a bug of ours."""

    @abstractmethod
    def describe_settings(self, connection: Connection) -> dict[str, Any]:
        """Return the relevant settings of the database."""
