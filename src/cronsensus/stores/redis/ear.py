"""A connection that only listens to one channel."""

from __future__ import annotations

import os
import select
import threading

from redis import exceptions

from cronsensus.interrupts import Event
from cronsensus.stores.redis.errors import translate
from cronsensus.stores.redis.routes import Route, Wire


class Ear:
    """Hears what is published on a channel. ``listen`` and ``hear`` by one thread at a time, ``close`` by any.

    A message that is sent while nobody listens is lost.
    """

    def __init__(self, route: Route, channel: bytes, *, where: str) -> None:
        """Listen by ``route``, which is this object's own; nothing is opened before ``listen``."""
        self._route = route
        self._channel = channel
        self._where = where
        self._lock = threading.Lock()
        self._wire: Wire | None = None
        self._poke: tuple[int, int] | None = None
        self._hearing = False
        self._closed = Event()
        self._pid = os.getpid()

    def listen(self) -> bool:
        """Begin to listen, once the server has said that it will send what comes; ``False``: that was so already.

        Raises:
            StoreUnavailable: that failed; the next call tries again.
        """
        self._mind_forks()
        with self._lock:
            if self._wire is not None or self._closed.is_set():
                return False
            try:
                self._route.forget()  # the server may be another one than it was
                self._wire = wire = self._route.pool().get_connection()
                wire.send_command("SUBSCRIBE", self._channel)
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
        with self._lock:
            wire = self._wire
            if wire is None or self._closed.is_set():
                return []
            self._poke = poke = self._poke or os.pipe()
            self._hearing = True
        messages: list[bytes] = []
        try:
            # What the driver has read already waits for nobody to look at the socket.
            if not wire.can_read(0.0):
                _wait_for([wire._sock.fileno(), poke[0]], timeout)  # noqa: SLF001 - no other way to wait for two
            while wire.can_read(0.0):
                messages.append(wire.read_response()[2])
            return messages
        except (exceptions.RedisError, OSError) as error:
            with self._lock:
                self._hang_up()
            raise translate(error, self._where) from error
        finally:
            with self._lock:
                self._hearing = False
                if self._closed.is_set():
                    self._let_go()

    def close(self) -> None:
        """Stop listening; ends a ``hear`` in another thread. Idempotent."""
        self._mind_forks()
        with self._lock:
            self._closed.set()
            if not self._hearing:
                self._let_go()
            elif self._poke is not None:
                os.write(self._poke[1], b"!")  # wakes the thread that hears, which then lets go

    def _let_go(self) -> None:
        self._hang_up()
        self._route.close()
        poke, self._poke = self._poke, None
        for end in poke or ():
            os.close(end)

    def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.disconnect()

    def _mind_forks(self) -> None:
        """In a forked child: leave the parent's connection alone, and the lock that a thread of it may hold."""
        if os.getpid() != self._pid:
            self._lock = threading.Lock()
            self._wire, self._hearing = None, False
            for end in self._poke or ():
                os.close(end)  # copies; those of the parent stay open
            self._poke = None
            self._pid = os.getpid()


def _wait_for(sources: list[int], timeout: float) -> None:
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    poll.poll(max(0.0, timeout) * 1000)
