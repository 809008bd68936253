"""Wake-ups between processes: one connection that listens to the namespace's channel.

A notification is the name of the handle that sent it, so that a handle does not wake itself. The server keeps none: one
that is sent while a node does not listen is lost, and costs that node the time until its next poll.
"""

from __future__ import annotations

import contextlib
import secrets

from cronsensus.errors import StoreError
from cronsensus.process.interrupts import Event
from cronsensus.stores.redis.client import Client
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.pubsub import Subscription
from cronsensus.stores.redis.routing import Route
from cronsensus.timing.clock import SystemClock

_CLOCK = SystemClock()


class Wake:
    """The notifications of one handle. ``wait`` is for one thread at a time; ``notify`` and ``close`` for any."""

    def __init__(self, keyspace: Keyspace, route: Route, client: Client) -> None:
        """Subscribe by ``route``, which this object owns, and publish over ``client``."""
        self._channel = keyspace.channel
        self._client = client
        self._subscription = Subscription(route, keyspace.channel, where=client.where)
        self.name = secrets.token_hex(8).encode()
        self._closed = Event()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a notification; ``True``: there was one.

        Raises:
            StoreUnavailable: the channel cannot be listened to; the next call tries again.
        """
        deadline = _CLOCK.monotonic() + timeout
        while not self._closed.is_set():
            self._subscription.listen()
            left = deadline - _CLOCK.monotonic()
            try:
                heard = self._subscription.receive(max(0.0, left))
            except StoreError:
                # Cut off. Reconnect at once, because peers take a missing sign of life for a death. Notifications since
                # then are lost, so this counts as one. If it fails, the caller waits.
                self._subscription.listen()
                return not self._closed.is_set()
            if any(sender != self.name for sender in heard):
                return not self._closed.is_set()
            if left <= 0:
                break
        return False

    def show_sign(self, sign: bytes | None) -> None:
        """Show a sign of life, a channel, instead of the one before, while something waits."""
        self._subscription.show_sign(sign)

    def notify(self) -> None:
        """Notify the other handles of the namespace. Never raises."""
        if not self._closed.is_set():
            with contextlib.suppress(StoreError):
                self._client.run_command("PUBLISH", self._channel, self.name)

    def close(self) -> None:
        """Stop listening and notifying; end a ``wait`` in another thread. Idempotent."""
        self._closed.set()
        self._subscription.close()
