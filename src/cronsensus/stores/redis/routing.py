"""Find the server that has the keys of a namespace, and connect to it.

All keys of a namespace lie in a single hash slot, so at any time a single server has them all: the server in the URL,
the master that the Sentinels name, or the server of a Cluster that has the slot. The driver's own retries are off: it
would send a script again after a lost answer, and not every verb may be done twice. The caller of a verb repeats it.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, Protocol, cast

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, SSLConnection
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from cronsensus.stores.redis.redis_url import RedisUrl

MOST_CONNECTIONS = 10_000
_SILENT_FOR = 30
"""Seconds of silence after which the kernel probes the other side."""

Address = tuple[str, int]


class DriverConnection(Protocol):
    """The methods used of the driver's connections, whose own types are incomplete."""

    _sock: socket.socket

    def connect(self) -> None: ...  # noqa: D102
    def send_command(self, *words: bytes | str | int) -> None: ...  # noqa: D102
    def send_packed_command(self, command: list[bytes]) -> None: ...  # noqa: D102
    def pack_commands(self, commands: list[tuple[bytes | str | int, ...]]) -> list[bytes]: ...  # noqa: D102
    def read_response(self) -> Any: ...  # noqa: D102
    def can_read(self, timeout: float) -> bool: ...  # noqa: D102
    def disconnect(self) -> None: ...  # noqa: D102


class Pool(Protocol):
    """The methods used of the driver's connection pools, which handle forks themselves."""

    def get_connection(self) -> DriverConnection: ...  # noqa: D102
    def release(self, connection: DriverConnection) -> None: ...  # noqa: D102
    def disconnect(self, inuse_connections: bool = True) -> None: ...  # noqa: D102, FBT001, FBT002 - as the driver has it


class Route:
    """The way to the server that has the keys. Safe to share between threads, and across a fork."""

    def __init__(self, url: RedisUrl) -> None:
        """Prepare the way for ``url``; nothing is connected yet."""
        self._url = url
        self._pool: Pool | None = None
        self._lock = threading.Lock()

    def pool(self) -> Pool:
        """Return the connections to the server that has the keys.

        Raises:
            redis.exceptions.RedisError: no server names that server.
        """
        pool = self._pool
        if pool is None:
            pool = self._make_pool()
            with self._lock:
                pool = self._pool = self._pool or pool
        return pool

    def _make_pool(self) -> Pool:
        return self._pool_of(self._url.hosts[0])

    def _pool_of(self, address: Address) -> Pool:
        host, port = address
        pool = ConnectionPool(
            connection_class=Connection if self._url.tls is None else SSLConnection,
            max_connections=MOST_CONNECTIONS,
            **connection_options(self._url),
            host=host,
            port=port,
        )
        return cast("Pool", pool)

    def follow_move(self, address: Address) -> bool:  # noqa: ARG002 - only a Cluster has others
        """Follow an answer that names another server; ``False``: not possible for this kind of URL."""
        return False

    def forget_place(self) -> None:
        """Find the server anew before the next use: it is gone, or no longer the master."""

    def close(self) -> None:
        """Close all connections; those in use fail."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.disconnect()


class SentinelRoute(Route):
    """The master that the Sentinels name. The driver reads it from them before each new connection."""

    def _make_pool(self) -> Pool:
        url = self._url
        asking = connection_options(url) | {
            "db": 0,
            "username": url.sentinel_username,
            "password": url.sentinel_password,
        }
        if url.tls is not None:
            asking["ssl"] = True
        sentinel = cast("Any", Sentinel)(url.hosts, sentinel_kwargs=asking)
        pool = cast("Any", SentinelConnectionPool)(
            url.service, sentinel, ssl=url.tls is not None, max_connections=MOST_CONNECTIONS, **connection_options(url)
        )
        return cast("Pool", pool)

    def forget_place(self) -> None:
        """Close the idle connections, so that the next use reads from the Sentinels."""
        pool = self._pool
        if pool is not None:
            pool.disconnect(inuse_connections=False)


class ClusterRoute(Route):
    """The server of a Cluster that has the slot."""

    def __init__(self, url: RedisUrl, key: str) -> None:
        """Prepare the way to ``key``."""
        super().__init__(url)
        self._slot = key_slot(key.encode())
        self._others: tuple[Address, ...] = ()
        """The servers that the Cluster named last."""

    def _make_pool(self) -> Pool:
        return self._pool_of(self._locate_master())

    def _locate_master(self) -> Address:
        problem: Exception = exceptions.ClusterDownError(f"slot {self._slot} belongs to no server")
        for address in dict.fromkeys((*self._others, *self._url.hosts)):
            try:
                master = self._ask_for_slot(address)
            except (exceptions.RedisError, OSError) as error:
                problem = error
            else:
                if master is not None:
                    return master
        raise problem

    def _ask_for_slot(self, address: Address) -> Address | None:
        """Read from a server which server has the slot."""
        host, port = address
        kind = Connection if self._url.tls is None else SSLConnection
        connection = cast("DriverConnection", kind(**connection_options(self._url), host=host, port=port))
        try:
            connection.connect()
            connection.send_command("CLUSTER", "SLOTS")
            ranges: list[Any] = connection.read_response()
        finally:
            connection.disconnect()
        master, others = None, []
        for first, last, *servers in ranges:
            # A server without a name has the host of the server that answered.
            addresses = [((server[0] or b"").decode() or host, int(server[1])) for server in servers]
            others += addresses
            if first <= self._slot <= last:
                master = addresses[0]
        self._others = tuple(others)
        return master

    def follow_move(self, address: Address) -> bool:
        """Use the server that the answer names."""
        pool = self._pool_of((address[0] or self._url.hosts[0][0], address[1]))
        with self._lock:
            old, self._pool = self._pool, pool
        if old is not None:
            old.disconnect(inuse_connections=False)
        return True

    def forget_place(self) -> None:
        """Find the server anew before the next use."""
        with self._lock:
            old, self._pool = self._pool, None
        if old is not None:
            old.disconnect(inuse_connections=False)


def route_to(url: RedisUrl, key: str) -> Route:
    """Return the way to ``key``, which stands for all keys of its slot."""
    match url.kind:
        case "server":
            return Route(url)
        case "sentinel":
            return SentinelRoute(url)
        case "cluster":
            return ClusterRoute(url, key)


def connection_options(url: RedisUrl) -> dict[str, Any]:
    """Return the options of every connection."""
    return {
        "db": url.database,
        "username": url.username,
        "password": url.password,
        # The answer of a write comes after that of its replicas.
        "socket_timeout": max(url.timeout, url.replica_timeout + 1.0 if url.min_replicas else 0.0),
        "socket_connect_timeout": url.connect_timeout,
        "socket_keepalive": True,
        "socket_keepalive_options": _keepalive_options(),
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
        **(url.tls or {}),
    }


def _keepalive_options() -> dict[int, int]:
    """Return the kernel's options for noticing a dead peer on a connection that only listens."""
    wanted = {
        "TCP_KEEPIDLE": _SILENT_FOR,
        "TCP_KEEPINTVL": 10,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 2 * _SILENT_FOR * 1000,
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
