"""A PyMySQL connection without unbounded waits, and the session settings that it sends when it opens.

The server ends a statement that takes too long, a wait for a lock, and a connection that was left idle inside a
transaction. If the server itself falls silent, this side gives up a little later and closes the connection.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pymysql
from pymysql.constants import CLIENT, CR
from pymysql.err import OperationalError

from cronsensus.errors import InvalidOption, MissingExtra, StoreRefused
from cronsensus.stores.sql.bounds import USER_TRANSACTION_IDLE_SECONDS, VERB_IDLE_SECONDS
from cronsensus.stores.sql.mysql.mysql_url import MysqlUrl

BEYOND = 5.0
"""Seconds that this side waits longer than the server, whose own timeout leaves a usable connection."""
LENT_PATIENCE = 3600.0
"""Seconds that a statement of a job's own code may take."""
_OLDEST_MARIADB = (10, 6)
_OLDEST_MYSQL = (8, 0, 17)
"""Since 10.6 and 8.0.1 there is SKIP LOCKED, since 8.0.17 a collation that compares exactly."""
_MODE = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""A dead peer is noticed in seconds. Options that a platform does not have are left out."""


class BoundedConnection(pymysql.connections.Connection):
    """A connection on which no call takes for ever: a call that would is ended by closing the connection.

    Attributes:
        is_mariadb: whether the server is MariaDB, not MySQL.
        version: of the server, as it reports it.
        limits: seconds after which the server ends this connection when it lies idle: inside of a transaction that
            writes, and outside; ``None``: the server has separate limits for the two.
        shown, lock, shows: the session whose sign of life is on this connection, the lock that is the sign, and whether
            locks work on this server; see ``mysql_presence``.
    """

    is_mariadb = False
    version = ""
    limits: tuple[int, int] | None = None
    shown: str | None = None
    lock: str | None = None
    shows = True
    _holds_rows = False
    _committed = False

    def hold_rows(self) -> str:
        """Return SQL to send before a transaction that writes: if it stands still, the server soon ends it."""
        if self.limits is None:
            return ""
        self._holds_rows = True
        return f"SET SESSION wait_timeout = {self.limits[0]}; "

    @property
    def socket_number(self) -> int:
        """The number of the open socket."""
        return int(cast("Any", self)._sock.fileno())  # noqa: SLF001 - of this class

    @property
    def greeted_by(self) -> int:
        """The id of the server's thread for this connection."""
        return int(cast("Any", self).thread_id())

    def keep_idle_for(self, seconds: int) -> None:
        """Have the server keep this connection for so many seconds while it is idle."""
        run_text(self, f"SET SESSION wait_timeout = {seconds}")
        if self.limits is not None:
            self.limits = self.limits[0], seconds

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """Return PyMySQL's TLS context, without its 20 ms of work if the URL names no authority.

        PyMySQL then uses TLS if the server offers it, and verifies nothing; yet for every connection it first reads all
        of the system's certificates.
        """
        return super()._create_ssl_ctx(sslp) if sslp else _unverified_tls()  # type: ignore[misc]

    def query(self, sql: Any, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - PyMySQL's
        """Run a statement; return how many rows it touched, or found.

        If a signal handler raises between two packets, the connection is closed. Otherwise the next call would read
        this statement's answer: a rollback failed like that, and its error hid the user's exception.
        """
        try:
            return int(super().query(sql, unbuffered))
        except pymysql.err.MySQLError:
            raise
        except BaseException:
            self._force_close()  # type: ignore[attr-defined]
            raise

    def next_result(self, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - PyMySQL's
        """Read the answer to the next of several statements; an exception closes the connection, as in ``query``."""
        try:
            return int(super().next_result(unbuffered))
        except pymysql.err.MySQLError:
            raise
        except BaseException:
            self._force_close()  # type: ignore[attr-defined]
            raise

    def be_patient(self, seconds: float) -> None:
        """Set the time limit of calls from now on. PyMySQL has no method for it; these attributes always existed."""
        self._read_timeout = self._write_timeout = seconds

    def commit(self) -> None:
        """Commit; from now on the connection may lie idle."""
        if self._committed:
            self._committed = False
        elif not self._end_transaction("COMMIT"):
            super().commit()

    def word_of_end(self, word: str) -> list[str]:
        """Return the statements that end a transaction and set the limit for an idle connection."""
        if not self._holds_rows or self.limits is None:
            return [word]
        return [word, f"SET SESSION wait_timeout = {self.limits[1]}"]

    def note_commit(self) -> None:
        """Note that the COMMIT was sent with other statements, so the next ``commit`` does nothing."""
        self._holds_rows, self._committed = False, True

    def rollback(self) -> None:
        """Roll back, unless the connection is gone and its transaction with it."""
        self._committed = False
        if self.open and not self._end_transaction("ROLLBACK"):
            super().rollback()

    def _end_transaction(self, word: str) -> bool:
        words = self.word_of_end(word)
        if len(words) == 1:
            return False
        self._holds_rows = False
        with self.cursor() as cursor:
            cursor.execute("; ".join(words))
            while cursor.nextset():
                pass
        return True


@cache
def _unverified_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def open_connection(url: MysqlUrl, *, patience: float | None = None) -> BoundedConnection:
    """Open a connection in autocommit mode: only our own BEGIN starts a transaction, never the driver.

    Args:
        url: of the server and database.
        patience: seconds that a statement may take; ``None``: the URL's ``timeout``.

    Raises:
        StoreUnavailable: the server is too old.
        MissingExtra: the server asks for a way of logging in that needs another package.
    """
    longest = url.timeout if patience is None else patience
    driver = _connect_driver(url, CLIENT.MULTI_STATEMENTS)
    try:
        driver.be_patient(longest + BEYOND)
        for setting in session_settings(url, longest, is_mariadb=driver.is_mariadb):
            run_text(driver, f"SET SESSION {setting}")
        if not driver.is_mariadb:
            driver.limits = longest_pause(url, longest), longest_rest(longest)
    except BaseException:
        driver.close()
        raise
    return driver


def is_in_galera(driver: BoundedConnection) -> bool:
    """Whether the server is one of a Galera cluster."""
    return run_text(driver, "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'") == (("wsrep_on", "ON"),)


def _catch_up(driver: BoundedConnection) -> None:
    """Wait until a Galera server has applied everything that the other servers have acknowledged so far.

    A proxy may have led here in place of a server that is gone. The last transactions that it acknowledged are
    certified here, but perhaps not applied yet. From now on this server is the one that is written to, so no statement
    needs to wait again.
    """
    run_text(driver, "SET SESSION wsrep_sync_wait = 1")
    run_text(driver, "SELECT 1")
    run_text(driver, "SET SESSION wsrep_sync_wait = DEFAULT")


def open_for_jobs(url: MysqlUrl) -> BoundedConnection:
    """Open a connection for the code of jobs, with the server's own settings, as that code expects them.

    The exception: a connection idle in a transaction is ended. MySQL's limit applies to all idle connections.
    """
    driver = _connect_driver(url, 0)
    limit = "idle_transaction_timeout" if driver.is_mariadb else "wait_timeout"
    try:
        shortest = (
            f"IF(@@{limit} = 0, {USER_TRANSACTION_IDLE_SECONDS}, LEAST(@@{limit}, {USER_TRANSACTION_IDLE_SECONDS}))"
        )
        # MySQL accepts only an expression whose type is certainly an integer.
        run_text(driver, f"SET SESSION {limit} = CAST({shortest} AS UNSIGNED)")
        driver.be_patient(LENT_PATIENCE)
    except BaseException:
        driver.close()
        raise
    return driver


def _connect_driver(url: MysqlUrl, flags: int) -> BoundedConnection:
    try:
        driver = BoundedConnection(
            host=url.host,
            port=url.port,
            user=url.user,
            password=url.password,
            database=url.database,
            charset="utf8mb4",
            # For comparing literals; columns of names and keys have their own.
            collation="utf8mb4_bin",
            autocommit=True,
            connect_timeout=url.connect_timeout,
            # Both equal, or PyMySQL sets the socket's timeout anew before each packet.
            read_timeout=url.timeout + BEYOND,
            write_timeout=url.timeout + BEYOND,
            # FOUND_ROWS: an UPDATE returns how many rows matched, even if their values did not change.
            client_flag=CLIENT.FOUND_ROWS | flags,
            program_name="cronsensus",
            defer_connect=True,
            **cast("Any", url.driver),
        )
    except OSError as error:  # from the files that the URL names; nothing was sent yet
        raise InvalidOption(f"the URL of {url.where} names a file that cannot be read ({error}); correct it") from error
    try:
        driver.connect(None if driver.unix_socket else _reach_server(driver))
    except RuntimeError as error:
        if "cryptography" in str(error):
            raise MissingExtra(
                f"{url.where} asks for a password in a way that PyMySQL needs another package for ({error}); "
                'pip install "PyMySQL[rsa]", or connect with TLS'
            ) from error
        raise
    try:
        _refuse_old(driver, url)
        if is_in_galera(driver):
            _catch_up(driver)
    except BaseException:
        driver.close()
        raise
    return driver


def _reach_server(driver: BoundedConnection) -> socket.socket:
    """Connect to the server, with keepalive by the kernel."""
    try:
        connected = socket.create_connection((driver.host, driver.port), driver.connect_timeout)
    except OSError as error:
        message = f"Can't connect to MySQL server on '{driver.host}' ({error})"
        raise OperationalError(CR.CR_CONN_HOST_ERROR, message) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        with contextlib.suppress(AttributeError, OSError):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


def _refuse_old(driver: BoundedConnection, url: MysqlUrl) -> None:
    """Read the server's kind and version, and raise if it is too old.

    The version in the greeting is not used: a proxy may greet with its own.
    """
    [(driver.version,)] = run_text(driver, "SELECT VERSION()")
    driver.is_mariadb = "mariadb" in driver.version.lower()
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", driver.version)
    number = tuple(int(part or 0) for part in match.groups()) if match else ()
    oldest = _OLDEST_MARIADB if driver.is_mariadb else _OLDEST_MYSQL
    if number < oldest:
        raise StoreRefused(
            f"{url.where} is {'MariaDB' if driver.is_mariadb else 'MySQL'} {driver.version}, which cannot pass over "
            "locked rows or compare names exactly: cronsensus needs MariaDB 10.6 or MySQL 8.0.17, or newer; "
            "upgrade the server, or name another one in the URL"
        )


def session_settings(url: MysqlUrl, timeout: float, *, is_mariadb: bool) -> Iterator[str]:
    """Return the settings of a session, as SQL.

    READ COMMITTED, not the default REPEATABLE READ. There a transaction would go on reading the state from its
    beginning, although it has waited for a lock since and must see what the other one did; and InnoDB would lock the
    gaps between rows, so that nodes that touch different rows wait for each other, and often deadlock.
    """
    yield "TRANSACTION ISOLATION LEVEL READ COMMITTED"
    common = {
        # A server's init_connect may have set it to 0, after the handshake that reported 1 to the driver.
        "autocommit": "1",
        "time_zone": "'+00:00'",
        "sql_mode": f"'{_MODE}'",
        "sql_safe_updates": "0",
        # On a timeout InnoDB rolls back only the statement; the caller rolls back the transaction.
        "innodb_lock_wait_timeout": str(url.lock_timeout),
        # For another client's ALTER TABLE; the default is a day.
        "lock_wait_timeout": str(url.lock_timeout),
    }
    if is_mariadb:
        special = {"max_statement_time": f"{timeout:g}", "idle_transaction_timeout": str(longest_pause(url, timeout))}
    else:
        # MySQL has limits only for SELECT and for all idle connections alike. So the idle limit is set to another value
        # inside of a transaction that writes.
        special = {"max_execution_time": str(round(timeout * 1000)), "wait_timeout": str(longest_rest(timeout))}
    yield ", ".join(f"SESSION {name} = {value}" for name, value in (common | special).items()).removeprefix("SESSION ")


def longest_pause(url: MysqlUrl, timeout: float) -> int:
    """Return the seconds that a transaction may stand still.

    A caller with more patience than the URL's timeout, such as a migration, may also pause for longer.
    """
    return round(timeout if timeout > url.timeout else min(timeout, VERB_IDLE_SECONDS))


def longest_rest(timeout: float) -> int:
    """Return the seconds that a connection may lie idle; a closed connection is silently reopened."""
    return round(3 * timeout)


def run_text(driver: BoundedConnection, text: str) -> tuple[tuple[Any, ...], ...]:
    """Run a statement without parameters; return its rows."""
    with driver.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()
