"""Stores keep all state; open one by URL.

Drivers are imported when a URL asks for them, never before.
"""

from __future__ import annotations

from cronsensus.errors import MissingExtra, UnknownStore
from cronsensus.stores.base import Store
from cronsensus.stores.credentials import check_credentials
from cronsensus.stores.values import DefineResult, StoreCapabilities, View
from cronsensus.timing.clock import Clock

__all__ = ["DefineResult", "Store", "StoreCapabilities", "View", "open_store"]

SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb", "redis", "rediss", "memory")


def open_store(url: str, *, namespace: str = "default", clock: Clock | None = None) -> Store:
    """Open the store behind ``url``; writes nothing yet.

    Args:
        url: ``sqlite:///path/to/file.db``, ``postgresql://…``, ``mysql://…`` (or ``mariadb://…``), ``redis://…``, or
            ``memory://``.
        namespace: keeps applications apart.
        clock: the store's clock, for tests.

    Raises:
        InvalidOption: the URL cannot be read; the message never holds its password.
        MissingExtra: its driver is not installed; the message says what to type.
        UnknownStore: no store answers to the URL's scheme.
    """
    scheme = url.partition(":")[0]
    if scheme == "memory":
        from cronsensus.stores.memory import MemoryStore

        return MemoryStore(url, namespace=namespace, clock=clock)
    if scheme == "sqlite":
        from cronsensus.stores.sql.sqlite import SqliteStore

        return SqliteStore(url, namespace=namespace, clock=clock)
    check_credentials(url)
    if scheme in {"postgresql", "postgres"}:
        try:
            from cronsensus.stores.sql.postgres import PostgresStore
        except ImportError as error:
            raise missing_driver(error, "psycopg", extra="postgres") from error

        return PostgresStore(url, namespace=namespace, clock=clock)
    if scheme in {"mysql", "mariadb"}:
        try:
            from cronsensus.stores.sql.mysql import MysqlStore
        except ImportError as error:
            raise missing_driver(error, "pymysql", extra="mysql") from error

        return MysqlStore(url, namespace=namespace, clock=clock)
    if scheme.partition("+")[0] in {"redis", "rediss"}:
        try:
            from cronsensus.stores.redis import RedisStore
        except ImportError as error:
            raise missing_driver(error, "redis", extra="redis") from error

        return RedisStore(url, namespace=namespace, clock=clock)
    raise UnknownStore(_unknown(url, scheme))


def missing_driver(error: ImportError, driver: str, *, extra: str) -> ImportError:
    """Return the error that says how to install ``driver``, if that is what could not be imported."""
    if (error.name or "").partition(".")[0] != driver:
        return error
    return MissingExtra(
        f'the driver {driver!r} is not installed, or is too old ({error}); pip install "cronsensus[{extra}]"'
    )


def _unknown(url: str, scheme: str) -> str:
    import difflib

    if "://" not in url and ("/" in url or url.endswith((".db", ".sqlite", ".sqlite3"))):
        return f"{url!r} is a path, not a URL; write sqlite:///{url}"
    close = difflib.get_close_matches(scheme.partition("+")[0], SCHEMES, n=1)
    hint = f"did you mean {close[0]}://?" if close else "known: " + ", ".join(f"{name}://" for name in SCHEMES)
    return f"no store answers to the scheme {scheme!r} of the URL; {hint}"
