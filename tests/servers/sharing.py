"""One server of each kind for a whole test run, however many workers pytest-xdist starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tests.servers import guardian
from tests.servers.mysql import mysql_or_mariadb
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitmqServer
from tests.servers.redis import RedisServer
from tests.servers.server import Server

MAKERS: dict[str, Callable[..., Server]] = {
    "postgres": PostgresServer,
    "mysql": mysql_or_mariadb,
    "redis": RedisServer,
    "rabbitmq": RabbitmqServer,
}


@dataclass(frozen=True)
class TestRun:
    """What the processes of one test run know of one another: the first one's pid, and a folder."""

    __test__ = False
    pid: int
    folder: Path

    def url(self, kind: str) -> str:
        """Return the address of the run's server of a kind; start it if nobody has.

        It lives as long as the first process, not as long as the worker that happened to ask first. It does not wait
        for the disk (``durable=False``): what a power cut takes is no question of these tests.

        Raises:
            ServiceMissing: the machine has no such server.
        """
        known = self.folder / f"{kind}.json"
        with FileLock(self.folder / f"{kind}.lock"):
            if not known.exists():
                server = MAKERS[kind](durable=False, lives_with=self.pid)
                try:
                    server.start()
                except BaseException:
                    server.end()
                    raise
                known.write_text(json.dumps({"url": server.url, "guardian": server.guardian}))
                server.leave_running()
        url = json.loads(known.read_text())["url"]
        assert isinstance(url, str)
        return url

    def end(self) -> None:
        """End all servers of the run."""
        for known in self.folder.glob("*.json"):
            pid = json.loads(known.read_text())["guardian"]
            assert guardian.dismiss(pid), f"the guardian {pid} does not end"
