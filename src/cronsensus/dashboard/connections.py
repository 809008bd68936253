"""Limits on connections: none is held for ever, and they leave enough files for a node in the same process.

Anybody who reaches the port can open connections, with or without a password. A connection is closed if its client
sends no whole request, or does not read the answer. Their number leaves the process files to open.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

HEAD_SECONDS, BODY_SECONDS, WRITE_SECONDS = 10.0, 30.0, 30.0
"""Seconds for the head of a request, for its body, and for the client to read a part of an answer."""
MOST_CONNECTIONS = 200
"""Most connections; fewer if a process may open few files."""
BACKLOG = 64
"""Connections that are accepted at once, before any of them can be refused."""
LOG_EVERY = 60.0
"""Seconds between two log lines about the same trouble, which anybody who reaches the port can cause."""
_NO_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_log = Logger("cronsensus.dashboard")
_clock = SystemClock()


def most_connections() -> int:
    """Return how many connections may be open: at most a quarter of the files that this process may open."""
    try:
        import resource
    except ImportError:  # not on Windows, where there is no such limit
        return MOST_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(8, min(MOST_CONNECTIONS, files // 4))


class SeldomLog:
    """Logs a line about trouble that anybody can cause, and counts its repeats until the next line."""

    def __init__(self) -> None:
        self._logged_at = float("-inf")
        self._since = 0

    def warn(self, trouble: str) -> None:
        """Log ``trouble``, unless a line was logged less than ``LOG_EVERY`` ago."""
        self._since += 1
        if _clock.monotonic() - self._logged_at < LOG_EVERY:
            return
        self._logged_at = _clock.monotonic()
        repeats = f" ({self._since} times since this was logged last)" if self._since > 1 else ""
        _log.warning("%s%s", trouble, repeats)
        self._since = 0


class Connection(H11Protocol):
    """A connection. Call ``end_if_stuck`` now and then."""

    most = MOST_CONNECTIONS
    refused = SeldomLog()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waits: tuple[float, object, int] | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self.refused.warn(f"{self.most} connections are open, and more are refused")
            transport.abort()
            return
        if (client_socket := transport.get_extra_info("socket")) is not None:
            # Head and body of an answer are two writes: without this the second waits 40 ms for the client's ACK.
            client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end_if_stuck(self) -> None:
        """Close the connection if its client has made no progress for too long."""
        awaited, now = self._waited_for(), _clock.monotonic()
        if awaited != self._waits or awaited is None:
            self._waits, self._since = awaited, now
        elif now - self._since >= awaited[0]:
            self.transport.abort()

    def _waited_for(self) -> tuple[float, object, int] | None:
        """Return how long the client may take for the next step, and the step. The same again: no progress."""
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            return WRITE_SECONDS, self.cycle, unsent
        if self.conn.their_state is h11.IDLE:
            return HEAD_SECONDS, self.cycle, 0
        if self.conn.their_state is h11.SEND_BODY:
            return BODY_SECONDS, self.cycle, 0
        return None


class AcceptErrors:
    """Handles errors of the event loop. Out of files, it would log a line for each waiting connection."""

    def __init__(self) -> None:
        self._log = SeldomLog()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the loop."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _NO_FILES:
            self._log.warn(f"the dashboard cannot accept connections: {error}; raise the limit (ulimit -n)")
        else:
            loop.default_exception_handler(context)
