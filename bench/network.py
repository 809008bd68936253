"""A network between clients and a server, in a process of its own: ``python network.py HOST PORT ROUND_TRIP_MS``.

It prints its port; for each line on stdin it prints how often it was crossed; it ends when stdin does.

The tests have a proxy that can do more (tests/servers/proxy.py), with two threads for each connection. This one has a
single thread and one queue, so that more can cross it before it is what is measured: 60 µs of processor time for a
round trip there, 23 to 40 here.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit, urlunsplit

PIECE = 1 << 16


class Network:
    """A distance of so many milliseconds (there and back) to a server, and the count of crossings."""

    def __init__(self, url: str, milliseconds: float) -> None:
        parts = urlsplit(url)
        self.milliseconds = milliseconds
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(parts.hostname), str(parts.port), str(milliseconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._port = int(self._line())

    def by_way(self, url: str) -> str:
        """Return a URL of the server by way of this network."""
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self._port}"))

    def round_trips(self) -> int:
        """Return how often a client has asked something and waited: what is sent before an answer comes counts once."""
        assert self._process.stdin is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        """End it; its connections are closed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the network between nodes and server has ended; its message is above")
        return line


class _End:
    """One side of a connection. What arrives for it waits in ``unsent`` while it is slow to take it."""

    def __init__(self, own: socket.socket, *, is_client: bool) -> None:
        self.socket = own
        self.is_client = is_client
        self.asks = False
        """It has sent something that was not answered yet."""
        self.other: _End = self
        self.unsent = bytearray()
        self.is_over = False
        """Nothing more arrives for it."""
        self.is_closed = False


class _Between:
    def __init__(self, host: str, port: int, one_way: float) -> None:
        self._target, self._one_way = (host, port), one_way
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._poll.register(sys.stdin, select.EPOLLIN)
        self._ends: dict[int, _End] = {}
        # All distances are the same: what was sent first arrives first.
        self._under_way: collections.deque[tuple[float, _End, bytes]] = collections.deque()
        self._crossed = 0
        print(self._listener.getsockname()[1], flush=True)

    def run(self) -> None:
        """Pass on until stdin ends."""
        while True:
            for number, event in self._events():
                if number == self._listener.fileno():
                    self._accept()
                elif number == sys.stdin.fileno():
                    if not sys.stdin.readline():
                        return
                    print(self._crossed, flush=True)
                elif (end := self._ends.get(number)) is not None:
                    self._attend(end, event)
            now = time.monotonic()
            while self._under_way and self._under_way[0][0] <= now:
                _, end, piece = self._under_way.popleft()
                self._deliver(end, piece)

    def _events(self) -> list[tuple[int, int]]:
        if not self._under_way:
            return self._poll.poll()
        # poll() knows whole milliseconds only; select() does not.
        select.select([self._poll], [], [], max(0.0, self._under_way[0][0] - time.monotonic()))
        return self._poll.poll(0)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        ends = _End(client, is_client=True), _End(server, is_client=False)
        for end, other in (ends, ends[::-1]):
            end.other = other
            end.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.socket.setblocking(False)
            self._ends[end.socket.fileno()] = end
            self._poll.register(end.socket, select.EPOLLIN)

    def _attend(self, end: _End, event: int) -> None:
        if event & select.EPOLLOUT:
            self._flush(end)
        if event & ~select.EPOLLOUT and not end.is_closed:
            try:
                piece = end.socket.recv(PIECE)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                self._poll.unregister(end.socket)
            elif not end.is_client:
                end.other.asks = False
            elif not end.asks:
                end.asks = True
                self._crossed += 1
            if self._one_way:
                self._under_way.append((time.monotonic() + self._one_way, end.other, piece))
            else:
                self._deliver(end.other, piece)
            if not piece:
                end.is_closed = True

    def _deliver(self, end: _End, piece: bytes) -> None:
        if piece:
            end.unsent += piece
        else:
            end.is_over = True
        self._flush(end)

    def _flush(self, end: _End) -> None:
        try:
            if end.unsent:
                del end.unsent[: end.socket.send(end.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            end.unsent.clear()
        if not end.is_closed:
            self._poll.modify(end.socket, select.EPOLLIN | (select.EPOLLOUT if end.unsent else 0))
        if end.is_over and not end.unsent:
            with contextlib.suppress(OSError):
                end.socket.shutdown(socket.SHUT_WR)
            if end.is_closed:
                for each in (end, end.other):
                    self._ends.pop(each.socket.fileno(), None)
                    each.socket.close()


if __name__ == "__main__":
    _Between(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 2000).run()
