"""A connection that only listens: to a channel of messages, and to one that shows that its process lives."""

from __future__ import annotations

import os
import threading
import weakref

from redis import exceptions

from cronsensus.clock import SystemClock
from cronsensus.stores.bell import Bell
from cronsensus.stores.presence import hollow
from cronsensus.stores.redis.errors import translate
from cronsensus.stores.redis.routes import Route, Wire

_CLOCK = SystemClock()
_all: weakref.WeakSet[Ear] = weakref.WeakSet()


class Ear:
    """Hears what is published on a channel. ``listen`` and ``hear`` by one thread at a time, the others by any.

    A message that is sent while nobody listens is lost.
    """

    def __init__(self, route: Route, channel: bytes, *, where: str) -> None:
        """Listen by ``route``, which is this object's own; nothing is opened before ``listen``."""
        self._route = route
        self._channel = channel
        self._where = where
        self._lock = threading.Lock()
        self._wire: Wire | None = None
        self._sign: bytes | None = None
        self._shown: bytes | None = None
        self._bell = Bell(self._let_go)
        _all.add(self)

    def show(self, sign: bytes | None) -> None:
        """Listen also to the channel ``sign``, and no more to the one before, so that others see this process there."""
        self._sign = sign
        self._bell.ring()

    def listen(self) -> bool:
        """Begin to listen, once the server has said that it will send what comes; ``False``: that was so already.

        Raises:
            StoreUnavailable: that failed; the next call tries again.
        """
        with self._lock:
            if self._wire is not None or self._bell.is_closed():
                return False
            try:
                self._route.forget()  # the server may be another one than it was
                self._wire = wire = self._route.pool().get_connection()
                self._shown = self._sign
                wire.send_command("SUBSCRIBE", self._channel, *([self._shown] if self._shown else []))
                wire.read_response()
            except (exceptions.RedisError, OSError) as error:
                self._hang_up()
                raise translate(error, self._where) from error
            return True

    def hear(self, timeout: float) -> list[bytes]:
        """Wait up to ``timeout`` seconds for messages; return those that came, at once all of them.

        Raises:
            StoreUnavailable: the connection broke; ``listen`` again.
        """
        until = _CLOCK.monotonic() + timeout
        with self._lock:
            wire = self._wire
        if wire is None or self._bell.is_closed():
            return []
        messages: list[bytes] = []
        with self._bell:
            try:
                self._show(wire)
                # What the driver has read already waits for nobody to look at the socket.
                if not wire.can_read(0.0):
                    self._bell.wait([wire._sock.fileno()], until)  # noqa: SLF001 - no other way to wait for two
                while wire.can_read(0.0):
                    kind, _, message = wire.read_response()
                    if kind == b"message":
                        messages.append(message)
            except (exceptions.RedisError, OSError) as error:
                self._broke()
                raise translate(error, self._where) from error
        return messages

    def check(self) -> None:
        """Find out, where nobody hears, whether the connection is still there; listen anew if it is not.

        Raises:
            StoreUnavailable: it cannot be listened to.
        """
        if self.listen():
            return
        wire = self._wire
        try:
            if wire is not None:
                wire.send_command("PING")
                while wire.read_response()[0] != b"pong":
                    pass
        except (exceptions.RedisError, OSError):
            self._broke()
            self.listen()

    def close(self) -> None:
        """Stop listening; ends a ``hear`` in another thread. Idempotent."""
        self._bell.close()

    def _show(self, wire: Wire) -> None:
        wanted, shown = self._sign, self._shown
        if wanted == shown:
            return
        if wanted is not None:
            wire.send_command("SUBSCRIBE", wanted)
        if shown is not None:
            wire.send_command("UNSUBSCRIBE", shown)
        self._shown = wanted

    def _let_go(self) -> None:
        with self._lock:
            self._hang_up()
        self._route.close()

    def _broke(self) -> None:
        with self._lock:
            self._hang_up()

    def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.disconnect()

    def forget_the_parents(self) -> None:
        """In a forked child: leave the parent's connection alone, and the lock that a thread of it may hold."""
        wire, self._wire = self._wire, None
        if wire is not None and wire._sock is not None:  # noqa: SLF001 - the driver has no word for it
            hollow(wire._sock.fileno())  # noqa: SLF001
        self._lock = threading.Lock()
        self._sign = self._shown = None
        self._bell.forget_the_parents()


def _forget_the_parents() -> None:
    for ear in list(_all):
        ear.forget_the_parents()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents)
