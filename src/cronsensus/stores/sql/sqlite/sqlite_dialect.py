"""The dialect of SQLite: its one write lock, the host's clocks, its settings."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from cronsensus.errors import StoreError
from cronsensus.stores.filesystems import kind_of
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.dialect import AnyRow, Dialect, Reading
from cronsensus.stores.sql.queries import Query, queries_of
from cronsensus.stores.sql.sending import NONE, Begin, Pending
from cronsensus.stores.sql.sqlite import sqlite_errors
from cronsensus.stores.sql.sqlite.epoch import Epoch
from cronsensus.stores.sql.sqlite.prepared import prepare_query, prepare_rows
from cronsensus.stores.sql.sqlite.sqlite_url import SqliteUrl
from cronsensus.stores.sql.sqlite.write_lock_queue import WriteLockQueue
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import Clock, SystemClock
from cronsensus.timing.instants import to_micros

PATIENCE = SystemClock()
"""The clock for time limits: the host's own, even if a test moves the store's clock."""
BETWEEN_TRIES = 0.003
"""Most seconds between two tries for the write lock. Transactions are short; SQLite's own pauses grow to 100 ms."""
ASIDE = 0.001
"""Seconds for which a step for work alone leaves a write lock that is taken: most transactions end within them."""
_INJECTED = "injected"
_NOT_TEXT = "Could not decode to UTF-8"


class SqliteDialect(Dialect):
    """What is particular about SQLite."""

    engine_url = "sqlite://"
    is_a_file = True

    def __init__(self, url: SqliteUrl, clock: Clock | None, pause: Callable[[float], object]) -> None:
        """Make a dialect; ``pause(seconds)`` waits, and ends early when the store is closed."""
        self.url = url
        self._clock: Clock = SystemClock() if clock is None else clock
        self.epoch = None
        if isinstance(self._clock, SystemClock):
            self.epoch = Epoch(url.path, may_be_remote=url.allow_network_fs)
        self._pause = pause
        self._write_lock_queue = WriteLockQueue(url.path, pause)
        self.wakes = True

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what an SQLite store can do."""
        return StoreCapabilities(
            name="sqlite",
            clock="host",
            lease_clock="monotonic",
            hosts="one",
            notify=self.wakes,
            transactional_finish=True,
            survives=(
                "a killed process and a power cut (as far as the disk keeps what it was told to keep)"
                if self.url.synchronous == "full"
                else "a killed process; a power cut may lose the last commits"
            ),
        )

    # --- transactions -------------------------------------------------------------------------------------------------

    def prepare_connection(self, connection: Connection) -> None:
        """Note which file was opened."""
        file = self.url.path.stat()
        connection.info["file"] = (file.st_dev, file.st_ino)

    def begin_read(self, connection: Connection) -> None:
        """Begin on one snapshot; a reader waits for no writer, but for a recovery after a crash."""
        driver = _driver_of(connection)
        self._set_busy_timeout(connection, driver, round(self.url.busy_timeout * 1000))
        self._check_same_file(connection)
        driver.execute("BEGIN")

    def begin_write(self, connection: Connection) -> None:
        """Take the write lock, now: one that begins by reading and writes later could be overtaken in between."""
        self._begin_write(connection)

    def begin_claim(self, connection: Connection) -> None:
        """Take the write lock; while another process has it, let that go on to what it does next.

        A node that is notified of work mostly finds the lock taken by the node that claims it. A waiter in the queue is
        woken before that node begins the run, and on a host with few processors in its place.
        """
        self._begin_write(connection, wait_aside=ASIDE)

    def _begin_write(self, connection: Connection, wait_aside: float = 0.0) -> None:
        driver = _driver_of(connection)
        self._set_busy_timeout(connection, driver, 0)
        self._check_same_file(connection)
        self._write_lock_queue.step_back()
        has_lock = _try_to_begin(driver)
        if not has_lock and wait_aside:
            self._pause(wait_aside)
            has_lock = _try_to_begin(driver)
        if not has_lock:
            self._wait_to_begin(driver)

    def _wait_to_begin(self, driver: sqlite3.Connection) -> None:
        deadline = PATIENCE.monotonic() + self.url.busy_timeout
        with self._write_lock_queue.waiting() as wait:
            while not _try_to_begin(driver):
                if PATIENCE.monotonic() >= deadline:
                    raise sqlite_errors.busy_error(self.url.path, self.url.busy_timeout)
                wait(BETWEEN_TRIES * random.uniform(0.5, 1.0))

    def end_write(self) -> None:
        """Notify the waiters that the write lock is free."""
        self._write_lock_queue.released()

    def _set_busy_timeout(self, connection: Connection, driver: sqlite3.Connection, millis: int) -> None:
        if connection.info.get("busy_timeout") != millis:
            driver.execute(f"PRAGMA busy_timeout={millis}")
            connection.info["busy_timeout"] = millis

    def _check_same_file(self, connection: Connection) -> None:
        """Raise if the path leads to another file than the one that is open: what is written there would be lost."""
        try:
            file_now = self.url.path.stat()
        except FileNotFoundError:
            raise sqlite_errors.replaced_error(self.url.path) from None
        if (file_now.st_dev, file_now.st_ino) != connection.info["file"]:
            raise sqlite_errors.replaced_error(self.url.path)

    def lock_migrations(self, connection: Connection) -> None:
        """Do nothing: the one write lock is held already."""

    def read_clocks(self, connection: Connection) -> Reading:  # noqa: ARG002 - they are not the database's
        """Read the host's clocks."""
        epoch = _INJECTED if self.epoch is None else self.epoch.text
        return Reading(to_micros(self._clock.now()), round(self._clock.monotonic() * 1_000_000), epoch)

    def host_now(self) -> int:
        """Return the host's time, or that of the injected clock."""
        return to_micros(self._clock.now())

    def monotonic(self) -> float:
        """Return the clock by which leases are judged."""
        return self._clock.monotonic()

    # --- statements ---------------------------------------------------------------------------------------------------

    def find_query(self, name: str) -> Query:
        """Return a statement by its name."""
        return queries_of("sqlite")[name]

    def send_statements(
        self,
        connection: Connection,
        queue: Sequence[Pending],
        *,
        begin: Begin,  # noqa: ARG002 - the write lock is taken before anything else
        commit: bool,  # noqa: ARG002 - nothing waits until the end
    ) -> None:
        """Run each statement by itself: nothing crosses a network."""
        driver = _driver_of(connection)
        for pending in queue:
            if pending.row_values is not None:
                text, pick = prepare_rows(pending.query, tuple(pending.values))
                values_of_all = tuple(pending.values.values())
                rows = (
                    [pick(row + values_of_all) for row in pending.row_values]
                    if values_of_all
                    else list(map(pick, pending.row_values))
                )
                pending.receive_answer(NONE, self.run_many(connection, text, rows))
            elif pending.query.text.startswith(("SELECT", "WITH")):
                read = partial(prepare_query(pending.query, pending.values).read_rows, driver, pending.values)
                rows_read = self._read_safely(driver, read)
                pending.receive_answer(rows_read, len(rows_read))
            else:
                pending.receive_answer(
                    NONE, prepare_query(pending.query, pending.values).run_statement(driver, pending.values).rowcount
                )
            pending.require_count()

    def _read_safely(self, driver: sqlite3.Connection, read: Callable[[], Sequence[AnyRow]]) -> Sequence[AnyRow]:
        try:
            return read()
        except sqlite3.OperationalError as error:
            if _NOT_TEXT not in str(error):
                raise
        # Rare, and slower: with half characters shown as escapes, so that what stands beside them can be read.
        driver.text_factory = _as_escapes
        try:
            return read()
        finally:
            driver.text_factory = str

    def run_many(self, connection: Connection, text: str, rows: list[Any]) -> int:
        """Run a text for each row, straight to the driver; a single row is no batch."""
        driver = _driver_of(connection)
        cursor = driver.execute(text, rows[0]) if len(rows) == 1 else driver.executemany(text, rows)
        return cursor.rowcount

    # --- trouble and looks --------------------------------------------------------------------------------------------

    def translate_error(self, error: Exception) -> StoreError | None:
        """Return what an error of the driver means to the user."""
        return sqlite_errors.translate_error(error, self.url.path, self.url.busy_timeout)

    def describe_settings(self, connection: Connection) -> dict[str, Any]:
        """Return the settings that matter."""
        driver = _driver_of(connection)

        def pragma(name: str) -> Any:
            return driver.execute(f"PRAGMA {name}").fetchone()[0]

        return {
            "file": str(self.url.path),
            "bytes": pragma("page_count") * pragma("page_size"),
            "file_system": kind_of(self.url.path),
            "sqlite": sqlite3.sqlite_version,
            "journal_mode": pragma("journal_mode"),
            "synchronous": self.url.synchronous,
            "busy_timeout": self.url.busy_timeout,
            "clock": type(self._clock).__name__,
            "lease_clock": f"monotonic, {self._describe_epoch()}",
            "wake_ups": "named pipes beside the file" if self.wakes else "none here: nodes look by themselves",
        }

    def _describe_epoch(self) -> str:
        if self.epoch is None:
            return _INJECTED
        return f"of boot {self.epoch.text}" + (f" ({self.epoch.why_not})" if self.epoch.why_not else "")


def _try_to_begin(driver: sqlite3.Connection) -> bool:
    """Take the write lock if it is free."""
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if sqlite_errors.is_busy(error):
            return False
        raise
    return True


def _as_escapes(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _driver_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection."""
    return cast("sqlite3.Connection", connection.driver)
