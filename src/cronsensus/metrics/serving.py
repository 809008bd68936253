"""Serve the page of metrics beside a node, on its own port, and probes of whether the node decides on time."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cronsensus.errors import CronsensusError
from cronsensus.metrics.collector import CONTENT_TYPE, Metrics
from cronsensus.process.logger import Logger
from cronsensus.scheduler import Scheduler
from cronsensus.security.loopback import is_loopback, strip_port

_log = Logger("cronsensus.metrics")
MOST_CONNECTIONS = 50
"""Most connections at a time."""


STUCK_TEXT = (
    "fail: every slot of this node has been held for a minute by a run that is over its timeout= or slow=; "
    "restart the node, and see which: cronsensus runs list --state running"
)


class PortTakenError(CronsensusError):
    """Something else listens on the port of the metrics."""


class Server:
    """``/metrics``, ``/ready`` and ``/live``, served from threads.

    Args:
        scheduler: whose numbers.
        host: an address of this machine.
        port: 0 takes a free one.
        jobs: patterns of the jobs that have series of their own.

    Raises:
        PortTakenError: it cannot listen there.

    Attributes:
        url: where the page is.
    """

    def __init__(self, scheduler: Scheduler, *, host: str = "127.0.0.1", port: int, jobs: tuple[str, ...] = ()) -> None:
        metrics = Metrics(scheduler, jobs=jobs)
        attributes = {"metrics": metrics, "scheduler": scheduler, "alone": is_loopback(host)}
        try:
            self._server = _Listener((host, port), type("_Handler", (_Handler,), attributes))
        except OSError as error:
            raise PortTakenError(f"cannot listen on {host}:{port}: {error}") from error
        self.url = f"http://{host}:{self._server.server_address[1]}/metrics"

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Serve for as long as the block lasts."""
        threading.Thread(target=self._server.serve_forever, name="cronsensus-metrics", daemon=True).start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()


class _Listener(ThreadingHTTPServer):
    """Serves each connection in a thread, and drops excess connections: a node needs its files."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be had
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the base class calls it
        """Log an error instead of printing it. A client that goes away is no error."""
        level = logging.DEBUG if isinstance(sys.exc_info()[1], OSError) else logging.ERROR
        _log.log(level, "a request for metrics from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    metrics: Metrics
    scheduler: Scheduler
    alone: bool
    """Whether only this machine may connect: then a page of another site may have its own name point here."""
    timeout = 10
    """Seconds that a client may be silent."""
    server_version, sys_version = "cronsensus", ""

    def do_GET(self) -> None:
        """Answer ``/metrics``, and with 200 or 503 ``/ready`` (it decides) and ``/live`` (a slot may get free).

        The last two do not read the store: while it is away, no restart helps.
        """
        path = self.path.partition("?")[0]
        if self.alone and not is_loopback(strip_port(self.headers.get("Host", "localhost"))):
            self._send_answer(403, b"this answers this machine only, by the name localhost or 127.0.0.1\n")
        elif path == "/metrics":
            self._send_answer(200, self.metrics.page(), CONTENT_TYPE)
        elif path == "/ready":
            decides = self.scheduler.decides
            text = "ok: this node decides on time" if decides else "fail: this node has not decided when it planned to"
            self._send_answer(200 if decides else 503, f"{text}\n".encode())
        elif path == "/live":
            stuck = self.scheduler.is_stuck
            self._send_answer(503 if stuck else 200, f"{STUCK_TEXT if stuck else 'ok: this node lives'}\n".encode())
        else:
            self._send_answer(404, b"here are /metrics, /ready and /live\n")

    do_HEAD = do_GET  # noqa: N815 - as the base class calls it

    def _send_answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class calls it
        """Log requests only on ``DEBUG``: probes come each second."""
        _log.debug(format, *args)
