"""The SQLite store: the default, for any number of processes on one host. Floor 3.

Write-ahead log; every verb that writes begins with ``BEGIN IMMEDIATE``, so there is one writer at a time and none of
its reads can be overtaken; ``synchronous=FULL``, so an acknowledged write outlives a power cut. Due times are judged by
the host's wall clock, leases by its monotonic clock: setting the clock kills no lease.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, quote

from sqlalchemy import Connection, Engine, Insert, Table, create_engine
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.pool import NullPool

from cronsensus.clock import Clock, SystemClock
from cronsensus.errors import InvalidOption, StoreError, StoreUnavailable
from cronsensus.model.durations import parse_duration
from cronsensus.model.instants import to_micros
from cronsensus.model.job import unknown_option
from cronsensus.stores.base import StoreCapabilities
from cronsensus.stores.sql import errors
from cronsensus.stores.sql.dialect import TAKE_TOKENS, Dialect, Reading
from cronsensus.stores.sql.filesystems import is_network, kind_of
from cronsensus.stores.sql.handover import Handover
from cronsensus.stores.sql.schema import counters
from cronsensus.stores.sql.store import SqlStore
from cronsensus.stores.sql.wake import Wake

BUSY_TIMEOUT = 5.0
_OPTIONS = {"busy_timeout", "synchronous", "allow_network_fs"}
_BETWEEN_TRIES = 0.003
"""Most seconds between two tries for the write lock. Transactions are short; SQLite's own pauses grow to 100 ms."""
_WAL_LIMIT = 64 * 1024 * 1024
_OLDEST_SQLITE = (3, 24, 0)
_RETURNING_SINCE = (3, 35, 0)
_TAKE_TOKENS = TAKE_TOKENS.returning(counters.c.value)


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """What a URL says.

    Attributes:
        busy_timeout: seconds to wait for the write lock. synchronous: ``"full"``, or ``"normal"``: faster, and a power
        cut may lose the last commits (a killed process never does). allow_network_fs: open the file although other
        hosts could too; for those who know that none does.
    """

    path: Path
    busy_timeout: float = BUSY_TIMEOUT
    synchronous: str = "full"
    allow_network_fs: bool = False


def read_url(url: str) -> SqliteUrl:
    """Read ``sqlite:///relative.db`` or ``sqlite:////absolute.db``, with options.

    Raises:
        InvalidOption: it names no file, or an option that does not exist.
    """
    rest, _, query = url.removeprefix("sqlite:").partition("?")
    name = rest.removeprefix("///")
    if not name or ":memory:" in name or name == rest:
        if name and not rest.startswith("//") and ":memory:" not in name:
            raise InvalidOption(
                f"{url!r}: write sqlite:///{name.lstrip('/')} (relative) or sqlite:////{name.lstrip('/')} (absolute)"
            )
        if rest.startswith("//") and rest.strip("/") and ":memory:" not in name:
            raise InvalidOption(
                f"{url!r}: a file needs three slashes, or four for an absolute path: sqlite:///{rest.strip('/')}"
            )
        raise InvalidOption(
            f"{url!r} names no file: an SQLite database in memory cannot be shared between processes; "
            "for tests and single processes use memory://, else sqlite:///path/to/file.db"
        )
    if "\0" in name:
        raise InvalidOption(f"{url!r}: a path cannot hold NUL")
    # Absolute from here on: a later chdir() must not lead to another file.
    parsed = SqliteUrl(Path(os.path.abspath(name)))
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option == "busy_timeout":
            parsed = replace(parsed, busy_timeout=parse_duration(value, what="busy_timeout").total_seconds())
        elif option == "synchronous":
            if value.lower() not in {"full", "normal"}:
                raise InvalidOption(f"synchronous={value!r}: choose one of 'full', 'normal'")
            parsed = replace(parsed, synchronous=value.lower())
        elif option == "allow_network_fs":
            parsed = replace(parsed, allow_network_fs=value.lower() in {"1", "true", "yes", "on"})
        else:
            raise unknown_option(option, _OPTIONS, where="an SQLite URL")
    return parsed


class SqliteDialect(Dialect):
    """What is particular about SQLite."""

    def __init__(self, url: SqliteUrl, clock: Clock | None, pause: Callable[[float], object]) -> None:
        """Make a dialect; ``pause(seconds)`` waits, and ends early when the store is closed."""
        super().__init__()
        self.url = url
        self._clock: Clock = clock or SystemClock()
        self._epoch = _boot_id() if isinstance(self._clock, SystemClock) else "injected"
        self._handover = Handover(url.path, pause)
        self._inserts: dict[tuple[str, tuple[str, ...]], Insert] = {}
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
            transactional_finish=False,
            survives=(
                "a killed process and a power cut (as far as the disk keeps what it was told to keep)"
                if self.url.synchronous == "full"
                else "a killed process; a power cut may lose the last commits"
            ),
        )

    # --- transactions -------------------------------------------------------------------------------------------------

    def begin_read(self, connection: Connection) -> None:
        """Begin on one snapshot; a reader waits for nobody, but for a recovery after a crash."""
        driver = _driver(connection)
        self._set_busy_timeout(connection, driver, round(self.url.busy_timeout * 1000))
        self._check_same_file(connection)
        driver.execute("BEGIN")

    def begin_write(self, connection: Connection) -> None:
        """Take the write lock, now: one that begins by reading and writes later could be overtaken in between."""
        driver = _driver(connection)
        self._set_busy_timeout(connection, driver, 0)
        self._check_same_file(connection)
        self._handover.step_back()
        if _try_to_begin(driver):
            return
        # Patience is measured by the host's own clock, also where a test moves the store's by hand.
        deadline = _PATIENCE.monotonic() + self.url.busy_timeout
        with self._handover.waiting() as wait:
            while not _try_to_begin(driver):
                if _PATIENCE.monotonic() >= deadline:
                    raise errors.busy(self.url.path, self.url.busy_timeout)
                wait(_BETWEEN_TRIES * random.uniform(0.5, 1.0))

    def end_write(self) -> None:
        """Tell who waits that the write lock is free."""
        self._handover.released()

    def _set_busy_timeout(self, connection: Connection, driver: sqlite3.Connection, millis: int) -> None:
        if connection.info.get("busy_timeout") != millis:
            driver.execute(f"PRAGMA busy_timeout={millis}")
            connection.info["busy_timeout"] = millis

    def _check_same_file(self, connection: Connection) -> None:
        """Raise if the path leads to another file than the one that is open: what is written there would be lost."""
        try:
            found = os.stat(self.url.path)
        except FileNotFoundError:
            raise errors.replaced(self.url.path) from None
        if (found.st_dev, found.st_ino) != connection.info["file"]:
            raise errors.replaced(self.url.path)

    def lock_migrations(self, connection: Connection) -> None:
        """Do nothing: the one write lock is held already."""

    def read_clocks(self, connection: Connection) -> Reading:
        """Read the host's clocks."""
        return Reading(to_micros(self._clock.now()), round(self._clock.monotonic() * 1_000_000), self._epoch)

    # --- statements ---------------------------------------------------------------------------------------------------

    def insert_absent(self, table: Table, unique: Sequence[str]) -> Insert:
        """Return INSERT … ON CONFLICT (…) DO NOTHING."""
        key = (table.name, tuple(unique))
        found = self._inserts.get(key)
        if found is None:
            found = self._inserts[key] = sqlite_insert(table).on_conflict_do_nothing(index_elements=list(unique))
        return found

    def next_tokens(self, connection: Connection, count: int) -> range:
        """Take fencing tokens, in one statement where SQLite can."""
        if sqlite3.sqlite_version_info < _RETURNING_SINCE:
            return super().next_tokens(connection, count)
        last = int(connection.execute(_TAKE_TOKENS, {"count": count}).scalar_one())
        return range(last - count + 1, last + 1)

    # --- trouble and looks --------------------------------------------------------------------------------------------

    def translate(self, error: Exception) -> StoreError | None:
        """Return what an error of the driver means to the user."""
        cause = getattr(error, "orig", None) or error
        return errors.translate(cause, self.url.path, self.url.busy_timeout)

    def describe(self, connection: Connection) -> dict[str, Any]:
        """Return the settings that matter."""
        driver = _driver(connection)

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
            "lease_clock": f"monotonic, of boot {self._epoch}",
            "wake_ups": "named pipes beside the file" if self.wakes else "none here: nodes look by themselves",
        }


class SqliteStore(SqlStore):
    """A store in one SQLite file, shared by the processes of one host.

    Example:
        >>> store = SqliteStore("sqlite:///jobs.db?busy_timeout=10s")
        >>> store.capabilities.hosts
        'one'
    """

    def __init__(self, url: str, *, namespace: str = "default", clock: Clock | None = None) -> None:
        """Make a handle on the file that ``url`` names; nothing is opened or created yet.

        Raises:
            InvalidOption: the URL names no file, or an option that does not exist.
        """
        self._url = read_url(url)
        self._given = (url, clock)
        self._closing = threading.Event()
        dialect = SqliteDialect(self._url, clock, self._closing.wait)
        self._sqlite = dialect
        self._engine: Engine | None = None
        self._may_create = False
        super().__init__(namespace=namespace, where=str(self._url.path), dialect=dialect, connect=self._connect)
        self._wake = Wake(self._url.path, namespace)
        dialect.wakes = self._wake.supported

    def sibling(self) -> SqliteStore:
        """Return a handle with connections and a wake-up pipe of its own."""
        url, clock = self._given
        return type(self)(url, namespace=self.namespace, clock=clock)

    def migrate(self) -> list[str]:
        """Create the file if there is none, and bring its schema up to date."""
        self._may_create = True
        try:
            self._connections.forget_idle()
            return super().migrate()
        finally:
            self._may_create = False

    def close(self) -> None:
        """Let go of connections and of the wake-up pipe."""
        self._closing.set()
        self._wake.close()
        super().close()

    def wait(self, timeout: float) -> bool:
        """Wait for a hint."""
        hinted = self._wake.wait(timeout)
        self._sqlite.wakes = self._wake.supported
        return hinted

    def notify(self) -> None:
        """Wake the other handles of this namespace on this host."""
        self._wake.notify()

    def _check_writable(self) -> None:
        """Try to begin a write: a read-only file or directory is found now rather than by the first job."""
        with self._writing():
            pass

    # --- opening ------------------------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        """Open a connection, in autocommit mode: transactions are begun by us alone, never behind our back."""
        if self._engine is None:
            self._engine = create_engine("sqlite://", creator=self._open, poolclass=NullPool)
        connection = self._engine.connect()
        file = os.stat(self._url.path)
        connection.info["file"] = (file.st_dev, file.st_ino)
        return connection

    def _open(self) -> sqlite3.Connection:
        url = self._url
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old, 3.24 is the least; use a Python that brings a newer one"
            )
        kind = None if url.allow_network_fs else kind_of(url.path.parent)
        if is_network(kind):
            raise StoreUnavailable(
                f"{url.path} lies on a network file system ({kind}), where SQLite's locks do not hold between hosts; use a local "
                "disk, or a server (postgresql://…). If only one host ever uses it: ?allow_network_fs=1"
            )
        if not self._may_create and not url.path.exists():
            raise errors.cannot_open(url.path, "no such file")
        mode = "rwc" if self._may_create else "rw"
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
        except BaseException:
            driver.close()
            raise
        return driver

    def _use_write_ahead_log(self, driver: sqlite3.Connection) -> None:
        """Set the journal mode, which is kept in the file. Several processes may do so at once; SQLite lets only one at
        a time.
        """
        deadline = _PATIENCE.monotonic() + self._url.busy_timeout
        while True:
            try:
                [mode] = driver.execute("PRAGMA journal_mode").fetchone()
                if mode != "wal":
                    [mode] = driver.execute("PRAGMA journal_mode=wal").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not errors.is_busy(error) or _PATIENCE.monotonic() >= deadline:
                    raise
            self._closing.wait(_BETWEEN_TRIES)
        if mode != "wal":
            raise StoreUnavailable(
                f"{self._url.path} cannot use a write-ahead log here (journal mode {mode}): its file system has no shared memory; "
                "choose a path on a local disk"
            )


_PATIENCE = SystemClock()


def _try_to_begin(driver: sqlite3.Connection) -> bool:
    """Take the write lock if it is free."""
    try:
        driver.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if errors.is_busy(error):
            return False
        raise
    return True


def _driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's own connection."""
    return cast("sqlite3.Connection", connection.connection.dbapi_connection)


def _boot_id() -> str:
    """Return what tells this boot of the host from any other: monotonic clocks begin anew with each."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    import psutil

    # Derived from two clocks, so it wavers by a second or so; a quarter of an hour is shorter than any reboot cycle
    # that matters.
    return f"boot-{round(psutil.boot_time() / 900)}"
