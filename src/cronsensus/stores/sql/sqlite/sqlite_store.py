"""The SQLite store: opening its file, and notifying other processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cronsensus.errors import StoreRefused, StoreUnavailable, UnknownJob, UnsupportedTransaction
from cronsensus.model.occurrence import Item
from cronsensus.process.interrupts import Event
from cronsensus.stores.filesystems import is_network, kind_of
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.dialect import Reading
from cronsensus.stores.sql.sql_store import SqlStore
from cronsensus.stores.sql.sqlite import sqlite_errors
from cronsensus.stores.sql.sqlite.epoch import hold_write_lock
from cronsensus.stores.sql.sqlite.sqlite_dialect import BETWEEN_TRIES, PATIENCE, SqliteDialect
from cronsensus.stores.sql.sqlite.sqlite_url import read_url
from cronsensus.stores.sql.sqlite.sqlite_wait_queues import PipeQueues, wake_next
from cronsensus.stores.sql.sqlite.sqlite_wake import Wake
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import Clock

_WAL_LIMIT = 64 * 1024 * 1024
_OLDEST_SQLITE = (3, 24, 0)


_open_transactions: list[Callable[[Path], Any]] = []


def add_transaction_finder(find: Callable[[Path], Any]) -> None:
    """Have verbs that write join transactions that ``find`` returns.

    Args:
        find: called with the path of a store's file; returns the ``sqlite3`` connection on which the calling thread has
            a transaction open on that file, or ``None``. If that is rolled back, so is the verb's write.
    """
    _open_transactions.append(find)


def find_open_transaction(path: Path) -> Any:
    """Return the connection on which the calling thread has an open transaction on a file, or ``None``."""
    return next((connection for find in _open_transactions if (connection := find(path)) is not None), None)


class SqliteStore(SqlStore):
    """A store in a SQLite file, shared by the processes of a host.

    Example:
        >>> store = SqliteStore("sqlite:///jobs.db?busy_timeout=10s")
        >>> store.capabilities.hosts
        'one'
    """

    def __init__(self, url: str, *, namespace: str = "default", clock: Clock | None = None) -> None:
        """Make a handle on the file that ``url`` names; nothing is opened or created yet.

        Raises:
            InvalidOption: the URL has no file, or an unknown option.
        """
        self._url = read_url(url)
        self._closing = Event()
        dialect = SqliteDialect(self._url, clock, self._closing.wait)
        self._sqlite = dialect
        self._may_create = False
        super().__init__(
            namespace=namespace,
            url_and_clock=(url, clock),
            where=str(self._url.path),
            dialect=dialect,
            connect=self._open_driver,
        )
        self._wake_ups = Wake(self._url.path, namespace)
        dialect.wakes = self._wake_ups.supported

    @contextmanager
    def _write_transaction(
        self, *, queued: bool = False, begin: Callable[[Connection], None] | None = None
    ) -> Iterator[Transaction]:
        """Write in a transaction; in that of the calling code, if a finder returns one.

        There is one writer at a time: a second transaction of the same thread would wait for itself.
        """
        users_driver = find_open_transaction(self._url.path)
        if users_driver is None:
            with super()._write_transaction(queued=queued, begin=begin) as tx:
                yield tx
            return
        from cronsensus.stores.sql import borrowing

        with self._read_transaction() as own:
            reading = Reading(own.now, own.lease_now, own.epoch)
        with self._errors_explained(), borrowing.borrow_connection(users_driver, self._engine) as users_connection:
            tx = Transaction(
                users_connection, borrowing.BorrowingDialect(self._dialect, reading), self.namespace, self._definitions
            )
            yield tx
            tx.flush()

    def _migrate(self) -> list[str]:
        """Create the file if there is none, and bring its schema up to date."""
        self._may_create = True
        try:
            self._connections.forget_idle()
            return super()._migrate()
        finally:
            self._may_create = False

    def _close(self) -> None:
        """Close the connections and the wake-up pipe."""
        self._closing.set()
        self._wake_ups.close()
        super()._close()
        if self._sqlite.epoch is not None:
            self._sqlite.epoch.leave_epoch()

    def _wait(self, timeout: float) -> bool:
        """Wait for a notification."""
        notified = self._wake_ups.wait(timeout)
        self._sqlite.wakes = self._wake_ups.supported
        return notified

    def _notify(self) -> None:
        """Wake the other handles of this namespace on this host."""
        self._wake_ups.notify()

    @property
    def _notifies_after(self) -> bool:
        """Whether nodes are notified by a hook; without one they notice the write to the log a little later."""
        return True

    def _prepare_plan(self, items: Sequence[Item], *, is_open: bool) -> None:
        try:
            self._plans.find_jobs(items)
        except UnknownJob as unknown:
            if not is_open:
                raise  # so it can be defined first
            raise UnsupportedTransaction(
                f"{unknown}. It cannot be defined while your transaction is open, as SQLite has one writer at a time: "
                "call scheduler.define() when the program starts, or start a node once"
            ) from unknown

    def _wait_queues(self) -> WaitQueues:
        return PipeQueues(self._url.path, self.namespace)

    def _wake_next(self, name: str) -> None:
        """Notify the process on this host that has waited longest for a lock."""
        wake_next(self._url.path, self.namespace, name)

    def _check_writable(self) -> None:
        """Try to begin a write: a read-only file or directory is noticed now rather than by the first job."""
        # SQLite can begin a write on a file that it opened read-only, and fails only at the first change.
        if sqlite_errors.is_read_only(self._url.path):
            raise sqlite_errors.read_only(self._url.path)
        with self._write_transaction():
            pass

    # --- opening ------------------------------------------------------------------------------------------------------

    def _open_driver(self) -> sqlite3.Connection:
        """Open a connection in autocommit mode: only our own BEGIN starts a transaction, never the driver."""
        url = self._url
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise StoreRefused(
                f"SQLite {sqlite3.sqlite_version} is too old, 3.24 is the least; use a Python that brings a newer one"
            )
        kind = None if url.allow_network_fs else kind_of(url.path.parent)
        if is_network(kind):
            raise StoreRefused(
                f"{url.path} lies on a network file system ({kind}), where SQLite's locks do not hold between hosts; "
                "use a local disk, or a server (postgresql://…). If only one host ever uses it: ?allow_network_fs=1"
            )
        if not self._may_create and not url.path.exists():
            raise sqlite_errors.cannot_open(url.path, "no such file")
        mode = "rwc" if self._may_create else "rw"
        if not self._may_create and sqlite_errors.is_read_only(url.path) and not Path(f"{url.path}-wal").exists():
            # A read-only copy. SQLite would fail to create files beside it, and then not open it.
            mode = "ro&immutable=1"
        driver = sqlite3.connect(
            f"file:{quote(str(url.path))}?mode={mode}",
            uri=True,
            timeout=url.busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            if self._may_create:
                self._use_write_ahead_log(driver)
            driver.execute(f"PRAGMA synchronous={url.synchronous}")
            driver.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT}")
            driver.execute("PRAGMA temp_store=memory")
            if self._sqlite.epoch is not None:
                self._sqlite.epoch.enter_epoch(lambda: self._write_lock(driver))
        except BaseException:
            driver.close()
            raise
        return driver

    def _write_lock(self, driver: sqlite3.Connection) -> AbstractContextManager[object]:
        """Hold SQLite's write lock; an open transaction of the calling code has it already."""
        users_driver = find_open_transaction(self._url.path)
        if users_driver is None:
            return hold_write_lock(driver)
        users_driver.execute("DELETE FROM cronsensus_counters WHERE 1 = 0")  # takes the lock, if it is not held yet
        return nullcontext()

    def _use_write_ahead_log(self, driver: sqlite3.Connection) -> None:
        """Set the journal mode, which the file keeps.

        Several processes may do so in the same instant, and SQLite answers "locked" to all but one, without waiting.
        """
        deadline = PATIENCE.monotonic() + self._url.busy_timeout
        while True:
            try:
                [mode] = driver.execute("PRAGMA journal_mode").fetchone()
                if mode != "wal":
                    [mode] = driver.execute("PRAGMA journal_mode=wal").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not sqlite_errors.is_busy(error) or PATIENCE.monotonic() >= deadline:
                    raise
            self._closing.wait(BETWEEN_TRIES)
        if mode != "wal":
            raise StoreUnavailable(
                f"{self._url.path} cannot use a write-ahead log here (journal mode {mode}): "
                "its file system has no shared memory; choose a path on a local disk"
            )
