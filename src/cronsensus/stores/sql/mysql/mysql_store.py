"""The MySQL store: opening connections, and bringing up the schema."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cronsensus.errors import SchemaMismatch, StoreBusy, StoreUnavailable
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.enqueue_in import Plans, StepByStep
from cronsensus.stores.sql.mysql.literals import literal_of
from cronsensus.stores.sql.mysql.mysql_dialect import MysqlDialect, driver_of
from cronsensus.stores.sql.mysql.mysql_driver import open_connection, open_for_jobs, run_text
from cronsensus.stores.sql.mysql.mysql_presence import Sign, list_present, show_sign
from cronsensus.stores.sql.mysql.mysql_url import read_url
from cronsensus.stores.sql.sql_presence import PresenceStore
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.clock import Clock

_MIGRATING_FOR = 300.0
"""Seconds that a process waits for another one's steps; a statement may take twice as long."""
_STRANGE_TABLES = (
    "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() "
    "AND table_name LIKE 'cronsensus\\_%' AND engine <> 'InnoDB' ORDER BY table_name"
)
_STRANGE_WORDS = (
    "SELECT table_name, column_name, collation_name FROM information_schema.columns WHERE table_schema = DATABASE() "
    "AND table_name LIKE 'cronsensus\\_%' AND data_type = 'varchar' "
    "AND collation_name NOT IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin') ORDER BY table_name, column_name"
)


class MysqlStore(PresenceStore):
    """A store in a MySQL or MariaDB database, shared by nodes on any number of hosts.

    Example:
        >>> store = MysqlStore("mysql://app@localhost/app?timeout=10s")
        >>> store.capabilities.hosts
        'many'
    """

    def __init__(self, url: str, *, namespace: str = "default", clock: Clock | None = None) -> None:
        """Make a handle on the database that ``url`` names; nothing is opened yet.

        Raises:
            InvalidOption: the URL cannot be read, or has an option that does not exist.
        """
        self._url = read_url(url)
        super().__init__(
            namespace=namespace,
            url_and_clock=(url, clock),
            where=self._url.where,
            dialect=MysqlDialect(self._url, clock),
            connect=lambda: open_connection(self._url),
            lend=lambda: open_for_jobs(self._url),
        )
        self._place = (self._url.database, namespace)
        self._sign = Sign(lambda: open_connection(self._url), self._place)

    def _close(self) -> None:
        """Let go of connections; ends a ``wait`` in another thread."""
        self._sign.close()
        super()._close()

    def _wait(self, timeout: float) -> bool:
        """Sleep, and show the sign of life of the registered session.

        There are no notifications here, so a node looks by itself as often as it must.
        """
        self._sign.wait(timeout)
        return False

    def _register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` while something waits on this handle, and from its next renewal here."""
        super()._register_presence(session)
        self._sign.register_presence(session)

    def _show_sign(self, connection: Connection, session: str) -> bool:
        driver = driver_of(connection)
        return show_sign(driver, self._place, session) and driver.lock is not None

    def _list_present(self, tx: Transaction, sessions: Sequence[str]) -> Collection[str] | None:
        return list_present(tx, driver_of(tx.connection), self._place, sessions)

    def _notify(self) -> None:
        """Do nothing: there is no way to notify."""

    def _make_plans(self, *args: Any) -> Plans:
        return StepByStep(*args, patience=self._url.lock_timeout)

    # --- the schema ---------------------------------------------------------------------------------------------------

    def _migrate(self) -> list[str]:
        """Bring the schema up to date.

        Safe when several processes start at once: each step reads the version again under a lock of the server. Safe
        when the process dies in the middle: before and after CREATE and ALTER, MySQL commits by itself, so a step may
        be there in part; each is written so that it can be done again, and its version is noted last.
        """
        if self._is_up_to_date():
            return []
        applied: list[str] = []
        self._load_migrations()
        with self._errors_explained(), self._migration_connection() as connection:
            while True:
                with connection.transaction():
                    self._dialect.begin_write(connection)
                    step = self._take_step(self._transaction_on(connection))
                if not step:
                    return applied
                applied += step

    @contextmanager
    def _migration_connection(self) -> Iterator[Connection]:
        """Give a patient connection, on which the lock of migrations is held."""
        connection = Connection(open_connection(self._url, patience=2 * _MIGRATING_FOR))
        try:
            driver = driver_of(connection)
            # Names of locks are those of the whole server, at most 64 characters, whatever the database's.
            name = "cronsensus " + hashlib.blake2b(self._url.database.encode(), digest_size=16).hexdigest()
            name = literal_of(driver, name)
            [(lock_answer,)] = run_text(driver, f"SELECT GET_LOCK({name}, {round(_MIGRATING_FOR)})")
            if lock_answer is None:
                raise StoreUnavailable(f"{self._where} could not give the lock of migrations; try again")
            if lock_answer != 1:
                raise StoreBusy(
                    f"{self._where}: another process has been migrating for {_MIGRATING_FOR:g} s; see which: "
                    f'{self._url.client} -e "SELECT IS_USED_LOCK({name})"'
                )
            try:
                yield connection
            finally:
                if driver.open:
                    run_text(driver, f"DO RELEASE_LOCK({name})")
        finally:
            connection.close()

    def _check(self) -> None:
        """Raise unless the store can be used as it is; also if somebody has changed what its tables are made of."""
        super()._check()
        with self._read_transaction() as tx:
            driver = driver_of(tx.connection)
            tables, words = run_text(driver, _STRANGE_TABLES), run_text(driver, _STRANGE_WORDS)
        for table, engine in tables:
            raise SchemaMismatch(
                f"{self._where}: the table {table} is kept by {engine}, which has no transactions; "
                f"run: ALTER TABLE {table} ENGINE=InnoDB"
            )
        for table, column, collation in words:
            raise SchemaMismatch(
                f"{self._where}: {table}.{column} compares by {collation}, which takes different names for one; "
                "give it back utf8mb4_nopad_bin (MariaDB) or utf8mb4_0900_bin (MySQL) by ALTER TABLE"
            )

    def _check_writable(self) -> None:
        """Try to write: a replica, or a user without rights, is found now rather than by the first job."""
        with self._write_transaction() as tx:
            tx.send("touch")
