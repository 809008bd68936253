"""The SQLite store: the default, for any number of processes on one host.

Write-ahead log; every verb that writes begins with ``BEGIN IMMEDIATE``, so there is one writer at a time and none of
its reads can be overtaken; ``synchronous=FULL``, so an acknowledged write outlives a power cut. Due times are judged by
the host's wall clock, leases by its monotonic clock: setting the clock kills no lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronsensus.stores.sql.sqlite.sqlite_store import SqliteStore

__all__ = ["SqliteStore"]


def __getattr__(name: str) -> Any:
    """Import the store when it is asked for: what only asks the driver, such as a probe, does without the verbs."""
    if name in __all__:
        from cronsensus.stores.sql.sqlite.sqlite_store import SqliteStore

        return SqliteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
