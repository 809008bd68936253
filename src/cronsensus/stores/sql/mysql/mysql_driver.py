"""A connection of PyMySQL that never waits for ever, and what the server is told when one is opened.

Whichever side falls silent, nothing hangs: the server ends a statement that takes too long, a wait for a lock, and a
connection that was left idle inside a transaction; and where the server itself says nothing, this side gives up a
little later and closes the connection.
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
"""Seconds that this side waits longer than the server, which gives up in better order."""
LENT_PATIENCE = 3600.0
"""Seconds that a statement of a job's own code may take."""
_OLDEST_MARIADB = (10, 6)
_OLDEST_MYSQL = (8, 0, 17)
"""Since 10.6 and 8.0.1 there is SKIP LOCKED, since 8.0.17 a collation that compares exactly."""
_MODE = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""A peer that is silently gone is found out in seconds. What a platform does not know, it does without."""


class BoundedConnection(pymysql.connections.Connection):
    """A connection on which no call takes for ever; one that would is closed.

    Attributes:
        is_mariadb: which of the two it is.
        version: of the server, as it says it.
        limits: seconds after which the server ends this connection when it lies idle inside of a transaction that
            writes, and outside; ``None``: it tells the two apart by itself.
        shown, lock, shows: the session whose sign of life is on this connection, the lock that is the sign, and whether
            a lock means something here; see ``mysql_presence``.
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
        """Return what to say before a transaction that writes, so that none waits for one that stands still."""
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
        """The number of the thread that greeted this client."""
        return int(cast("Any", self).thread_id())

    def keep_idle_for(self, seconds: int) -> None:
        """Let the server keep this connection for so long while it is not used."""
        run_text(self, f"SET SESSION wait_timeout = {seconds}")
        if self.limits is not None:
            self.limits = self.limits[0], seconds

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """Return what PyMySQL would, without its 20 ms of work where no authority was named.

        It then uses TLS if the server offers it, and verifies nothing; yet for every connection it first reads all of
        the system's certificates.
        """
        return super()._create_ssl_ctx(sslp) if sslp else _unverified_tls()  # type: ignore[misc]

    def query(self, sql: Any, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - PyMySQL's
        """Run a statement; return how many rows it touched, or found.

        The connection is closed if a signal handler raises between two packets. The next answer would be the one
        before: what would roll back failed by that, and this was told in place of the user's exception.
        """
        try:
            return int(super().query(sql, unbuffered))
        except pymysql.err.MySQLError:
            raise
        except BaseException:
            self._force_close()  # type: ignore[attr-defined]
            raise

    def next_result(self, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - PyMySQL's
        """Read the answer to the next of several statements; closed as in ``query``."""
        try:
            return int(super().next_result(unbuffered))
        except pymysql.err.MySQLError:
            raise
        except BaseException:
            self._force_close()  # type: ignore[attr-defined]
            raise

    def be_patient(self, seconds: float) -> None:
        """Let a call take so long from now on. PyMySQL has no word for it; these names it has always had."""
        self._read_timeout = self._write_timeout = seconds

    def commit(self) -> None:
        """Commit; from now on the connection may lie idle."""
        if self._committed:
            self._committed = False
        elif not self._end_transaction("COMMIT"):
            super().commit()

    def word_of_end(self, word: str) -> list[str]:
        """Return what to say to end a transaction; from then on the connection may lie idle."""
        if not self._holds_rows or self.limits is None:
            return [word]
        return [word, f"SET SESSION wait_timeout = {self.limits[1]}"]

    def has_committed(self) -> None:
        """Be told that the COMMIT went with other statements: the next one has nothing to do."""
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
    """Open a connection in autocommit mode: transactions are begun by us alone, never behind our back.

    Args:
        url: where.
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
    """Wait until a server of a Galera cluster has carried out all that the others acknowledged so far.

    A proxy may have led here in place of a server that is gone. What that one acknowledged last is certified here, and
    may not be written yet. From now on this server is the one that is written to, so no statement needs to wait again.
    """
    run_text(driver, "SET SESSION wsrep_sync_wait = 1")
    run_text(driver, "SELECT 1")
    run_text(driver, "SET SESSION wsrep_sync_wait = DEFAULT")


def open_for_jobs(url: MysqlUrl) -> BoundedConnection:
    """Open a connection for the code of jobs: with the server's own settings, as that code expects them.

    But for one: what is left idle in a transaction is ended. MySQL can do so only with all that is idle.
    """
    driver = _connect_driver(url, 0)
    limit = "idle_transaction_timeout" if driver.is_mariadb else "wait_timeout"
    try:
        shortest = (
            f"IF(@@{limit} = 0, {USER_TRANSACTION_IDLE_SECONDS}, LEAST(@@{limit}, {USER_TRANSACTION_IDLE_SECONDS}))"
        )
        # MySQL takes nothing for a number of seconds that might be another kind of number.
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
            # Of literals among themselves; names and keys bring their own.
            collation="utf8mb4_bin",
            autocommit=True,
            connect_timeout=url.connect_timeout,
            # Both alike, or PyMySQL sets the socket's timeout anew before each packet.
            read_timeout=url.timeout + BEYOND,
            write_timeout=url.timeout + BEYOND,
            # FOUND_ROWS: an UPDATE answers how many rows it found, also where it changed nothing in them.
            client_flag=CLIENT.FOUND_ROWS | flags,
            program_name="cronsensus",
            defer_connect=True,
            **cast("Any", url.driver),
        )
    except OSError as error:  # of the files that the URL names; the server was not asked yet
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
    """Connect to the server; the kernel watches over the connection from then on."""
    try:
        reached = socket.create_connection((driver.host, driver.port), driver.connect_timeout)
    except OSError as error:
        message = f"Can't connect to MySQL server on '{driver.host}' ({error})"
        raise OperationalError(CR.CR_CONN_HOST_ERROR, message) from error
    reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reached.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        with contextlib.suppress(AttributeError, OSError):
            reached.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return reached


def _refuse_old(driver: BoundedConnection, url: MysqlUrl) -> None:
    """Learn which server answers, of which version, and raise if it cannot do what is needed.

    The greeting is not asked: what stands in between may greet with a version of its own.
    """
    [(driver.version,)] = run_text(driver, "SELECT VERSION()")
    driver.is_mariadb = "mariadb" in driver.version.lower()
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", driver.version)
    number = tuple(int(part or 0) for part in found.groups()) if found else ()
    oldest = _OLDEST_MARIADB if driver.is_mariadb else _OLDEST_MYSQL
    if number < oldest:
        raise StoreRefused(
            f"{url.where} is {'MariaDB' if driver.is_mariadb else 'MySQL'} {driver.version}, which cannot pass over "
            "locked rows or compare names exactly: cronsensus needs MariaDB 10.6 or MySQL 8.0.17, or newer; "
            "upgrade the server, or name another one in the URL"
        )


def session_settings(url: MysqlUrl, timeout: float, *, is_mariadb: bool) -> Iterator[str]:
    """Return what a session is told, as SQL.

    READ COMMITTED, not the default REPEATABLE READ. There a transaction would go on reading what stood when it began,
    although it has waited for a lock since and must see what the other one did; and InnoDB would lock the gaps between
    rows, so that nodes that touch different rows wait for each other, and often for ever (a deadlock).
    """
    yield "TRANSACTION ISOLATION LEVEL READ COMMITTED"
    common = {
        # A server's init_connect may have set it to 0, after the handshake in which the driver was told that it is 1.
        "autocommit": "1",
        "time_zone": "'+00:00'",
        "sql_mode": f"'{_MODE}'",
        "sql_safe_updates": "0",
        # On a timeout InnoDB undoes the statement only; the transaction is ours to roll back, and is.
        "innodb_lock_wait_timeout": str(url.lock_timeout),
        # For somebody's ALTER TABLE; the default is a day.
        "lock_wait_timeout": str(url.lock_timeout),
    }
    if is_mariadb:
        special = {"max_statement_time": f"{timeout:g}", "idle_transaction_timeout": str(longest_pause(url, timeout))}
    else:
        # MySQL bounds only SELECT, and knows no limit for idle transactions but that of all idle connections, which is
        # therefore another one inside of a transaction that writes.
        special = {"max_execution_time": str(round(timeout * 1000)), "wait_timeout": str(longest_rest(timeout))}
    yield ", ".join(f"SESSION {name} = {value}" for name, value in (common | special).items()).removeprefix("SESSION ")


def longest_pause(url: MysqlUrl, timeout: float) -> int:
    """Return the seconds that a transaction may stand still.

    What is patient for longer than the URL says, as a migration is, may also pause for longer.
    """
    return round(timeout if timeout > url.timeout else min(timeout, VERB_IDLE_SECONDS))


def longest_rest(timeout: float) -> int:
    """Return the seconds that a connection may lie idle; one that was closed is opened anew without a word."""
    return round(3 * timeout)


def run_text(driver: BoundedConnection, text: str) -> tuple[tuple[Any, ...], ...]:
    """Run one statement of our own words; return its rows."""
    with driver.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()
