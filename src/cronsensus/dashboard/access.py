"""Who may see the pages and who may act, and what a browser may do with them.

Without authentication, only a browser on this machine is answered. The check comes before all routes, so that none can
be forgotten: a request other than GET needs the permission to operate, which a page of another site never has.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from cronsensus.dashboard.guesses import Guesses
from cronsensus.dashboard.healthz import PATH, Healthz
from cronsensus.dashboard.passwords import Password, Token
from cronsensus.errors import InvalidOption
from cronsensus.process.logger import Logger
from cronsensus.security.loopback import is_loopback, strip_port

if TYPE_CHECKING:
    from starlette.requests import Request

Permission = Literal["read", "operate"]
Auth = Callable[["Request"], Permission | Awaitable[Permission | None] | None]
"""Returns what the sender of a request may do; ``None``: nothing. It may set ``request.state.user`` for the trail."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY = (
    b"default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self';"
    b" base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": with that a browser does not send from which of our own pages a form comes.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FORWARDING = {
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "cf-connecting-ip",
    "true-client-ip",
}
_WHAT_TO_DO = (
    "Without a password, the dashboard answers only a browser on its own machine. From elsewhere:"
    " ssh -L 8080:127.0.0.1:8080 THE-MACHINE, then open http://127.0.0.1:8080/ here."
    " Or give it CRONSENSUS_DASHBOARD_TOKEN, or auth= where it is mounted.\n"
)
_SAFE = ("GET", "HEAD")
_STATIC = "/static/"
_TEXT, _HTML = b"text/plain; charset=utf-8", b"text/html; charset=utf-8"
_PERMISSION, _BY = "cronsensus.permission", "cronsensus.by"
_log = Logger("cronsensus.dashboard")


class _Answer(NamedTuple):
    """An answer in place of the page: to a probe, or to a request that is refused or redirected."""

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def require_loopback(host: str) -> None:
    """Raise unless a server that listens on ``host`` can be reached from this machine alone.

    Raises:
        InvalidOption: others could reach it.
    """
    if not is_loopback(host):
        raise InvalidOption(
            f"host={host[:60]!r} can be reached from other machines, and the dashboard has no password; set "
            "CRONSENSUS_DASHBOARD_TOKEN (openssl rand -hex 16 makes one), or leave it at 127.0.0.1 and come by "
            "ssh -L 8080:127.0.0.1:8080 THE-MACHINE"
        )


def find_refusal(scope: Scope) -> str | None:
    """Return why a request is refused; ``None``: it is not.

    All of the checks are needed. A proxy on this machine is a loopback peer, and a page of another site may have its
    own name point to 127.0.0.1.
    """
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    for name, _ in headers:
        if (header := name.replace("_", "-")) in _FORWARDING or header.startswith("x-forwarded"):
            return f"The request came through a proxy (it has the header {name})."
    peer = scope.get("client")
    if not peer or not is_loopback(peer[0]):
        return "The request came from another machine."
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or not is_loopback(strip_port(hosts[0])):
        return "The request was for another host name than localhost or 127.0.0.1."
    for name, value in headers:
        # A proxy may hide itself by the name of this host; the browser before it still sends where the page came from.
        if name == "origin" and value != "null" and not is_loopback(urlsplit(value).hostname or ""):
            return "The request came from a page of another host."
    return None


def may_operate(scope: Scope) -> bool:
    """Return whether the sender of a request may change anything."""
    return scope.get(_PERMISSION) == "operate"


def permission_of(scope: Scope) -> str:
    """Return what the sender of a request may do: ``read`` or ``operate``."""
    return str(scope[_PERMISSION])


def who_acts(scope: Scope) -> str:
    """Return the name of the sender of a request, for the trail."""
    return str(scope.get(_BY) or "dashboard")


class Access:
    """Passes permitted requests to an application, and sets headers by which browsers protect its pages.

    Args:
        app: the application.
        auth: returns the permission of a request; ``None``: requests of this machine may act, others are refused.
        read_only: nobody may act.
        by: who acts, for the trail, where ``auth`` names nobody.
        healthz: answers a probe, which has no password.
    """

    def __init__(
        self,
        app: App,
        auth: Auth | None = None,
        *,
        read_only: bool = False,
        by: str = "dashboard",
        healthz: Healthz | None = None,
    ) -> None:
        self._app = app
        self._healthz = healthz
        self._auth = auth
        self._read_only = read_only
        self._by = by
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        answer = await self._answer_probe(scope) or await self._authorize_request(scope)
        if answer is None:
            await self._app(scope, receive, guarded)
            return
        body = f"{answer.text}\n".encode()
        content_type = _HTML if answer.text.startswith("<!doctype") else _TEXT
        headers = [
            *answer.headers, (b"content-type", content_type), (b"content-length", str(len(body)).encode()),
        ]  # fmt: skip
        await guarded({"type": "http.response.start", "status": answer.status, "headers": headers})
        await guarded({"type": "http.response.body", "body": body})

    async def _answer_probe(self, scope: Scope) -> _Answer | None:
        """Return the answer to a health probe; ``None``: the request is no probe."""
        if self._healthz is None or _path(scope) != PATH or scope["method"] not in _SAFE:
            return None
        from starlette.concurrency import run_in_threadpool

        status, text = await run_in_threadpool(self._healthz.read_status)
        return _Answer(status, text, ((b"cache-control", b"no-store"),))

    async def _authorize_request(self, scope: Scope) -> _Answer | None:
        """Write the sender and the permission into ``scope``; return an answer if the request may not pass."""
        from starlette.requests import Request

        auth = self._auth
        if auth is None or (isinstance(auth, Token) and auth.made):
            reason = find_refusal(scope)
            if reason is not None:
                return _Answer(403, f"{reason}\n{_WHAT_TO_DO}")
        is_given = isinstance(auth, (Password, Token)) and auth.is_given(Request(scope))
        address = str((scope.get("client") or ["?"])[0])
        if is_given and (pause := self._guesses.pause_for(address)):
            await asyncio.sleep(pause)
        permission: object = "operate" if auth is None else await _ask_program(auth, scope)
        if permission not in {"read", "operate"}:
            if isinstance(auth, (Password, Token)):
                if is_given:
                    self._guesses.note_wrong(address)
                return self._ask_for(auth, Request(scope))
            return _Answer(403, "You may not see this dashboard: its auth= says so. Sign in to the application first.")
        if isinstance(auth, Token) and (leads_on := auth.keep_in_browser(Request(scope))) is not None:
            return _Answer(303, "", tuple(leads_on))
        scope[_PERMISSION] = "read" if self._read_only else permission
        scope[_BY] = scope.get("state", {}).get("user") or self._by
        if scope["method"] in _SAFE:
            if is_embedded(scope):
                return _Answer(
                    403, "A page of another site asked for this as a part of itself. Open it in a tab of its own."
                )
            return None
        if scope[_PERMISSION] != "operate":
            cause = "this dashboard is read-only." if self._read_only else "your permission is to read."
            return _Answer(403, f"You may look, and not act: {cause}")
        if is_from_elsewhere(scope):
            return _Answer(403, "The request was sent by a page of another site. Open the dashboard, and act there.")
        return None

    def _ask_for(self, auth: Password | Token, request: Request) -> _Answer | None:
        """Ask for the password or token; ``None``: it may pass, for the style of the sign-in page is public."""
        if request.method in _SAFE and _path(request.scope).startswith(_STATIC):
            request.scope[_PERMISSION] = "read"
            return None
        browser = "text/html" in request.headers.get("accept", "")
        text = auth.page(request) if browser and isinstance(auth, Token) else auth.what_to_do
        return _Answer(401, text, ((b"www-authenticate", auth.challenge), (b"cache-control", b"no-store")))


def _path(scope: Scope) -> str:
    """Return the path of a request below the prefix under which the dashboard is mounted."""
    return str(scope["path"]).removeprefix(str(scope.get("root_path", "")).rstrip("/"))


async def _ask_program(auth: Auth, scope: Scope) -> object:
    """Return the permission from ``auth``; nothing if it raises, so that the request is refused."""
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request

    scope.setdefault("state", {})
    request = Request(scope)
    try:
        # A plain function may read a database, so it must not run on the loop that serves all requests.
        permission: Any = await run_in_threadpool(auth, request)
        if inspect.isawaitable(permission):
            permission = await permission
    except Exception:  # noqa: BLE001 - whatever it is, the request is refused
        _log.exception("auth= of the dashboard raised; the request is refused")
        return None
    if permission not in {"read", "operate", None}:
        _log.error('auth= of the dashboard returned %.80r; it says None, "read" or "operate"', permission)
    return permission


def is_embedded(scope: Scope) -> bool:
    """Return whether a page of another site loads this as a part, such as a picture, by the browser's headers.

    That page could not read the answer. But it could have an audit of all jobs made again and again.
    """
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    elsewhere = headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}
    return elsewhere and headers.get("sec-fetch-mode", "navigate") != "navigate"


def is_from_elsewhere(scope: Scope) -> bool:
    """Return whether a page of another site sent the request, by the browser's headers."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
