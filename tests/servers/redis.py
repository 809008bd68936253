"""Redis (or Valkey) of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.programs import program
from tests.servers.server import Server


class RedisServer(Server):
    """One Redis. ``settings`` go before ours: ``{"maxclients": "20"}``.

    Durable: an append-only file, synced at each write (``appendfsync always``); else nothing is written to disk.
    """

    kind = "redis"
    users = ("redis", "valkey")

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = True,
        lives_with: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self.program = program("redis-server", "redis-server", "valkey-server")
        super().__init__(durable=durable, lives_with=lives_with, folder=folder)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def make(self) -> None:
        self.run(["mkdir", str(self.data)])

    def command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "dir": str(self.data),
            "save": "",
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        } | self.settings
        return [self.program, "--port", str(self.port), *(word for n, v in settings.items() for word in (f"--{n}", v))]

    def answering(self) -> Path | None:
        with redis.Redis(
            port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0), decode_responses=True
        ) as client:
            try:
                client.exists("")  # refused while it is still loading
                return Path(client.config_get("dir")["dir"])
            except redis.RedisError:
                return None
