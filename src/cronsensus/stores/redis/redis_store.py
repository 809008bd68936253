"""The Redis store: opening it, and its wake-ups."""

from __future__ import annotations

from typing import Self

from cronsensus.model.job import check_name
from cronsensus.stores.base import Store
from cronsensus.stores.redis.client import Client
from cronsensus.stores.redis.defining import DefiningVerbs
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.maintenance import MaintenanceVerbs
from cronsensus.stores.redis.operating import OperatingVerbs
from cronsensus.stores.redis.pubsub import Subscription
from cronsensus.stores.redis.redis_health import EvictionWatch
from cronsensus.stores.redis.redis_locks import LockVerbs
from cronsensus.stores.redis.redis_presence import HeartbeatSign
from cronsensus.stores.redis.redis_reading import Reads
from cronsensus.stores.redis.redis_url import read_url
from cronsensus.stores.redis.redis_wake import Wake
from cronsensus.stores.redis.rounds import RoundVerbs
from cronsensus.stores.redis.routing import route_to
from cronsensus.stores.redis.sessions import SessionVerbs
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import Clock, SystemClock

_CAPABILITIES = StoreCapabilities(
    name="redis",
    clock="server",
    # TIME is the server's wall clock, the only one that a script can ask. Setting it moves leases too.
    lease_clock="server",
    hosts="many",
    notify=True,
    transactional_finish=False,
    survives="a killed node; a restart as far as the server saved (append-only file: all but the last second); "
    "a failover but for the last writes, which replicas get a moment later (?min_replicas= waits for them)",
)


class RedisStore(DefiningVerbs, OperatingVerbs, RoundVerbs, SessionVerbs, LockVerbs, MaintenanceVerbs, Reads, Store):
    """A store in Redis 6.2 or Valkey: one script a verb, all keys of a namespace in one hash slot.

    Example:
        >>> store = RedisStore("redis://localhost:6379/0?prefix=shop")
        >>> store.capabilities.hosts
        'many'
    """

    def __init__(self, url: str, *, namespace: str = "default", clock: Clock | None = None) -> None:
        """Make a handle on the server that ``url`` names; nothing is connected yet.

        Raises:
            InvalidOption: the URL names no server, or an option that does not exist.
        """
        self.namespace = check_name(namespace, what="namespace")
        self._url_and_clock = (url, clock)
        self._url = read_url(url)
        self._clock = clock
        self._keyspace = Keyspace(self._url.prefix, namespace)
        meta = self._keyspace.meta.decode()
        self._client = Client(self._url, self._keyspace, route_to(self._url, meta))
        self._heartbeat_sign = HeartbeatSign(
            lambda sign: Subscription(route_to(self._url, meta), sign, where=self._client.where)
        )
        self._wake_ups = Wake(self._keyspace, route_to(self._url, meta), self._client)
        self._sender = self._wake_ups.name.decode()
        self._eviction = EvictionWatch(self._client, clock or SystemClock())
        self._prepare_clock_watch()
        self._prepare_rounds()

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what this store can do."""
        return _CAPABILITIES

    def _sibling(self) -> Self:
        url, clock = self._url_and_clock
        return type(self)(url, namespace=self.namespace, clock=clock)

    def _close(self) -> None:
        self._wake_ups.close()
        self._heartbeat_sign.close()
        self._client.close()

    def _wait(self, timeout: float) -> bool:
        return self._wake_ups.wait(timeout)

    def _register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` while something waits on this handle, and from its next renewal here."""
        self._registered = session
        self._wake_ups.show_sign(None if session is None else self._keyspace.sign_channel(session))

    def _notify(self) -> None:
        self._wake_ups.notify()
