"""The dialect of MySQL and MariaDB: InnoDB's locks, the server's clock, statements that take many rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pymysql.constants import CLIENT
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from cronsensus.errors import CronsensusError
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.dialect import Dialect, Reading
from cronsensus.stores.sql.mysql import mysql_errors, mysql_presence, packets
from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection, is_in_galera, run_text
from cronsensus.stores.sql.mysql.mysql_url import MysqlUrl
from cronsensus.stores.sql.mysql.packets import CLOCK, MOST_CHARACTERS, OUT_OF_RANGE, Part
from cronsensus.stores.sql.queries import Query, queries_of
from cronsensus.stores.sql.sending import NONE, Begin, Moment, Pending, wrong_count
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import Clock
from cronsensus.timing.instants import to_micros

_NOW = CLOCK
_READ = (
    # For the next transaction only; the session is at READ COMMITTED.
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
)
_WRITE = "START TRANSACTION"
_SERVER, _INJECTED = "server", "injected"

BEFORE_COMMIT = "before_commit"
"""The attribute of a driver's error: whether the COMMIT had not been sent when it occurred."""


class MysqlDialect(Dialect):
    """The dialect of MySQL and MariaDB."""

    engine_url = "mysql+pymysql://"
    seeks_between_groups = True
    most_parameters = 1000
    most_characters = MOST_CHARACTERS
    queues_statements = True

    def __init__(self, url: MysqlUrl, clock: Clock | None) -> None:
        """Make a dialect for a database."""
        self.url = url
        self._clock = clock
        self.server_epoch = _SERVER if clock is None else _INJECTED
        read_clock = "" if clock is not None else f"; SELECT {_NOW}"
        self._read, self._write = _READ + read_clock, _WRITE + read_clock

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what a MySQL store can do."""
        return StoreCapabilities(
            name="mysql",
            clock="server",
            lease_clock="server",
            hosts="many",
            notify=False,
            transactional_finish=True,
            survives=(
                "a killed process, and a crash or restart of the server (innodb_flush_log_at_trx_commit=1); a failover "
                "as far as the replica that takes over had it"
            ),
        )

    # --- transactions -------------------------------------------------------------------------------------------------

    def begin_read(self, connection: Connection) -> None:
        """Begin on a snapshot, and read the clock; a reader waits for no writer."""
        self._begin_transaction(connection, self._read)

    def begin_write(self, connection: Connection) -> None:
        """Begin, and read the clock. The next statement sees what another transaction commits meanwhile."""
        self._begin_transaction(connection, driver_of(connection).hold_rows() + self._write)

    def begin_for_user_code(self, connection: Connection) -> None:
        """Begin at the server's own isolation level, on which the code of a job may rely."""
        with driver_of(connection).cursor() as cursor:
            self._send_text(cursor, _WRITE)

    def _begin_transaction(self, connection: Connection, text: str) -> None:
        asked_at = self.monotonic()
        with driver_of(connection).cursor() as cursor:
            # All in a single trip. The server's clock was read after the moment just before sending.
            self._send_text(cursor, text)
            while cursor.nextset():
                pass
            if self._clock is None:
                [now] = cast("tuple[int]", cursor.fetchone())
                connection.info["reading"] = Reading(now, now, _SERVER, asked_at)

    def lock_migrations(self, connection: Connection) -> None:
        """Do nothing: the lock is not a transaction's, see ``migrating``."""

    def read_clocks(self, connection: Connection) -> Reading:
        """Return the server's clock as it was read when the transaction began; if that was used, read it again."""
        if self._clock is not None:
            now = to_micros(self._clock.now())
            return Reading(now, now, _INJECTED, self._clock.monotonic())
        reading = cast("Reading | None", connection.info.pop("reading", None))
        if reading is None:
            asked_at = self.monotonic()
            [(now,)] = run_text(driver_of(connection), f"SELECT {_NOW}")
            reading = Reading(now, now, _SERVER, asked_at)
        return reading

    def host_now(self) -> int | None:
        """Return the time of an injected clock."""
        return None if self._clock is None else to_micros(self._clock.now())

    def monotonic(self) -> float:
        """Return the clock of this host, or the injected clock's."""
        return super().monotonic() if self._clock is None else self._clock.monotonic()

    def lease_now(self, reading: Reading) -> int:
        """Return an upper bound of the server's clock now, from the time that passed here since before it was read.

        The time on the network is included: nothing that must be exact is judged by it.
        """
        return reading.lease + round((self.monotonic() - reading.asked_at) * 1_000_000)

    def can_read_without_transaction(self, connection: Connection) -> bool:  # noqa: ARG002 - true for all
        """Save the trips of START TRANSACTION and COMMIT."""
        return True

    def is_known_broken(self, connection: Connection) -> bool:
        """Whether the connection is known to be cut off."""
        return not driver_of(connection).open

    def is_duplicate_key_error(self, error: Exception) -> bool:
        """Whether a unique key already has a row."""
        return mysql_errors.is_duplicate_key_error(error)

    def is_connection_error(self, error: Exception) -> bool:
        """Whether the connection is gone."""
        return mysql_errors.is_connection_error(error)

    def is_closed_by_server(self, error: Exception) -> bool:
        """Whether the connection was closed from the other side."""
        return mysql_errors.is_connection_error(error) and not isinstance(
            error.__cause__ or error.__context__, TimeoutError
        )

    def is_error_before_commit(self, error: Exception) -> bool:
        """Whether the connection was closed before the packet with the COMMIT was started."""
        return self.is_closed_by_server(error) and getattr(error, BEFORE_COMMIT, False)

    # --- statements by name -------------------------------------------------------------------------------------------

    def find_query(self, name: str) -> Query:
        """Return a statement by its name."""
        return queries_of("mysql")[name]

    def find_single_row_query(self, name: str) -> Query:
        """Return a statement that is run for a single row at a time."""
        return queries_of("mysql", single=True)[name]

    def clock_value(self, connection: Connection) -> Any:
        """Return a placeholder for the server's clock, or the injected clock's value."""
        return super().clock_value(connection) if self._clock is not None else Moment()

    def send_statements(
        self, connection: Connection, queue: Sequence[Pending], *, begin: Begin, commit: bool
    ) -> Reading | None:
        """Send statements in a single packet, or in as many as their size needs."""
        driver = driver_of(connection)
        together = bool(driver.client_flag & CLIENT.MULTI_STATEMENTS)
        parts: list[Part] = []
        if begin:
            text = self._read if begin == "read" else driver.hold_rows() + self._write
            parts += [Part(statement) for statement in packets.statements_in(text)]
        clock_index = len(parts) - 1 if begin and self._clock is None else None
        for pending in queue:
            parts += packets.parts_of(driver, pending, together=together)
        if commit:
            parts += [Part(statement) for statement in driver.word_of_end("COMMIT")]
        asked_at, now = self.monotonic(), 0
        packets_to_send = list(packets.split_packets(parts, together=together))
        for number, packet in enumerate(packets_to_send, 1):
            try:
                answers = self._send_packet(driver, packet)
            except MySQLError as error:
                setattr(error, BEFORE_COMMIT, not commit or number < len(packets_to_send))
                raise
            if clock_index is not None:
                now, clock_index = answers[clock_index][0][0], None
        if commit:
            driver.note_commit()
        if not begin:
            return None
        return self.read_clocks(connection) if self._clock is not None else Reading(now, now, _SERVER, asked_at)

    def _send_packet(self, driver: BoundedConnection, packet: Sequence[Part]) -> list[Sequence[Any]]:
        """Send a packet; set the answer of each statement, and return the rows of all of them."""
        answers: list[Sequence[Any]] = []
        with driver.cursor() as cursor:
            try:
                cursor.execute("; ".join([part.text for part in packet]))
                while True:
                    answers.append(self._answer_part(cursor, packet[len(answers)]))
                    if not cursor.nextset():
                        break
            except MySQLError as error:
                failed = packet[min(len(answers), len(packet) - 1)]
                if failed.guards and failed.pending is not None and mysql_errors.code_of(error) == OUT_OF_RANGE:
                    raise wrong_count(failed.pending) from None
                try_again_error = mysql_errors.try_again(error, self.url)
                if try_again_error is None:
                    raise
                raise try_again_error from error
        return answers

    def _answer_part(self, cursor: Cursor, part: Part) -> Sequence[Any]:
        rows: Sequence[Any] = NONE
        if cursor.description:
            rows = packets.rows_of(tuple([column[0] for column in cursor.description]), cursor.fetchall())
        if part.pending is not None and not part.guards:
            part.pending.receive_answer(rows, cursor.rowcount)
            if not cursor.connection.client_flag & CLIENT.MULTI_STATEMENTS:
                part.pending.require_count()
        return rows

    def _send_text(self, cursor: Cursor, text: str) -> None:
        """Run a text. After a deadlock raise ``TryAgain``: the connection stays usable."""
        try:
            cursor.execute(text)
        except MySQLError as error:
            try_again_error = mysql_errors.try_again(error, self.url)
            if try_again_error is None:
                raise
            raise try_again_error from error

    # --- errors and settings ------------------------------------------------------------------------------------------

    def translate_error(self, error: Exception) -> CronsensusError | None:
        """Return what an error of the driver means to the user."""
        return mysql_errors.translate_error(error, self.url)

    def describe_settings(self, connection: Connection) -> dict[str, Any]:
        """Return the relevant settings."""
        driver = driver_of(connection)

        def variables(*names: str) -> dict[str, Any]:
            listed = ", ".join(f"'{name}'" for name in names)
            return dict(cast("Any", run_text(driver, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")))

        clock = _INJECTED if self._clock is not None else "server"
        return {
            "server": self.url.where,
            "version": driver.version,
            **variables(
                "innodb_flush_log_at_trx_commit", "sync_binlog", "binlog_format", "max_connections", "read_only"
            ),
            "encrypted": bool(dict(cast("Any", run_text(driver, "SHOW STATUS LIKE 'Ssl_cipher'"))).get("Ssl_cipher")),
            **_describe_galera(driver),
            "timeout": self.url.timeout,
            "clock": clock,
            "lease_clock": clock,
            "wake_ups": "none: nodes look by themselves",
            "evidence_of_death": mysql_presence.describe_presence(driver),
        }


def _describe_galera(driver: BoundedConnection) -> dict[str, Any]:
    """Return a server's state in its Galera cluster; nothing if it is in none.

    Refused transactions are counted since the server started: any client's here that conflicted with another server's.
    """
    if not is_in_galera(driver):
        return {}
    status = dict(cast("Any", run_text(driver, "SHOW GLOBAL STATUS LIKE 'wsrep_%'")))
    return {
        "galera_servers": int(status["wsrep_cluster_size"]),
        "galera_state": status["wsrep_local_state_comment"],
        "galera_refused": int(status["wsrep_local_cert_failures"]) + int(status["wsrep_local_bf_aborts"]),
    }


def driver_of(connection: Connection) -> BoundedConnection:
    """Return the driver's own connection."""
    return cast("BoundedConnection", connection.driver)
