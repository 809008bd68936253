"""The PostgreSQL store: opening connections, waking others, and looking for signs of life. Floor 3."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

from sqlalchemy import Connection, Engine, create_engine, update
from sqlalchemy.pool import NullPool

from cronsensus.clock import Clock
from cronsensus.model.session import SessionSpec
from cronsensus.stores.base import Glance
from cronsensus.stores.sql import looking
from cronsensus.stores.sql.handle import repeated
from cronsensus.stores.sql.postgres.dialect import PostgresDialect, driver_of
from cronsensus.stores.sql.postgres.driver import BoundedConnection, open_connection
from cronsensus.stores.sql.postgres.presence import Eyes
from cronsensus.stores.sql.postgres.url import read_url
from cronsensus.stores.sql.postgres.wake import Wake
from cronsensus.stores.sql.schema import counters
from cronsensus.stores.sql.store import SqlStore

_NO_TIME = timedelta(0)
_TOUCH = update(counters).where(counters.c.name == "token").values(value=counters.c.value)
_opening: ContextVar[Callable[[], BoundedConnection]] = ContextVar("cronsensus_opening_postgres")


@cache
def _shared_engine() -> Engine:
    """Return the engine behind those of all handles; it only wraps connections that we open ourselves."""
    return create_engine("postgresql+psycopg://", creator=_open_for_caller, poolclass=NullPool, use_native_hstore=False)


def _open_for_caller() -> BoundedConnection:
    return _opening.get()()


class PostgresStore(SqlStore):
    """A store in a PostgreSQL database, shared by nodes on any number of hosts.

    Example:
        >>> store = PostgresStore("postgresql://app@localhost/app?schema=jobs")
        >>> store.capabilities.hosts
        'many'
    """

    def __init__(self, url: str, *, namespace: str = "default", clock: Clock | None = None) -> None:
        """Make a handle on the database that ``url`` names; nothing is opened yet.

        Raises:
            InvalidOption: the URL cannot be read, or has an option that does not exist.
        """
        self._url = read_url(url)
        self._given = (url, clock)
        self._postgres = PostgresDialect(self._url, clock)
        self._engine: Engine | None = None
        self._own_session: str | None = None
        super().__init__(
            namespace=namespace,
            where=self._url.where,
            dialect=self._postgres,
            connect=self._connect,
            lend=self._lend,
        )
        self._place = (self._url.schema, namespace)
        self._wake = Wake(self._open, self._place)

    def sibling(self) -> PostgresStore:
        """Return a handle with connections of its own."""
        url, clock = self._given
        return type(self)(url, namespace=self.namespace, clock=clock)

    def close(self) -> None:
        """Let go of connections."""
        self._wake.close()
        super().close()

    # --- wake-ups and signs of life -----------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        """Wait for a hint."""
        with self._errors_explained():
            return self._wake.wait(timeout)

    def attend(self, session: str | None) -> None:
        """Show a sign of life of ``session`` while somebody waits on this handle."""
        self._wake.attend(session)

    def notify(self) -> None:
        """Wake the other handles of this namespace, wherever they are."""
        with contextlib.suppress(Exception):  # a hint; whoever misses it looks by himself
            connection = self._connections.take()
            try:
                self._wake.tell(driver_of(connection))
            except BaseException:
                self._connections.throw_away(connection)
                raise
            self._connections.give_back(connection)

    def open_session(self, session: SessionSpec, *, lease: timedelta) -> datetime:
        """Begin a session."""
        self._own_session = session.id
        return super().open_session(session, lease=lease)

    @repeated
    def due(self, limit: int = 100) -> Glance:
        """Look, also for signs of life of those who hold runs."""
        with self._glancing() as tx:
            glance = looking.due(tx, limit)
            holding = {one.id for one in glance.holders if one.expires_in > _NO_TIME} - {self._own_session}
            others = holding.union(glance.sessions) - {self._own_session}
            if self._postgres.pooled or not others:
                return glance
            eyes = tx.connection.info.setdefault("eyes", Eyes())
            absent = eyes.look(driver_of(tx.connection), self._place, others, needed=bool(holding))
            return replace(glance, absent=absent)

    # --- opening ------------------------------------------------------------------------------------------------------

    def _check_writable(self) -> None:
        """Try to write: a standby, or a user without rights, is found now rather than by the first job."""
        with self._writing() as tx:
            tx.next_token()
            tx.change(_TOUCH)

    def _connect(self) -> Connection:
        return self._open_with(self._open)

    def _lend(self) -> Connection:
        return self._open_with(lambda: open_connection(self._url, lent=True))

    def _open_with(self, opened: Callable[[], BoundedConnection]) -> Connection:
        if self._engine is None:
            self._engine = _shared_engine().execution_options(**self._postgres.execution_options)
        opening = _opening.set(opened)
        try:
            return self._engine.connect()
        finally:
            _opening.reset(opening)

    def _open(self) -> BoundedConnection:
        driver = open_connection(self._url)
        self._postgres.note_pooler(pooled=driver.pooled)
        return driver
