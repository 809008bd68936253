"""Wake-ups between processes: one connection that listens to the namespace's channel.

A hint is the name of who sent it, so that a handle does not wake itself. Hints are not kept by the server: one that is
sent while nobody listens is lost, and costs a node the time until it looks by itself.
"""

from __future__ import annotations

import contextlib
import secrets

from cronsensus.clock import SystemClock
from cronsensus.errors import StoreError
from cronsensus.interrupts import Event
from cronsensus.stores.redis.ear import Ear
from cronsensus.stores.redis.link import Link
from cronsensus.stores.redis.routes import Route
from cronsensus.stores.redis.space import Space

_CLOCK = SystemClock()


class Wake:
    """One handle's ear and voice. ``wait`` by one thread at a time; ``notify`` and ``close`` by any."""

    def __init__(self, space: Space, route: Route, link: Link) -> None:
        """Listen by ``route``, which is this object's own, and speak over ``link``."""
        self._channel = space.channel
        self._link = link
        self._ear = Ear(route, space.channel, where=link.where)
        self._name = secrets.token_hex(8).encode()
        self._closed = Event()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a hint; ``True``: there was one.

        Raises:
            StoreUnavailable: the channel cannot be listened to; the next call tries again.
        """
        deadline = _CLOCK.monotonic() + timeout
        while not self._closed.is_set():
            self._ear.listen()
            left = deadline - _CLOCK.monotonic()
            try:
                heard = self._ear.hear(max(0.0, left))
            except StoreError:
                # Cut off: at once back again, because others take the sign of life for a death when it stays away. What
                # was sent meanwhile is lost, so this is a hint as well. Where it fails, the caller waits.
                self._ear.listen()
                return not self._closed.is_set()
            if any(sender != self._name for sender in heard):
                return not self._closed.is_set()
            if left <= 0:
                break
        return False

    def show(self, sign: bytes | None) -> None:
        """Show a sign of life, a channel, instead of the one before, while something waits."""
        self._ear.show(sign)

    def notify(self) -> None:
        """Tell the other handles of the namespace. Never raises."""
        if not self._closed.is_set():
            with contextlib.suppress(StoreError):
                self._link.command("PUBLISH", self._channel, self._name)

    def close(self) -> None:
        """Stop listening and telling; ends a ``wait`` in another thread. Idempotent."""
        self._closed.set()
        self._ear.close()
