"""Wrap open connections for SQLAlchemy: for the code of users, and for creating tables.

Nothing else here imports SQLAlchemy at run time: a process that neither makes tables nor shares a transaction with the
code of a user never loads it.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, PoolProxiedConnection, create_engine, event
from sqlalchemy.pool import NullPool

_opened: ContextVar[Any] = ContextVar("cronsensus_opened")


@lru_cache(maxsize=64)
def engine_of(url: str, where: str) -> Engine:  # noqa: ARG001 - SQLAlchemy asks one server for its version, and keeps it
    """Return the engine for the connections of a store; it opens none.

    Args:
        url: SQLAlchemy's, of a database and a driver, and of no place.
        where: names the store.
    """
    options = {"use_native_hstore": False} if url.startswith("postgresql") else {}
    # Nothing is undone when a connection is closed: its end undoes all, and one that was cut off could only complain.
    engine = create_engine(url, creator=_opened.get, poolclass=NullPool, pool_reset_on_return=None, **options)
    event.listen(engine, "handle_error", _each_for_itself)
    return engine


def _each_for_itself(context: ExceptionContext) -> None:
    """Tell SQLAlchemy that a connection which is cut says nothing about the others.

    It would take them all for dead: also one that is being opened at that moment, which it closes in order to open it
    anew, and then is handed the closed one again.
    """
    context.invalidate_pool_on_disconnect = False


def handed_over(engine: Engine, driver: Any) -> Connection:
    """Return a driver's connection as SQLAlchemy sees it, which closes it in the end."""
    opened = _opened.set(driver)
    try:
        return engine.connect()
    except BaseException:
        with suppress(driver.Error):  # SQLAlchemy closes what it could not wrap, and twice is an error
            driver.close()
        raise
    finally:
        _opened.reset(opened)


class Kept(PoolProxiedConnection):
    """Gives SQLAlchemy a driver's connection that it may use, but neither end nor close.

    No pool has seen it, so nothing resets it, and none of SQLAlchemy's own settings are put on it.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = self.dbapi_connection = driver
        self.info: dict[Any, Any] = {}

    driver_connection = property(lambda self: self.driver)
    record_info = None
    is_valid = True
    is_detached = False

    def cursor(self, *_: Any, **__: Any) -> Any:
        """Return a cursor that gives tuples."""
        return self.driver.cursor()

    def commit(self) -> None:
        """Do nothing: the owner does it."""

    def rollback(self) -> None:
        """Do nothing: the owner does it."""

    def close(self) -> None:
        """Do nothing: the owner does it."""

    def detach(self) -> None:
        """Do nothing: it is in no pool."""

    def __getattr__(self, name: str) -> Any:
        """Return what SQLAlchemy asks of the driver's own connection, such as whether it is closed."""
        return getattr(self.driver, name)

    def invalidate(self, e: BaseException | None = None, soft: bool = False) -> None:  # noqa: FBT001, FBT002
        """Do nothing: the owner will find out."""


def keep_connection(engine: Engine, driver: Any, schema: str) -> Connection:
    """Return a connection as SQLAlchemy sees it, in the transaction that is open on it; ``schema``: of its tables."""
    view = Connection(engine, connection=Kept(driver))
    if engine.dialect.server_version_info is None:
        engine.dialect.initialize(view)
    return view.execution_options(schema_translate_map={None: schema}) if schema else view
