"""Stands between clients and a server, and is the bad network between them.

::

    client ──▶ Proxy.port ──"up"──▶ server
           ◀──────"down"───────────

What is set holds for all connections, also for those to come. A connection that is cut is reset on both sides, as by a
firewall; a frozen one stays open, as across a broken link: neither side is told anything. In a black hole neither is
even told that the other one is gone, as when a host loses its power or its network.

A delay is a distance and not a narrow pipe: what is sent while something else is under way arrives as long after it as
it was sent. The order is kept, whatever the jitter.
"""

from __future__ import annotations

import contextlib
import random
import re
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Way = Literal["up", "down"]
PIECE = 1 << 16
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: close at once, by a reset."""


@dataclass(eq=False)
class _Link:
    client: socket.socket
    server: socket.socket
    doomed: bool = False
    """A request went up whose answer must not come down."""
    is_cut: bool = False
    slow_for: float = 0.0
    """Seconds that the first request with ``Proxy.slow_first``'s bytes is held back."""
    ended: set[Way] = field(default_factory=set)
    """The ways on which there was an orderly end."""

    def cut(self) -> None:
        self.is_cut = True
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            # Wakes the thread that reads from it. Without it the reset would wait for that thread.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RD)
            end.close()


class Proxy:
    """Passes bytes on to ``url``'s server, until told otherwise. ``proxy.url`` is that URL by way of the proxy.

    Attributes:
        struck: counts the connections that ``cut_after`` and ``lose_answer_to`` cut; wait for it with ``await_strike``.
        connections: how many were made through it.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname, "the URL names no host"
        assert parts.port, "the URL names no port"
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
        self._state = threading.Condition()
        self._links: set[_Link] = set()
        self._frozen = self._dark = self._refusing = self._closed = False
        self._delays: dict[Way, float] = {"up": 0.0, "down": 0.0}
        self._jitter = self._set_up = self._first = 0.0
        self._first_request = b""
        self._dice = random.Random(1)
        self._dropped: set[Way] = set()
        self._left: dict[Way, int | None] = {"up": None, "down": None}
        self._fatal: bytes | None = None
        self.struck = 0
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    # --- the weather --------------------------------------------------------------------------------------------------

    def pass_on(self) -> None:
        """Be a good network again: everything that was held back goes on, what was dropped is gone."""
        with self._state:
            self._frozen = self._dark = self._refusing = False
            self._delays = {"up": 0.0, "down": 0.0}
            self._jitter = self._set_up = self._first = 0.0
            self._dropped.clear()
            self._left = {"up": None, "down": None}
            self._fatal = None
            self._state.notify_all()

    def lead_to(self, url: str) -> None:
        """Pass new connections on to another server; those that there are stay where they are until they are cut."""
        parts = urlsplit(url)
        assert parts.hostname, "the URL names no host"
        assert parts.port, "the URL names no port"
        with self._state:
            self._target = (parts.hostname, parts.port)

    def delay(self, up: float, down: float | None = None, *, jitter: float = 0.0) -> None:
        """Be a distance: every piece takes so many seconds on its way, and up to ``jitter`` more.

        Args:
            up: to the server; half of a round trip.
            down: from the server; ``None``: as long.
            jitter: drawn anew for each piece.
        """
        with self._state:
            self._delays = {"up": up, "down": up if down is None else down}
            self._jitter = jitter

    def slow_set_up(self, seconds: float) -> None:
        """Let each new connection wait for so long before the server hears of it."""
        with self._state:
            self._set_up = seconds

    def slow_first(self, seconds: float, request: bytes) -> None:
        """Hold back the first piece with these bytes on each new connection, as a server does that has to wake up."""
        with self._state:
            self._first, self._first_request = seconds, request

    def drop(self, way: Way) -> None:
        """Swallow what goes one way."""
        with self._state:
            self._dropped.add(way)

    def freeze(self) -> None:
        """Pass nothing on, and keep it. New connections are taken and not served."""
        with self._state:
            self._frozen = True

    def black_hole(self) -> None:
        """Freeze, and keep ends and resets back too: a killed client leaves its connections open at the server.

        New connections are taken and lead nowhere.
        """
        with self._state:
            self._frozen = self._dark = True

    def refuse(self) -> None:
        """Cut every connection, and every new one at once."""
        with self._state:
            self._refusing = True
        self.cut()

    def cut(self) -> int:
        """Cut the connections that there are; return how many."""
        with self._state:
            links, self._links = self._links, set()
        for link in links:
            link.cut()
        return len(links)

    def cut_after(self, number: int, way: Way) -> None:
        """Pass this many further bytes on one way, over all connections, then cut the connection of the last one."""
        with self._state:
            self._left[way] = number

    def lose_answer_to(self, request: bytes) -> None:
        """Pass the next piece that has this pattern on to the server; when it has answered, cut instead of telling."""
        with self._state:
            self._fatal = request

    def await_strike(self, number: int = 1, within: float = 30.0) -> None:
        """Wait until so many connections were cut by ``cut_after`` or ``lose_answer_to``."""
        with self._state:
            assert self._state.wait_for(lambda: self.struck >= number, within), "nothing came by that could be cut"

    def close(self) -> None:
        """Cut everything, for good."""
        self.pass_on()
        with self._state:
            self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the wire -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), name="proxy-connect", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._set_up:
            time.sleep(self._set_up)
        self._await_light()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()  # the server is away, and so are we
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        with self._state:
            link.slow_for = self._first
            refused = self._refusing or self._closed
            if not refused:
                self._links.add(link)
                self.connections += 1
        if refused:
            link.cut()
            return
        self._pump(link, client, server, "up")
        self._pump(link, server, client, "down")

    def _pump(self, link: _Link, source: socket.socket, sink: socket.socket, way: Way) -> None:
        def pump() -> None:
            try:
                for piece in self._arriving(link, source, way):
                    self._carry(link, piece, way, sink.sendall)
                self._await_light()
                if not link.is_cut:
                    sink.shutdown(socket.SHUT_WR)  # an orderly end would overtake the reset
                    self._ended(link, way)
            except (OSError, ValueError):
                # An end that failed, or was cut under us.
                self._await_light()
                self._cut(link)

        threading.Thread(target=pump, name=f"proxy-{way}", daemon=True).start()

    def _await_light(self) -> None:
        """Wait while this is a black hole: an end passes it as little as a byte."""
        with self._state:
            self._state.wait_for(lambda: not self._dark)

    def _arriving(self, link: _Link, source: socket.socket, way: Way) -> Iterator[bytes]:
        """Yield what comes in, each piece when it has come the whole way."""
        under_way: deque[tuple[float, bytes]] = deque()
        arrives, ended = 0.0, False
        while not ended or under_way:
            left = under_way[0][0] - time.monotonic() if under_way else None
            if left is not None and left <= 0:
                yield under_way.popleft()[1]
                continue
            if ended:
                time.sleep(left or 0.0)
            elif left is None or select.select([source], [], [], left)[0]:
                piece = source.recv(PIECE)
                ended = not piece
                arrives = max(arrives, time.monotonic() + self._way_takes(link, piece, way))
                if piece:
                    under_way.append((arrives, piece))

    def _way_takes(self, link: _Link, piece: bytes, way: Way) -> float:
        with self._state:
            takes = self._delays[way] + self._dice.uniform(0, self._jitter)
            if way == "up" and link.slow_for and self._first_request in piece:
                takes, link.slow_for = takes + link.slow_for, 0.0
            return takes

    def _carry(self, link: _Link, piece: bytes, way: Way, send: Callable[[bytes], object]) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._frozen)
            if way in self._dropped:
                return
            last = link.doomed and way == "down"
            if last:
                piece = b""
            elif (left := self._left[way]) is not None:
                last = left <= len(piece)
                piece = piece[:left]
                self._left[way] = None if last else left - len(piece)
            if way == "up" and self._fatal is not None and re.search(self._fatal, piece):
                self._fatal = None
                link.doomed = True
        send(piece)
        if last:
            self._cut(link)
            with self._state:
                self.struck += 1
                self._state.notify_all()

    def _ended(self, link: _Link, way: Way) -> None:
        """Close a connection that both sides have ended: in a long test they would come to more than select() takes."""
        with self._state:
            link.ended.add(way)
            if len(link.ended) < 2 or link not in self._links:
                return
            self._links.discard(link)
        link.client.close()
        link.server.close()

    def _cut(self, link: _Link) -> None:
        with self._state:
            self._links.discard(link)
        link.cut()
