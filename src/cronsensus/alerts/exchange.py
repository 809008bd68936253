"""A deadline for a whole exchange with a receiver.

The timeout of a connection is for each read: a receiver that sends a byte now and then could hold the sender for hours.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from smtplib import SMTP
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.request import BaseHandler, HTTPHandler, HTTPSHandler, Request

from cronsensus.membership.timer import Deadline, Timer
from cronsensus.timing.clock import SystemClock

Mail = TypeVar("Mail", bound=SMTP)
_TIMER = Timer(SystemClock())


class Exchange:
    """While entered, the connections that it watches are cut off when the time is up; leaving it then is an error.

    Attributes:
        seconds: how long the exchange may take.
        is_over: whether it was cut off.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_over: bool = False
        self._sockets: list[socket.socket] = []
        self._deadline: Deadline | None = None

    def __enter__(self) -> Self:
        self._deadline = _TIMER.call_after(self.seconds, self._cut_off)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._sockets.clear()
        # Also without an error: headers that end with the connection are an answer to http.client.
        if self.is_over and (error is None or isinstance(error, (OSError, HTTPException))):
            raise OSError(f"it did not end within {self.seconds:g} s") from error

    def watch_connection(self, connected: socket.socket | None) -> None:
        """Cut this connection off when the time is up."""
        if connected is None:  # it is closed already
            return
        self._sockets.append(connected)
        if self.is_over:
            self._cut_off()

    def _cut_off(self) -> None:
        self.is_over = True
        for connection in list(self._sockets):
            with suppress(OSError):  # it is closed
                # Not the method of a TLS socket, which would first say goodbye in the middle of another thread's read.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def url_handlers(self) -> list[BaseHandler]:
        """Return handlers by which ``urllib`` makes watched connections."""
        made = self

        class Http(HTTPHandler):
            def http_open(self, request: Request) -> HTTPResponse:
                return self.do_open(made._watched_kind(HTTPConnection), request)

        class Https(HTTPSHandler):
            def https_open(self, request: Request) -> HTTPResponse:
                return self.do_open(made._watched_kind(HTTPSConnection), request)

        return [Http(), Https()]

    def _watched_kind(self, kind: Callable[..., HTTPConnection]) -> Any:
        def make(host: str, **options: Any) -> HTTPConnection:
            connection = kind(host, **options)
            connect = connection.connect

            def connect_and_watch() -> None:
                connect()
                self.watch_connection(connection.sock)

            connection.connect = connect_and_watch  # type: ignore[method-assign]
            return connection

        return make

    def mail_connection(self, kind: type[Mail]) -> type[Mail]:
        """Return a kind of connection to a server of mail that is watched from its first byte."""
        made = self

        class Watched(kind):  # type: ignore[valid-type,misc]
            def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
                connected: socket.socket = super()._get_socket(host, port, timeout)
                made.watch_connection(connected)
                return connected

        return Watched
