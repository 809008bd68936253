"""PostgreSQL of our own."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import psycopg

from tests.servers.programs import program
from tests.servers.server import Server


class PostgresServer(Server):
    """One PostgreSQL. ``settings`` go before ours: ``{"max_connections": "20"}``."""

    kind = "postgres"
    users = ("postgres",)

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
        lives_with: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self.program = program("postgresql", "postgres")
        super().__init__(durable=durable, lives_with=lives_with, folder=folder)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def stop_signal(self) -> signal.Signals:
        return signal.SIGINT  # "fast": SIGTERM would wait for the clients

    def make(self) -> None:
        # Not synced: nothing is in it yet that a power cut could take.
        self.run(
            [str(Path(self.program).parent / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust",
             "--no-sync", "--encoding=UTF8", "--locale=C", "--no-instructions"],
        )  # fmt: skip

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "300",
            "max_prepared_transactions": "10",
            "timezone": "Asia/Kathmandu",  # +05:45: who forgets to ask for UTC is found out
            "logging_collector": "off",
        }
        if not self.durable:
            settings |= {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
            # Else a server that is killed leaves its segments in /dev/shm; so they lie in its folder.
            settings |= {"dynamic_shared_memory_type": "mmap"}
        settings |= self.settings
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.program, "-D", str(self.data), "-p", str(self.port), *options]

    def answering(self) -> Path | None:
        return data_behind(self.url)


def data_behind(url: str) -> Path | None:
    """Return the data directory of the PostgreSQL that answers at ``url``; None if none does."""
    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True, prepare_threshold=None) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.OperationalError:
        return None
    return Path(row[0]) if row else None
