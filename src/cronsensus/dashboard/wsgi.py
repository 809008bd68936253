"""The dashboard as a WSGI application: for Flask, Django and others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from cronsensus.dashboard.access import Auth
from cronsensus.dashboard.app import dashboard
from cronsensus.errors import MissingExtra
from cronsensus.scheduler import Scheduler
from cronsensus.stores.base import Store

try:
    from a2wsgi import ASGIMiddleware
except ImportError as error:
    raise MissingExtra(
        f'the dashboard in a WSGI application needs {error.name}; pip install "cronsensus[dashboard]"'
    ) from error

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def dashboard_wsgi(
    source: Scheduler | Store, *, auth: Auth | None = None, read_only: bool = False, by: str = "dashboard"
) -> WsgiApp:
    """Return the dashboard as a WSGI application, to be mounted under any prefix (``SCRIPT_NAME``).

    As ``dashboard``, and ``auth`` gets the same request; ``request.scope["wsgi_environ"]`` is the environ. Open pages
    poll every four seconds instead of listening: a stream would occupy one of the server's workers.
    """
    # Its types name the keys of each scope; the dashboard's do not.
    asgi: Any = dashboard(source, auth=auth, read_only=read_only, by=by, live="poll")
    return _PerProcess(lambda: ASGIMiddleware(asgi))


class _PerProcess:
    """Makes the application at its first call: it has a thread, which a fork would lose."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: tuple[int, Any] | None = None
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), self._make())
        answer: Iterable[bytes] = self._made[1](environ, start_response)
        return answer
