"""The SQLite store: the default, for any number of processes on one host. Floor 3.

Write-ahead log; every verb that writes begins with ``BEGIN IMMEDIATE``, so there is one writer at a time and none of
its reads can be overtaken; ``synchronous=FULL``, so an acknowledged write outlives a power cut. Due times are judged by
the host's wall clock, leases by its monotonic clock: setting the clock kills no lease.
"""

from cronsensus.stores.sql.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
