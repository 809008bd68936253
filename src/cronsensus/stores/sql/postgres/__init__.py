"""The PostgreSQL store: for nodes on any number of hosts.

READ COMMITTED throughout: rows are locked before they are judged, and every write asks once more for what it rests on.
Due times and leases are judged by the server's clock. Wake-ups go by LISTEN and NOTIFY; a lock on the listening
connection is the evidence that a process lives. Driver: psycopg 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronsensus.stores.sql.postgres.postgres_store import PostgresStore

__all__ = ["PostgresStore"]


def __getattr__(name: str) -> Any:
    """Import the store when it is asked for: what only asks the driver, such as a probe, does without the verbs."""
    if name in __all__:
        from cronsensus.stores.sql.postgres.postgres_store import PostgresStore

        return PostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
