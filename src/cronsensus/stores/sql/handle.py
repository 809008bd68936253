"""What every verb of the SQL store stands on: connections, transactions, errors, and the schema's version. Floor 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection

from cronsensus.errors import CronsensusError
from cronsensus.model.instants import from_micros
from cronsensus.model.job import check_name
from cronsensus.stores.base import Store, StoreCapabilities
from cronsensus.stores.sql import migrations
from cronsensus.stores.sql.connections import Connections
from cronsensus.stores.sql.definitions import Definitions
from cronsensus.stores.sql.dialect import Dialect
from cronsensus.stores.sql.transaction import Transaction


class SqlHandle(Store):
    """A handle on a SQL database; a subclass brings the dialect, the connections and the wake-ups."""

    def __init__(self, *, namespace: str, where: str, dialect: Dialect, connect: Callable[[], Connection]) -> None:
        """Make a handle; nothing is opened before the first verb."""
        self.namespace = check_name(namespace, what="namespace")
        self._where = where
        self._dialect = dialect
        self._connections = Connections(connect, where=where)
        self._definitions = Definitions()

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what this store can do."""
        return self._dialect.capabilities

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._step(self._dialect.begin_write, self._dialect.end_write) as tx:
            yield tx

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        with self._step(self._dialect.begin_read, None) as tx:
            yield tx

    @contextmanager
    def _step(self, begin: Callable[[Connection], None], ended: Callable[[], None] | None) -> Iterator[Transaction]:
        """Run one transaction: commit at the end, roll back on any error, trust no connection after a strange one."""
        with self._errors_explained():
            connection = self._connections.take()
            try:
                with connection.begin():
                    begin(connection)
                    yield Transaction(connection, self._dialect, self.namespace, self._definitions)
            except (CronsensusError, LookupError):
                # A verb's own "no": rolled back, and the connection is as good as before.
                self._connections.give_back(connection)
                raise
            except BaseException:
                self._connections.throw_away(connection)
                raise
            else:
                self._connections.give_back(connection)
            finally:
                if ended is not None:
                    ended()

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except CronsensusError:
            raise
        except Exception as error:
            explained = self._dialect.translate(error)
            if explained is None:
                raise
            raise explained from error

    # --- set-up -------------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Bring the schema up to date.

        Safe when several processes start at once: each step reads the version again under the migration lock.
        """
        applied: list[str] = []
        while True:
            with self._reading() as look:
                if migrations.next_step(look.connection, self._where) is None:
                    return applied
            with self._writing() as tx:
                self._dialect.lock_migrations(tx.connection)
                step = migrations.next_step(tx.connection, self._where)
                if step is None:
                    return applied
                migrations.take(step, tx.connection, tx.now)
            applied.append(step[1])

    def check(self) -> None:
        """Raise unless the schema is there, of the version that this code knows, and the store can be written."""
        with self._reading() as tx:
            version = migrations.version_of(tx.connection)
        migrations.refuse_newer(version, self._where)
        migrations.refuse_older(version, self._where)
        self._check_writable()

    def _check_writable(self) -> None:
        """Raise if a write would fail; by default nothing is tried."""

    def close(self) -> None:
        """Let go of all connections."""
        self._connections.close()

    def now(self) -> datetime:
        """Return the store's clock."""
        with self._reading() as tx:
            return from_micros(tx.now)
