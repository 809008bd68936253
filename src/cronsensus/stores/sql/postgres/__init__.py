"""The PostgreSQL store: for nodes on any number of hosts. Floor 3.

READ COMMITTED throughout: rows are locked before they are judged, and every write asks once more for what it rests on.
Due times and leases are judged by the server's clock. Wake-ups go by LISTEN and NOTIFY; a lock on the listening
connection is the evidence that a process lives. Driver: psycopg 3.
"""

from cronsensus.stores.sql.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
