"""Serve the dashboard with its own server: alone, or beside other work of a process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cronsensus.dashboard.access import App, Receive, Scope, Send, require_loopback
from cronsensus.dashboard.app import dashboard
from cronsensus.dashboard.connections import BACKLOG, AcceptErrors, Connection, most_connections
from cronsensus.dashboard.live import STOPPING
from cronsensus.dashboard.passwords import PARAMETER, Token, from_environment
from cronsensus.errors import CronsensusError, MissingExtra
from cronsensus.scheduler import Scheduler
from cronsensus.stores.base import Store

try:
    import uvicorn
    from starlette.middleware.gzip import GZipMiddleware
except ImportError as error:
    raise MissingExtra(
        f'the dashboard needs {error.name}, which is not installed; pip install "cronsensus[dashboard]"'
    ) from error

PORT = 8080
_STOP_WITHIN = 3.0
_TICKS_PER_CHECK = 10
"""Ticks of 0.1 s between two checks of connections."""
_LEAST_COMPRESSED = 1_000
"""Smaller answers, in bytes, are not compressed."""


class PortTakenError(CronsensusError):
    """Something else listens on the dashboard's port."""


class _Uvicorn(uvicorn.Server):
    """Ends stuck connections, and notifies open streams of a stop: uvicorn would wait, and then cut them off."""

    def __init__(self, settings: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(settings)
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(AcceptErrors())
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_CHECK == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.end_if_stuck()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


class Server:
    """A dashboard that listens, and can be served.

    Args:
        source: the Scheduler, or the store, to show.
        host: an address; if others can reach it, it needs a password in the environment.
        port: 0 takes a free port.
        read_only: nobody can act.
        by: who acts, for the trail.
        prefix: the path below which it is served, such as ``/cron``, if a proxy passes it on.

    Raises:
        InvalidOption: others could reach ``host``, and there is no password.
        PortTakenError: it cannot listen there.

    Attributes:
        url: where a browser finds it.
        link: the URL with the token, if that was made here because the environment has no password.
    """

    def __init__(
        self,
        source: Scheduler | Store,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        read_only: bool = False,
        by: str = "dashboard",
        prefix: str = "",
    ) -> None:
        auth = from_environment() or Token()
        made_token = auth.token if isinstance(auth, Token) and auth.made else None
        if made_token is not None:
            require_loopback(host)
        pages: App = dashboard(source, auth=auth, read_only=read_only, by=by)
        stopping = asyncio.Event()

        prefix = "/" + prefix.strip("/") if prefix.strip("/") else ""
        if prefix:
            from starlette.routing import Mount, Router

            pages = Router([Mount(prefix, pages)])

        # A page with a form holds the browser's token beside text of the address, which somebody else may have written:
        # the compressed length would reveal the token. Streams are left alone by the middleware.
        compressed = GZipMiddleware(pages, minimum_size=_LEAST_COMPRESSED, compresslevel=5)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            answer: App = pages if "/do/" in scope["path"] else compressed
            await answer({**scope, STOPPING: stopping}, receive, send)

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise PortTakenError(f"cannot listen on {host}:{port}: {error}; take a free port: 0") from error
        shown_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown_host}:{self._listener.getsockname()[1]}{prefix}/"
        self.link = self.url if made_token is None else f"{self.url}?{PARAMETER}={made_token}"
        connection_limit = most_connections()
        settings = uvicorn.Config(
            app,
            http=type("_Connection", (Connection,), {"most": connection_limit}),
            ws="none",
            backlog=min(BACKLOG, connection_limit),
            # With it a header of the request would name the peer.
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            # On lower levels it logs each malformed request, which anybody can send.
            log_level=logging.ERROR,
            lifespan="off",
            # For a page that waits for the store; streams of open pages end when the server stops.
            timeout_graceful_shutdown=1,
        )
        self._server = _Uvicorn(settings, stopping)

    def serve(self) -> None:
        """Serve until Ctrl-C or SIGTERM."""
        self._server.run(sockets=[self._listener])

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Serve in a thread for as long as the block lasts; signals stay with the process."""
        thread = threading.Thread(target=self.serve, name="cronsensus-dashboard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.should_exit = True
            thread.join(_STOP_WITHIN)
