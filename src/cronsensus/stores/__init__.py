"""Where state lives: open one by URL. Floor 3.

Drivers are imported when a URL asks for them, never before.
"""

from __future__ import annotations

from cronsensus.clock import Clock
from cronsensus.errors import UnknownStore
from cronsensus.stores.base import Glance, PutResult, Store, StoreCapabilities

__all__ = ["Glance", "PutResult", "Store", "StoreCapabilities", "open_store"]

SCHEMES = ("sqlite", "memory")


def open_store(url: str, *, namespace: str = "default", clock: Clock | None = None) -> Store:
    """Open the store behind ``url``: ``sqlite:///path/to/file.db`` or ``memory://``. Writes nothing yet.

    Raises:
        UnknownStore: no store answers to the URL's scheme.
    """
    scheme = url.partition(":")[0]
    if scheme == "memory":
        from cronsensus.stores.memory import MemoryStore

        return MemoryStore(url, namespace=namespace, clock=clock)
    if scheme == "sqlite":
        from cronsensus.stores.sql.sqlite import SqliteStore

        return SqliteStore(url, namespace=namespace, clock=clock)
    raise UnknownStore(_unknown(url, scheme))


def _unknown(url: str, scheme: str) -> str:
    import difflib

    if "://" not in url and ("/" in url or url.endswith((".db", ".sqlite", ".sqlite3"))):
        return f"{url!r} is a path, not a URL; write sqlite:///{url}"
    close = difflib.get_close_matches(scheme, SCHEMES, n=1)
    hint = f"did you mean {close[0]}://?" if close else "known: " + ", ".join(f"{name}://" for name in SCHEMES)
    return f"no store answers to the scheme {scheme!r} of the URL; {hint}"
