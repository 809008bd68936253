"""The page of metrics as an ASGI and a WSGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from cronsensus.metrics.collector import CONTENT_TYPE, Metrics
from cronsensus.scheduler import Scheduler
from cronsensus.stores.base import Store

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_METHODS = ("GET", "HEAD")


def metrics(source: Scheduler | Store, *, jobs: str | Sequence[str] = ()) -> AsgiApp:
    """Return the page as an ASGI application, to be mounted at any path.

    ``app.mount("/metrics", metrics(scheduler))`` in Starlette and FastAPI. It shows names of jobs and no
    arguments. It does not authenticate: the application that mounts it decides who may see it.

    Args:
        source: the Scheduler, or the store, to show. It is read when the page is requested, and it is not closed.
        jobs: patterns of the jobs that have series of their own; see ``Metrics``.

    Raises:
        MissingExtra: ``pip install "cronsensus[metrics]"``.
    """
    made = Metrics(source, jobs=jobs)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _serve_lifespan(receive, send)
        elif scope["type"] == "http":
            allowed = scope["method"] in _METHODS
            # On a thread, because the store may be slow.
            body = await asyncio.to_thread(made.page) if allowed else b""
            headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200 if allowed else 405, "headers": headers})
            await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    return app


async def _serve_lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


def metrics_wsgi(source: Scheduler | Store, *, jobs: str | Sequence[str] = ()) -> WsgiApp:
    """Return the same page as a WSGI application: for Flask, Django, gunicorn."""
    made = Metrics(source, jobs=jobs)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "GET")
        body = made.page() if method in _METHODS else b""
        status = "200 OK" if method in _METHODS else "405 Method Not Allowed"
        start_response(status, [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))])
        return [body if method == "GET" else b""]

    return app
