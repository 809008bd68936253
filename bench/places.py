"""Where the benchmarks keep state: in a server of their own, as its makers ship it; a fresh place for each use."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from bench.network import Network
from tests.servers.server import Server

KINDS = ("sqlite", "postgres", "mysql", "redis")


class Places(ABC):
    """A store that gives out empty places, and counts what is sent to it."""

    kind: str
    counts = "not counted"
    """How statements are counted, in words."""
    network: Network | None = None
    """What is between nodes and the server; the benches themselves are beside it."""
    server: int | None = None
    """The pid of the server."""

    @abstractmethod
    def fresh(self) -> str:
        """Make an empty place and return its URL, which any library understands."""

    def sent(self, url: str) -> int:
        """Return how many statements clients have sent to a place since it was made, this one not counted."""
        raise NotImplementedError(url)

    def by_way(self, url: str) -> str:
        """Return the URL for nodes, who may be further away than the benches."""
        return self.network.by_way(url) if self.network else url

    def where(self) -> str:
        """Say on what, and how far away."""
        return self.kind + (f", {self.network.milliseconds:g} ms away" if self.network else "")

    def round_trips(self) -> int:
        """Return how often clients have asked the server and waited, by way of the network; 0: there is none."""
        return self.network.round_trips() if self.network else 0

    def processor(self) -> float:
        """Return the seconds of processor time that the server's processes have taken; NaN: it is no process."""
        if self.server is None:
            return float("nan")
        parent = psutil.Process(self.server)
        spent = sum(parent.cpu_times()[:4])  # with those of its children that have ended
        for child in parent.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                spent += sum(child.cpu_times()[:2])
        return float(spent)


class Files(Places):
    """SQLite: a file each."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._names = (folder / f"bench{number}.db" for number in itertools.count())

    def fresh(self) -> str:
        return f"sqlite:///{next(self._names)}"


class Postgres(Places):
    """PostgreSQL: a database each."""

    kind = "postgres"
    counts = "pg_stat_statements: calls by clients, BEGIN and COMMIT included"

    def __init__(self, server: str) -> None:
        import psycopg

        self._server = server
        self._connection = psycopg.connect(server, autocommit=True)
        self._connection.execute("CREATE EXTENSION pg_stat_statements")
        self._numbers = itertools.count()

    def fresh(self) -> str:
        name = f"bench{next(self._numbers)}"
        self._connection.execute(f"CREATE DATABASE {name}")
        return self._server.rpartition("/")[0] + f"/{name}"

    def sent(self, url: str) -> int:
        # From another database, so that asking is not counted.
        row = self._connection.execute(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            " WHERE d.datname = %s",
            (urlsplit(url).path.lstrip("/"),),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def spent(self, url: str) -> tuple[int, float]:
        """Return what ``sent`` does, and the milliseconds that the server took for it."""
        row = self._connection.execute(
            "SELECT coalesce(sum(calls), 0), coalesce(sum(total_exec_time), 0) FROM pg_stat_statements s"
            " JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s",
            (urlsplit(url).path.lstrip("/"),),
        ).fetchone()
        assert row is not None
        return int(row[0]), float(row[1])

    def run(self, url: str, text: str) -> None:
        """Run statements in a place."""
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text.encode())

    def forget(self, url: str) -> None:
        """Begin to count anew: what was sent to make the place and to wait for its nodes is nobody's cost."""
        self._connection.execute(
            "SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = %s",
            (urlsplit(url).path.lstrip("/"),),
        )

    def most_sent(self, url: str, limit: int = 12) -> list[tuple[int, str]]:
        """Return which statements were sent most often, and how often."""
        rows = self._connection.execute(
            "SELECT calls, regexp_replace(query, '\\s+', ' ', 'g') FROM pg_stat_statements s"
            " JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s ORDER BY calls DESC LIMIT %s",
            (urlsplit(url).path.lstrip("/"), limit),
        )
        return [(int(calls), str(text)) for calls, text in rows]


class Mysql(Places):
    """MariaDB or MySQL: a database each."""

    kind = "mysql"
    counts = "the server's counter Questions"

    def __init__(self, server: str) -> None:
        import pymysql

        parts = urlsplit(server)
        self._server = server
        self._connection = pymysql.connect(host=parts.hostname, port=parts.port or 3306, user="root", autocommit=True)
        self._numbers = itertools.count()
        self._asked = 0

    def fresh(self) -> str:
        name = f"bench{next(self._numbers)}"
        self._connection.cursor().execute(f"CREATE DATABASE {name}")
        self._asked += 1
        return self._server.rpartition("/")[0] + f"/{name}"

    def sent(self, url: str) -> int:
        del url  # of the whole server: one place is in use at a time
        cursor = self._connection.cursor()
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
        self._asked += 1
        row = cursor.fetchone()
        assert row is not None
        return int(row[1]) - self._asked


class Redis(Places):
    """Redis or Valkey: a numbered database each."""

    kind = "redis"
    counts = "MONITOR: commands by clients; those inside scripts apart"

    def __init__(self, server: str) -> None:
        import redis

        self._server = server
        self._client = redis.Redis.from_url(server)
        self._numbers = itertools.count()

    def fresh(self) -> str:
        return self._server.rpartition("/")[0] + f"/{next(self._numbers)}"

    def executed(self) -> int:
        """Return INFO commandstats' sum of calls: those inside scripts, too, and not those of the benches."""
        stats: dict[str, dict[str, Any]] = self._client.info("commandstats")
        return sum(each["calls"] for name, each in stats.items() if name not in {"cmdstat_info", "cmdstat_monitor"})

    def watch(self, url: str, seconds: float) -> tuple[int, int]:
        """Return how many commands clients send in so many seconds, and how many scripts execute.

        MONITOR slows the server down: never while something is timed.
        """
        database = urlsplit(url).path.lstrip("/").encode()
        with self._client.monitor() as monitor:
            wire = monitor.connection._sock  # noqa: SLF001 - the driver's own parser is slower than the server
            wire.settimeout(0.1)
            until, text = time.monotonic() + seconds, bytearray()
            while time.monotonic() < until:
                with contextlib.suppress(TimeoutError):
                    text += wire.recv(1 << 16)
        lines = [line.split(b"]", 1)[0] for line in bytes(text).splitlines() if b" [" in line]
        of = [line.rpartition(b"[")[2].split() for line in lines]
        scripts = sum(words == [database, b"lua"] for words in of)
        return sum(len(words) == 2 and words[0] == database for words in of) - scripts, scripts


@contextlib.contextmanager
def open_places(kind: str, milliseconds: float = 0) -> Iterator[Places]:
    """Start a server, with defaults that wait for the disk, so far away from nodes; end it afterwards."""
    if kind == "sqlite":
        folder = Path(tempfile.mkdtemp(prefix="cronsensus-bench-"))
        try:
            yield Files(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    with open_server(kind) as server:
        kinds: dict[str, Callable[[str], Places]] = {"postgres": Postgres, "mysql": Mysql, "redis": Redis}
        places = kinds[kind](server.url)
        places.server = server.pid
        places.network = Network(server.url, milliseconds) if milliseconds else None
        try:
            yield places
        finally:
            if places.network:
                places.network.close()


def open_server(kind: str) -> Server:
    """Return a server that is started when it is entered, and ended afterwards."""
    if kind == "postgres":
        from tests.servers.postgres import PostgresServer

        return PostgresServer(
            settings={"shared_preload_libraries": "pg_stat_statements", "synchronous_commit": "on", "fsync": "on"}
        )
    if kind == "mysql":
        from tests.servers.mysql import mysql_or_mariadb

        return mysql_or_mariadb()
    from tests.servers.redis import RedisServer

    # As docs/stores.md advises: an append-only file, synced each second, which is Redis's default for one.
    return RedisServer(settings={"appendfsync": "everysec", "databases": "256"})
