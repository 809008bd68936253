"""PgBouncer before a PostgreSQL: a session is a client's only for one transaction."""

from __future__ import annotations

from pathlib import Path

from tests.servers.postgres import PostgresServer, data_behind
from tests.servers.programs import program
from tests.servers.server import Server


class PgBouncer(Server):
    """One PgBouncer, pooling transactions, before ``server``."""

    kind = "pgbouncer"
    users = ("postgres",)

    def __init__(self, server: PostgresServer, *, pool_size: int = 20) -> None:
        self.server = server
        self.pool_size = pool_size
        self.program = program("pgbouncer", "pgbouncer")
        super().__init__()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        self.run(["mkdir", str(self.data)])

    def command(self) -> list[str]:
        settings = self.data / "pgbouncer.ini"
        settings.write_text(
            f"""[databases]
postgres = host=127.0.0.1 port={self.server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {self.pool_size}
max_client_conn = 500
"""
        )
        return [self.program, str(settings)]

    def answering(self) -> Path | None:
        # It has no data of its own; it answers for the server behind it.
        return self.data if data_behind(self.url) == self.server.data else None
