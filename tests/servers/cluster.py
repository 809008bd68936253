"""A Cluster of Redis (or Valkey) servers of our own."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.redis import RedisServer
from tests.servers.server import PATIENCE, ServerFailed

SLOTS = 16384


class ClusterServer(RedisServer):
    """One server that may become part of a Cluster."""

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__(
            durable=durable,
            settings={
                "cluster-enabled": "yes",
                "cluster-node-timeout": "5000",
                "cluster-allow-reads-when-down": "yes",
                "cluster-migration-barrier": "99",  # a replica stays with its master
            },
        )

    def answering(self) -> Path | None:
        # Commands about keys are refused until the Cluster is whole.
        with redis.Redis(
            port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0), decode_responses=True
        ) as client:
            try:
                return Path(client.config_get("dir")["dir"])
            except redis.RedisError:
                return None

    def ask(self, *words: object) -> object:
        """Send it a command."""
        with redis.Redis(port=self.port, socket_timeout=5, decode_responses=True) as client:
            return client.execute_command(*words)

    def knows_all(self, servers: int) -> bool:
        """Tell whether it knows so many servers, and that all slots are served."""
        known = str(self.ask("CLUSTER", "SLOTS")).count("127.0.0.1") == servers
        return known and "cluster_state:ok" in str(self.ask("CLUSTER", "INFO"))

    @property
    def name(self) -> str:
        """What it is called by the others."""
        return str(self.ask("CLUSTER", "MYID"))


class RedisCluster:
    """So many masters, each with its share of the slots; ``first_has``: a slot of the first one, which has replicas."""

    def __init__(self, *, durable: bool = False, masters: int = 3, first_has: int = 0, replicas: int = 0) -> None:
        """Prepare; entering the context starts it.

        Raises:
            ServiceMissing: there is no Redis here.
        """
        self.first_has = first_has
        self._open = contextlib.ExitStack()
        self.servers = [ClusterServer(durable=durable) for _ in range(masters)]
        self.replicas = [ClusterServer(durable=durable) for _ in range(replicas)]

    @property
    def url(self) -> str:
        """Where its first server answers."""
        return f"redis+cluster://127.0.0.1:{self.servers[0].port}"

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            for server in self.servers:
                opening.enter_context(server)
            shares = [range(SLOTS * i // len(self.servers), SLOTS * (i + 1) // len(self.servers))
                      for i in range(len(self.servers))]  # fmt: skip
            shares.sort(key=lambda share: self.first_has not in share)
            for number, (server, share) in enumerate(zip(self.servers, shares, strict=True)):
                server.ask("CLUSTER", "ADDSLOTS", *share)  # by ranges only since 7.0
                server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                if number:
                    self.servers[0].ask("CLUSTER", "MEET", "127.0.0.1", server.port)
            for replica in self.replicas:
                opening.enter_context(replica)
                self.servers[0].ask("CLUSTER", "MEET", "127.0.0.1", replica.port)
            deadline = time.monotonic() + PATIENCE
            for replica in self.replicas:
                self._follow_first(replica, deadline)
            while not all(server.knows_all(len(self.servers) + len(self.replicas)) for server in self.servers):
                if time.monotonic() > deadline:
                    raise ServerFailed(f"the Cluster is not whole after {PATIENCE:.0f} s: {self.servers[0].log_end}")
                threading.Event().wait(0.02)
            self._open = opening.pop_all()
        return self

    def _follow_first(self, replica: ClusterServer, deadline: float) -> None:
        """Have it follow the first server, which it may not know yet."""
        while True:
            try:
                replica.ask("CLUSTER", "REPLICATE", self.servers[0].name)
            except redis.ResponseError:
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(0.05)
            else:
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
