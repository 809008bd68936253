"""The dialect of PostgreSQL: row locks, the server's clock, statements that take many rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from cronsensus.errors import CronsensusError
from cronsensus.stores.sql.bounds import USER_TRANSACTION_IDLE_SECONDS
from cronsensus.stores.sql.connection import Connection
from cronsensus.stores.sql.dialect import Dialect, Reading
from cronsensus.stores.sql.postgres import postgres_errors
from cronsensus.stores.sql.postgres.pipeline import (
    CLOCK,
    Part,
    Text,
    compile_text,
    has_pipeline,
    part_of,
    run_one_by_one,
)
from cronsensus.stores.sql.postgres.pipeline import run_pipeline as run_together
from cronsensus.stores.sql.postgres.postgres_driver import (
    PATIENCE,
    BoundedConnection,
    NoAnswer,
    NotSent,
    connection_settings,
    patience_seconds,
)
from cronsensus.stores.sql.postgres.postgres_presence import key_of
from cronsensus.stores.sql.postgres.postgres_url import PostgresUrl
from cronsensus.stores.sql.queries import Query, queries_of
from cronsensus.stores.sql.sending import Begin, Moment, Pending
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import Clock
from cronsensus.timing.instants import to_micros

_CLOCK = f"SELECT {CLOCK}"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_NOT_IDLE_FOR_EVER = (
    f"SELECT set_config('idle_in_transaction_session_timeout', '{USER_TRANSACTION_IDLE_SECONDS}s', true) "
    "WHERE current_setting('idle_in_transaction_session_timeout') = '0'"
)
_SERVER, _INJECTED = "server", "injected"
_CLOCK_PART = Part(compile_text(_CLOCK), [])
_BEGIN_PARTS = {"read": Part(compile_text(_READ), []), "write": Part(compile_text(_WRITE), [])}
_COMMIT_PART = Part(Text(b"COMMIT", name=b"COMMIT"), [])  # named so that tests and proxies can recognise it
# Of the standby that lags the least, which a failover should choose. A user without pg_monitor sees how many there are,
# and nothing else about them.
_STANDBYS = (
    "SELECT count(*), min(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn))::bigint FROM pg_stat_replication "
    "WHERE NOT pg_is_in_recovery() AND coalesce(state, 'streaming') = 'streaming'"
)
_pooled: dict[str, bool] = {}
_MIGRATING_FOR = "5min"
_POLL_AFTER = 30.0


class PostgresDialect(Dialect):
    """The dialect of PostgreSQL."""

    engine_url = "postgresql+psycopg://"
    most_parameters = 10_000
    most_rows = 5000
    queues_statements = True
    evaluates_before_locking = True

    def __init__(self, url: PostgresUrl, clock: Clock | None) -> None:
        """Make a dialect for the tables of a schema."""
        self.url, self._where = url, url.where
        self.schema = url.schema
        self._clock = clock
        self.server_epoch = _SERVER if clock is None else _INJECTED
        self._queries = queries_of("postgres", schema=url.schema)
        read_clock = "" if clock is not None else f"; {_CLOCK}"
        local_settings = "".join(f"; {setting}" for setting in connection_settings(url, local=True))
        self._begin = {
            (text, pooled): text + (local_settings if pooled else "") + read_clock
            for text in (_READ, _WRITE)
            for pooled in (False, True)
        }
        self._local = [Part(compile_text(setting), []) for setting in connection_settings(url, local=True)]
        self._begin_for_user_code = f"{_WRITE}; {_NOT_IDLE_FOR_EVER}{read_clock}"

    @property
    def is_pooled(self) -> bool:
        """Whether any handle of this process has found a pooler before the server."""
        return _pooled.get(self._where, self.url.pooler == "transaction")

    @property
    def knows_pooler(self) -> bool:
        """Whether it is known if there is a pooler, from a connection of this process or from the URL."""
        return self.url.pooler != "auto" or self._where in _pooled

    @property
    def has_pipeline(self) -> bool:
        """Whether statements sent together are one transaction, also without a BEGIN."""
        return has_pipeline()

    def note_pooler(self, *, pooled: bool) -> None:
        """Record whether a new connection has found a pooler."""
        _pooled[self._where] = pooled

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what a PostgreSQL store can do."""
        return StoreCapabilities(
            name="postgresql",
            clock="server",
            lease_clock="server",
            hosts="many",
            notify=not self.is_pooled,
            transactional_finish=True,
            survives=(
                "a killed process, and a crash or restart of the server; a failover as far as the standby that takes "
                "over had it (synchronous_standby_names)"
            ),
            # A process may die between a user's commit and its notification.
            **({"poll": _POLL_AFTER} if self.url.wake == "after" else {}),
        )

    # --- transactions -------------------------------------------------------------------------------------------------

    def begin_read(self, connection: Connection) -> None:
        """Begin on a snapshot, and read the clock; a reader waits for no writer."""
        self._begin_ours(connection, _READ)

    def begin_write(self, connection: Connection) -> None:
        """Begin, and read the clock. The next statement sees what another transaction commits meanwhile."""
        self._begin_ours(connection, _WRITE)

    def begin_for_user_code(self, connection: Connection) -> None:
        """Begin with the server's own settings: the job's statements may take longer than ours, or need other plans."""
        self._begin_and_look(connection, self._begin_for_user_code)

    def _begin_ours(self, connection: Connection, text: str) -> None:
        driver = driver_of(connection)
        driver.patience = patience_seconds(self.url)
        self._begin_and_look(connection, self._begin[text, driver.pooled])

    def _begin_and_look(self, connection: Connection, text: str) -> None:
        driver = driver_of(connection)
        asked_at = PATIENCE.monotonic()
        # Both in a single trip. The server's clock was read after the moment just before sending.
        answer = driver.execute(cast("Any", text), prepare=False)
        if self._clock is None:
            while answer.nextset():
                pass
            [now] = cast("tuple[int]", answer.fetchone())
            connection.info["reading"] = Reading(now, now, _SERVER, asked_at)

    def undo_transaction(self, connection: Connection, text: str) -> None:
        """Roll back, and keep the prepared statements."""
        driver_of(connection).undo_to(text.encode())

    def can_read_without_transaction(self, connection: Connection) -> bool:
        """Save the trips of BEGIN and COMMIT; behind a pooler they are needed, for the settings."""
        return not driver_of(connection).pooled

    def lock_migrations(self, connection: Connection) -> None:
        """Take the lock of migrations in this schema, until the transaction ends; ensure that the schema exists."""
        driver = driver_of(connection)
        driver.patience = None  # until the next transaction: an index may take its time
        driver.execute(
            f"SET LOCAL lock_timeout = '{_MIGRATING_FOR}'; SET LOCAL statement_timeout = 0; "
            # Starting nodes are often short of processor time, and there is no work yet that could be delayed.
            f"SET LOCAL idle_in_transaction_session_timeout = '{_MIGRATING_FOR}'",
            prepare=False,
        )
        driver.execute("SELECT pg_advisory_xact_lock(%s)", [key_of("migrate", self.url.schema)], prepare=False)
        [schema_name] = driver.execute("SELECT to_regnamespace(%s)", [f'"{self.url.schema}"']).fetchone() or [None]
        if schema_name is None:
            # Checked first: IF NOT EXISTS needs the right to create even if there is nothing to do.
            driver.execute(cast("Any", f'CREATE SCHEMA "{self.url.schema}"'))

    def read_clocks(self, connection: Connection) -> Reading:
        """Return the server's clock as it was read when the transaction began; if that was used, read it again."""
        if self._clock is not None:
            now = to_micros(self._clock.now())
            return Reading(now, now, _INJECTED, self._clock.monotonic())
        reading = cast("Reading | None", connection.info.pop("reading", None))
        if reading is None:
            asked_at = PATIENCE.monotonic()
            [now] = cast("tuple[int]", driver_of(connection).execute(_CLOCK).fetchone())
            reading = Reading(now, now, _SERVER, asked_at)
        return reading

    def host_now(self) -> int | None:
        """Return the time of an injected clock."""
        return None if self._clock is None else to_micros(self._clock.now())

    @property
    def clock_arguments(self) -> tuple[Any, ...]:
        """Return the epoch of the lease clock and, if it is injected, its time; a server reads its own clock."""
        if self._clock is None:
            return (_SERVER,)
        return (_INJECTED, to_micros(self._clock.now()))

    def lease_now(self, reading: Reading) -> int:
        """Return an upper bound of the server's clock now, from the time that passed here since before it was read.

        The drift between the two clocks within a transaction is negligible.
        """
        return reading.lease + round((self.monotonic() - reading.asked_at) * 1_000_000)

    def monotonic(self) -> float:
        """Return the host's steady clock, or the injected one."""
        return (self._clock or PATIENCE).monotonic()

    def is_known_broken(self, connection: Connection) -> bool:
        """Whether the connection is known to be cut off."""
        return driver_of(connection).closed

    def is_duplicate_key_error(self, error: Exception) -> bool:
        """Whether a unique key already has a row."""
        return postgres_errors.is_duplicate_key_error(error)

    def is_connection_error(self, error: Exception) -> bool:
        """Whether the connection is gone."""
        return postgres_errors.is_connection_error(error)

    def is_closed_by_server(self, error: Exception) -> bool:
        """Whether the connection was closed from the other side."""
        return self.is_connection_error(error) and not isinstance(error, NoAnswer)

    def is_error_before_commit(self, error: Exception) -> bool:
        """Whether the connection was gone before everything was sent."""
        return isinstance(error, NotSent)

    # --- statements by name -------------------------------------------------------------------------------------------

    def find_query(self, name: str) -> Query:
        """Return a statement by its name."""
        return self._queries[name]

    def find_single_row_query(self, name: str) -> Query:
        """Return a statement that is run for a single row at a time."""
        return queries_of("postgres", schema=self.url.schema, single=True)[name]

    def clock_value(self, connection: Connection) -> Any:
        """Return a placeholder for the server's clock, or the injected clock's value."""
        return super().clock_value(connection) if self._clock is not None else Moment()

    def floor_of_tokens(self, now: int) -> int | None:
        """Return the injected clock; ``None``: the server uses its own."""
        return None if self._clock is None else now

    def send_statements(
        self, connection: Connection, queue: Sequence[Pending], *, begin: Begin, commit: bool
    ) -> Reading | None:
        """Send statements in a single trip; with a libpq before 14 in a trip each."""
        driver = driver_of(connection)
        parts = [part_of(pending, self.url.schema) for pending in queue if not pending.behind]
        after_commit = [part_of(pending, self.url.schema) for pending in queue if pending.behind]
        begin_parts: list[Part] = []
        if begin:
            driver.patience = patience_seconds(self.url)
            begin_parts = [_BEGIN_PARTS[begin], *(self._local if driver.pooled else ())]
            if self._clock is None:
                begin_parts.append(_CLOCK_PART)
        asked_at = PATIENCE.monotonic()
        run_parts = run_together if has_pipeline() else run_one_by_one
        answers = run_parts(driver, [*begin_parts, *parts, *([_COMMIT_PART] if commit else ()), *after_commit])
        if not begin:
            return None
        if self._clock is not None:
            return self.read_clocks(connection)
        now = answers[len(begin_parts) - 1][0][0]
        return Reading(now, now, _SERVER, asked_at)

    # --- errors and settings ------------------------------------------------------------------------------------------

    def translate_error(self, error: Exception) -> CronsensusError | None:
        """Return what an error of the driver means to the user."""
        return postgres_errors.translate_error(error, self.url)

    def describe_settings(self, connection: Connection) -> dict[str, Any]:
        """Return the relevant settings."""
        driver = driver_of(connection)

        def show(expression: str) -> Any:
            return (driver.execute(cast("Any", f"SELECT {expression}"), prepare=False).fetchone() or [None])[0]

        pooled = driver.pooled
        standbys, behind = driver.execute(cast("Any", _STANDBYS), prepare=False).fetchone() or (0, None)
        return {
            "server": self.url.where,
            "version": show("current_setting('server_version')"),
            "synchronous_commit": show("current_setting('synchronous_commit')"),
            "synchronous_standbys": show("current_setting('synchronous_standby_names')") or "none",
            "standbys": standbys,
            "standby_behind_bytes": behind,
            # Behind a pooler this is the server's number, which does not limit the nodes.
            "max_connections": None if pooled else int(show("current_setting('max_connections')")),
            "encrypted": bool(driver.pgconn.ssl_in_use),
            "timeout": self.url.timeout,
            "clock": _INJECTED if self._clock is not None else "server",
            "lease_clock": _INJECTED if self._clock is not None else "server",
            "pooler": "a pooler stands between, taken for a transaction pooler (?pooler=)" if pooled else "none",
            "wake_ups": "none through a pooler: nodes look every 0.5 to 2 s" if pooled else "LISTEN and NOTIFY",
            "evidence_of_death": (
                "none through a pooler: a dead node on another host is noticed when its lease ends"
                if pooled
                else "an advisory lock that the server frees when the process's connection ends"
            ),
        }


def driver_of(connection: Connection) -> BoundedConnection:
    """Return the driver's own connection."""
    return cast("BoundedConnection", connection.driver)
