"""A psycopg connection without unbounded waits, and the session settings that it sends when it opens.

The server ends a statement that takes too long, a wait for a lock, and a transaction that was left idle. The kernel
ends a connection whose peer is gone. If the peer's kernel still answers but the server does not (a stopped process),
this side gives up by its own clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, TypeVar, cast

import psycopg
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from cronsensus.stores.sql.bounds import VERB_IDLE_SECONDS
from cronsensus.stores.sql.postgres.postgres_url import PostgresUrl
from cronsensus.timing.clock import SystemClock

Value = TypeVar("Value")
PATIENCE = SystemClock()
"""The clock for time limits: the host's own, even if a test moves the store's by hand."""

BEYOND = 5.0
"""Seconds that this side waits longer than the server, whose own timeout leaves a usable connection."""
MOST_PREPARED_STATEMENTS = 400
CANCEL_WITHIN = 1.0
"""Seconds to tell the server to cancel a statement."""
_INTERVAL = 0.1
"""Seconds between two checks of the clock while the server is silent."""
_SETTINGS = {
    # A waiting thread must not be delayed by a hanging transaction.
    "lock_timeout": "{lock}",
    "statement_timeout": "{statement}",
    "idle_in_transaction_session_timeout": "{paused}",
    # Every statement here uses an index. A plan that is cheap on a table that was just made would be kept for when the
    # table is large.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # A statement without a BEGIN has no other way to set it. Whatever the role's or the database's default is: a
    # statement that waited for a row must see the row as it is then.
    "default_transaction_isolation": "'read committed'",
}
# A commit that was answered must survive a crash of the server, or the ledger is not reliable.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', {local}) WHERE current_setting('synchronous_commit') = 'off'"
_HAS_IDLE_TIMEOUT = 140000
_ON_BOTH_SIDES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class NoAnswer(psycopg.OperationalError):
    """The server has not answered within the time limit."""


class NotSent(psycopg.OperationalError):
    """The connection was gone before all statements were sent; so the COMMIT after them was not sent either."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection on which no call takes longer than ``patience`` seconds: a call that would is ended by closing it.

    Attributes:
        pooled: another client may get its server connection between two transactions.
        names: whether statements of a pipeline are prepared under names; not on a connection on which other code may
            have the server forget them.
        known: the names of the prepared statements.
    """

    patience: float | None = None
    pooled = False
    names = False
    known: set[bytes]

    def wait(self, gen: Any, interval: float = _INTERVAL, *more: Any, **named: Any) -> Any:
        """Run an exchange with the server; raise ``NoAnswer`` if it takes too long."""
        try:
            return super().wait(self._bound_conversation(gen), min(interval, _INTERVAL), *more, **named)
        except BaseException:
            self._leave_statement()
            raise

    def _leave_statement(self) -> None:
        """Close the connection if a signal handler raised in the middle of a statement.

        psycopg handles only Ctrl-C. After any other exception the connection is unusable: a rollback failed, and its
        error hid the user's exception, as if the server was away.

        The server goes on with the rest of a pipeline, up to the COMMIT, unless it is told to cancel.
        """
        between = self.pgconn.transaction_status != TransactionStatus.ACTIVE
        if self.closed or (between and self.pgconn.pipeline_status == PipelineStatus.OFF):
            return
        try:
            if psycopg.capabilities.has_cancel_safe():
                # Otherwise it would go on waiting for a lock, and hold those that it has.
                with contextlib.suppress(psycopg.Error):
                    self.cancel_safe(timeout=CANCEL_WITHIN)
        finally:
            self.pgconn.finish()

    def _bound_conversation(self, conversation: Generator[Any, Any, Value]) -> Generator[Any, Any, Value]:
        patience = self.patience
        if patience is None:
            return (yield from conversation)
        until = PATIENCE.monotonic() + patience
        try:
            wants = next(conversation)
            while True:
                ready = yield wants
                if not ready and PATIENCE.monotonic() > until:
                    # Its state is unknown, also to the server, so it must not be used again.
                    self.pgconn.finish()
                    raise NoAnswer(f"no answer from the server for {patience:g} s")
                wants = conversation.send(ready)
        except StopIteration as end:
            return cast("Value", end.value)

    def rollback(self) -> None:
        """Roll back, unless the connection is gone and its transaction with it."""
        if self.closed:
            return
        if not self.names:
            super().rollback()
        elif self.pgconn.transaction_status != TransactionStatus.IDLE:
            self.undo_to(b"ROLLBACK")

    def undo_to(self, text: bytes) -> None:
        """Roll back, fully or to a savepoint.

        psycopg would have the server forget all prepared statements after that, at some later moment, also those that
        are not its own. No verb makes a table in a transaction, so they are still valid.
        """
        self.pgconn.send_query(text)
        for result in self.wait(generators.execute(self.pgconn)):
            if result.status != ExecStatus.COMMAND_OK:
                raise error_from_result(result, self.info.encoding)


def open_connection(url: PostgresUrl, *, lent: bool = False) -> BoundedConnection:
    """Open a connection in autocommit mode: only our own BEGIN starts a transaction, never the driver.

    A connection that is ``lent`` to a job's own code has the server's settings, and no time limit.
    """
    driver = BoundedConnection.connect(**cast("dict[str, Any]", dict(url.connection)), autocommit=True)
    driver.known = set()
    try:
        driver.patience = None if lent else patience_seconds(url)
        driver.prepared_max = MOST_PREPARED_STATEMENTS
        driver.pooled = url.pooler == "transaction" or (url.pooler == "auto" and _someone_is_between(driver))
        if driver.pooled:
            driver.prepare_threshold = None
        else:
            driver.prepare_threshold = 1
            driver.names = not lent
            wanted = [f"SET {name} = {value}" for name, value in _ON_BOTH_SIDES.items()]
            if driver.info.server_version >= _HAS_IDLE_TIMEOUT:
                wanted.append("SET idle_session_timeout = 0")
            if not lent:
                wanted += connection_settings(url, local=False)
            driver.execute(cast("Any", "; ".join(wanted)), prepare=False)
    except BaseException:
        driver.close()
        raise
    return driver


def patience_seconds(url: PostgresUrl) -> float:
    """Return the seconds that this side waits for an answer."""
    return url.timeout + BEYOND


def connection_settings(url: PostgresUrl, *, local: bool) -> list[str]:
    """Return the settings of a connection, as SQL; ``local``: for each transaction, behind a pooler."""
    statement = round(url.timeout * 1000)
    paused = min(statement, round(VERB_IDLE_SECONDS * 1000))
    values = {"statement": statement, "lock": statement // 2, "paused": paused, "local": str(local).lower()}
    how = "SET LOCAL" if local else "SET"
    return [f"{how} {name} = {value.format(**values)}" for name, value in _SETTINGS.items()] + [
        _DURABLE.format(**values)
    ]


def _someone_is_between(driver: BoundedConnection) -> bool:
    """Whether another process answers than the one that greeted: a pooler answers the greeting itself.

    A pooler must, because it keeps the keys for cancelling apart. A device that only forwards bytes (a load balancer, a
    tunnel) is not noticed, and does not matter.
    """
    [pid] = driver.execute("SELECT pg_backend_pid()", prepare=False).fetchone() or [0]
    return bool(pid != driver.info.backend_pid)
