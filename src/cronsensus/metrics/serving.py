"""Serve the page beside a node, on a port of its own, and tell a probe whether the node decides on time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cronsensus.errors import CronsensusError
from cronsensus.logger import Logger
from cronsensus.metrics.collector import CONTENT_TYPE, Metrics
from cronsensus.scheduler import Scheduler

_log = Logger("cronsensus.metrics")


STUCK = (
    "fail: every slot of this node has been held for a minute by a run that is over its timeout= or slow=; "
    "restart the node, and see which: cronsensus runs list --state running"
)


class PortTakenError(CronsensusError):
    """Something else listens where the metrics were to."""


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
        made = Metrics(scheduler, jobs=jobs)
        handler = type("_Handler", (_Handler,), {"metrics": made, "scheduler": scheduler})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise PortTakenError(f"cannot listen on {host}:{port}: {error}") from error
        self._server.daemon_threads = True
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


class _Handler(BaseHTTPRequestHandler):
    metrics: Metrics
    scheduler: Scheduler
    timeout = 10
    """Seconds that a client may say nothing."""
    server_version, sys_version = "cronsensus", ""

    def do_GET(self) -> None:
        """Answer ``/metrics``, and with 200 or 503 ``/ready`` (it decides) and ``/live`` (a slot may get free).

        The last two do not ask the store: while it is away, no restart helps.
        """
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, self.metrics.page(), CONTENT_TYPE)
        elif path == "/ready":
            decides = self.scheduler.decides
            words = "ok: this node decides on time" if decides else "fail: this node has not decided when it planned to"
            self._answer(200 if decides else 503, f"{words}\n".encode())
        elif path == "/live":
            stuck = self.scheduler.is_stuck
            self._answer(503 if stuck else 200, f"{STUCK if stuck else 'ok: this node lives'}\n".encode())
        else:
            self._answer(404, b"here are /metrics, /ready and /live\n")

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class calls it
        """Log what a probe asks each second only where everything is logged."""
        _log.debug(format, *args)
