"""A connection that only listens: to a channel of notifications, and to one that shows that its process is alive."""

from __future__ import annotations

import threading
import weakref

from redis import exceptions

from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores import poller
from cronsensus.stores.poller import Poller
from cronsensus.stores.presence import detach_inherited
from cronsensus.stores.redis.redis_errors import translate_error
from cronsensus.stores.redis.routing import DriverConnection, Route
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.store")
_CLOCK = SystemClock()
ANSWER_WITHIN = 5.0
"""Seconds within which a connection that was silent for a while must answer."""
_all: weakref.WeakSet[Subscription] = weakref.WeakSet()


class Subscription:
    """A subscription to a channel. ``listen`` and ``receive`` are for one thread at a time, the others for any.

    A message that is published while no connection listens is lost.
    """

    def __init__(self, route: Route, channel: bytes, *, where: str) -> None:
        """Subscribe by ``route``, which this object owns; nothing is opened before ``listen``."""
        self._route = route
        self._channel = channel
        self._where = where
        self._lock = threading.Lock()
        self._connection: DriverConnection | None = None
        self._sign: bytes | None = None
        self._shown: bytes | None = None
        self._heard_at = 0.0
        self._poller = Poller(self._release_connection)
        _all.add(self)

    def show_sign(self, sign: bytes | None) -> None:
        """Listen also to the channel ``sign``, instead of the one before: others see that this process is alive."""
        self._sign = sign
        self._poller.wake()

    def listen(self) -> bool:
        """Subscribe, and wait until the server has confirmed it; ``False``: it was subscribed already.

        Raises:
            StoreUnavailable: that failed; the next call tries again.
        """
        with self._lock:
            if self._connection is not None or self._poller.is_closed():
                return False
            try:
                self._route.forget_place()  # the server may be another one than it was
                self._connection = connection = self._route.pool().get_connection()
                self._shown = self._sign
                connection.send_command("SUBSCRIBE", self._channel, *([self._shown] if self._shown else []))
                connection.read_response()
                self._heard_at = _CLOCK.monotonic()
            except (exceptions.RedisError, OSError) as error:
                self._hang_up()
                raise translate_error(error, self._where) from error
            return True

    def receive(self, timeout: float) -> list[bytes]:
        """Wait up to ``timeout`` seconds for messages; return all that came.

        Raises:
            StoreUnavailable: the connection broke; ``listen`` again.
        """
        until = _CLOCK.monotonic() + timeout
        with self._lock:
            connection = self._connection
        if connection is None or self._poller.is_closed():
            return []
        messages: list[bytes] = []
        with self._poller:
            try:
                self._show_sign(connection)
                # The driver may have read messages already; then the socket has nothing to read.
                if not connection.can_read(0.0):
                    self._poller.wait([connection._sock.fileno()], until)  # noqa: SLF001 - no other way to wait for two
                self._ask_if_silent(connection)
                while connection.can_read(0.0):
                    kind, _, *rest = connection.read_response()
                    self._heard_at = _CLOCK.monotonic()
                    if kind == b"message":
                        messages.append(rest[0])
            except (exceptions.RedisError, OSError) as error:
                self._note_broken()
                raise translate_error(error, self._where) from error
        return messages

    def _ask_if_silent(self, connection: DriverConnection) -> None:
        """Test a connection that was silent for a while by a PING, whose answer is read like other messages.

        Raises:
            ConnectionError: it seems open, but delivers nothing.
        """
        if connection.can_read(0.0) or _CLOCK.monotonic() - self._heard_at < poller.SILENT:
            return
        connection.send_command("PING")
        until = _CLOCK.monotonic() + ANSWER_WITHIN
        while not connection.can_read(0.0):
            if self._poller.is_closed():
                return
            if _CLOCK.monotonic() >= until:
                _log.warning("the connection that listens for notifications delivers nothing; it is made anew")
                raise exceptions.ConnectionError("nothing comes through the connection that listens")
            self._poller.wait([connection._sock.fileno()], until)  # noqa: SLF001 - no other way to wait for two

    def check_connection(self) -> None:
        """Check a connection on which no thread waits, and open a new one if it is gone.

        Raises:
            StoreUnavailable: there is no connection to listen on.
        """
        if self.listen():
            return
        connection = self._connection
        try:
            if connection is not None:
                connection.send_command("PING")
                while connection.read_response()[0] != b"pong":
                    pass
        except (exceptions.RedisError, OSError):
            self._note_broken()
            self.listen()

    def close(self) -> None:
        """Stop listening; ends a ``receive`` in another thread. Idempotent."""
        self._poller.close()

    def _show_sign(self, connection: DriverConnection) -> None:
        sign, shown = self._sign, self._shown
        if sign == shown:
            return
        if sign is not None:
            connection.send_command("SUBSCRIBE", sign)
        if shown is not None:
            connection.send_command("UNSUBSCRIBE", shown)
        self._shown = sign

    def _release_connection(self) -> None:
        with self._lock:
            self._hang_up()
        self._route.close()

    def _note_broken(self) -> None:
        with self._lock:
            self._hang_up()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def after_fork_in_child(self) -> None:
        """In a forked child: drop the connection of the parent, and the lock that one of its threads may hold."""
        connection, self._connection = self._connection, None
        if connection is not None and connection._sock is not None:  # noqa: SLF001 - the driver has no word for it
            detach_inherited(connection._sock.fileno())  # noqa: SLF001
        self._lock = threading.Lock()
        self._sign = self._shown = None
        self._poller.after_fork_in_child()


def _after_fork_in_child() -> None:
    for subscription in list(_all):
        subscription.after_fork_in_child()


call_after_fork(_after_fork_in_child)
