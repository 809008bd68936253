"""Who may see the pages: a browser on this machine. And what a browser may do with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import IPv6Address, ip_address
from typing import Any

from cronsensus.errors import InvalidOption

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY = (
    b"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_FORWARDING = ("forwarded", "via", "x-real-ip")
_WHAT_TO_DO = (
    "The dashboard has no password yet, so it answers only a browser on its own machine. From elsewhere:"
    " ssh -L 8080:127.0.0.1:8080 THE-MACHINE, then open http://127.0.0.1:8080/ here.\n"
)


def is_loopback(host: str) -> bool:
    """Return whether a host, without a port, can only be this machine."""
    name = host.removeprefix("[").removesuffix("]")
    if name.lower() == "localhost":
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def require_loopback(host: str) -> None:
    """Raise unless a server that listens on ``host`` can be reached from this machine alone.

    Raises:
        InvalidOption: others could reach it.
    """
    if not is_loopback(host):
        raise InvalidOption(
            f"host={host[:60]!r} can be reached from other machines, and the dashboard has no password yet; "
            "leave it at 127.0.0.1, and come by ssh -L 8080:127.0.0.1:8080 THE-MACHINE"
        )


def refusal(scope: Scope) -> str | None:
    """Return why a request is refused; ``None``: it is not.

    All three are needed. A proxy on this machine is a loopback peer, and a page of another site may have its own name
    point to 127.0.0.1.
    """
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
    for name, _ in headers:
        if name in _FORWARDING or name.startswith("x-forwarded"):
            return f"The request came through a proxy (it has the header {name})."
    peer = scope.get("client")
    if not peer or not is_loopback(peer[0]):
        return "The request came from another machine."
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or not is_loopback(_without_port(hosts[0])):
        return "The request was for another host name than localhost or 127.0.0.1."
    return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


class LoopbackOnly:
    """Lets an application answer this machine alone, and has browsers keep its pages to themselves."""

    def __init__(self, app: App) -> None:
        self._app = app

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

        why = refusal(scope)
        if why is None:
            await self._app(scope, receive, guarded)
            return
        body = f"{why}\n{_WHAT_TO_DO}".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await guarded({"type": "http.response.start", "status": 403, "headers": headers})
        await guarded({"type": "http.response.body", "body": body})
