"""Redis with replicas, and the Sentinels that choose another master; each server is reached by its way alone."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.server import PATIENCE, ServerFailed

NAME = "name"
"""What the Sentinels call the master that they watch."""


class SentinelServer(RedisServer):
    """Watches the master that answers at a port; so many votes, its own among them, are enough for a failover."""

    def __init__(self, port_of_master: int, *, votes: int = 1, down_after: float = 0.5) -> None:
        super().__init__(durable=False)
        self._lines = [
            f"sentinel monitor {NAME} 127.0.0.1 {port_of_master} {votes}",
            f"sentinel down-after-milliseconds {NAME} {down_after * 1000:.0f}",
            f"sentinel failover-timeout {NAME} {max(3000, 2000 * down_after):.0f}",
        ]

    def make(self) -> None:
        super().make()
        lines = [*self._lines, f"dir {self.data}"]
        self.run(["sh", "-c", f"printf '%s\\n' \"$@\" > '{self.data}/sentinel.conf'", "sh", *lines])

    def command(self) -> list[str]:
        return [self.program, str(self.data / "sentinel.conf"), "--port", str(self.port), "--sentinel"]

    def answering(self) -> Path | None:
        with redis.Redis(
            port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0), decode_responses=True
        ) as client:
            try:
                return self.data if client.ping() else None
            except redis.RedisError:
                return None


class WatchedServer(RedisServer):
    """A Redis that tells the others to reach it by its way."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(settings=settings)
        self.way = Proxy(self.url)
        self.port_of_way = urlsplit(self.way.url).port or 0
        self.settings |= {"replica-announce-ip": "127.0.0.1", "replica-announce-port": str(self.port_of_way)}

    def cut_off(self) -> None:
        """Take its network away."""
        self.way.black_hole()

    def let_in(self) -> None:
        """Give it its network back; what was open has ended meanwhile."""
        self.way.cut()
        self.way.pass_on()

    def replication(self) -> dict[str, Any]:
        """Return what it says of its replication, asked past its way; nothing if it does not answer."""
        with redis.Redis(port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client:
            try:
                found: dict[str, Any] = client.info("replication")
            except redis.RedisError:
                return {}
        return found

    def end(self) -> None:
        super().end()
        self.way.close()


class WatchedRedis:
    """Three Redis, each synced at each write, and three Sentinels; a context manager.

    Args:
        settings: of each Redis.
        down_after: seconds after which a Sentinel takes a silent server for down.
    """

    def __init__(self, *, settings: dict[str, str] | None = None, down_after: float = 3.0) -> None:
        self._open = contextlib.ExitStack()
        common = {"repl-diskless-sync-delay": "0", "repl-timeout": "5", "repl-ping-replica-period": "1"}
        self.servers = [WatchedServer(common | (settings or {})) for _ in range(3)]
        first = self.servers[0]
        for server in self.servers[1:]:
            server.settings["replicaof"] = f"127.0.0.1 {first.port_of_way}"
        self.sentinels = [SentinelServer(first.port_of_way, votes=2, down_after=down_after) for _ in range(3)]

    @property
    def url(self) -> str:
        """What leads to whichever server is the master."""
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{places}/{NAME}"

    def master(self) -> WatchedServer | None:
        """Return the server that most Sentinels name, if it says so itself; ``None``: there is none."""
        named = [self._port_named_by(sentinel) for sentinel in self.sentinels]
        for server in self.servers:
            if named.count(server.port_of_way) >= 2 and server.replication().get("role") == "master":
                return server
        return None

    def _port_named_by(self, sentinel: SentinelServer) -> int:
        with redis.Redis(port=sentinel.port, socket_timeout=2, decode_responses=True) as client:
            return int(client.sentinel_get_master_addr_by_name(NAME)[1])

    def await_whole(self, within: float = 3 * PATIENCE) -> WatchedServer:
        """Wait until one server is the master, both others follow it, and the Sentinels know all; return it."""
        deadline = time.monotonic() + within
        while True:
            master = self.master()
            if master is not None and master.replication().get("connected_slaves") == 2 and self._know_all():
                return master
            if time.monotonic() > deadline:
                raise ServerFailed(f"not whole after {within:.0f} s:\n{self.sentinels[0].log_end}")
            threading.Event().wait(0.2)

    def _know_all(self) -> bool:
        for sentinel in self.sentinels:
            with redis.Redis(port=sentinel.port, socket_timeout=2, decode_responses=True) as client:
                others = client.sentinel_master(NAME)["num-other-sentinels"]
                well = [one for one in client.sentinel_slaves(NAME) if one["flags"] == "slave"]
            if others != 2 or len({one["port"] for one in well}) != 2:
                return False
        return True

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            for server in (*self.servers, *self.sentinels):
                opening.callback(server.end)
                server.start()
            self.await_whole()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
