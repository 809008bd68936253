"""A token, or a user and a password: from the environment, or a token that is made at start."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, quote, urlencode

from cronsensus.errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.requests import Request

TOKEN = "CRONSENSUS_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable
USER = "CRONSENSUS_DASHBOARD_USER"
PASSWORD = "CRONSENSUS_DASHBOARD_PASSWORD"  # noqa: S105 - the name of a variable
_SHORTEST_SECRET = 12
_LONGEST_USER = 200
"""Characters of a name for the trail."""
PARAMETER = "key"
"""The parameter of a URL that opens the dashboard. Not ``token``, which is masked in whatever is printed."""
_ASKING_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A token · cronsensus</title><link rel="stylesheet" href="{base}/static/style.css"></head>
<body><main class="door"><section class="panel"><div class="empty"><h1>{title}</h1><p>{what}</p>
<form method="get">{hidden}<label>Token <input type="password" name="key" autocomplete="off" required autofocus></label>
<button class="button">Open</button></form>
<p>If you have opened it in this browser before and a page of another site led here: <a href="">open it again</a>.</p>
</div></section></main></body></html>"""


class Password:
    """Permits requests with a user and a password, by ``Authorization: Basic``, for which browsers ask."""

    challenge = b'Basic realm="cronsensus", charset="UTF-8"'
    what_to_do = f"This dashboard asks for the user and the password of {USER} and {PASSWORD}."

    def __init__(self, password: str, user: str) -> None:
        self._password = password
        self._user = user

    def __call__(self, request: Request) -> Literal["operate"] | None:
        """Return ``"operate"`` if the request shows the password."""
        user, password = _credentials(request, "basic")
        if not _same(password, self._password) & _same(user, self._user):
            return None
        request.state.user = user[:_LONGEST_USER]
        return "operate"

    def is_given(self, request: Request) -> bool:
        """Return whether the request shows a password, right or wrong."""
        return "authorization" in request.headers


class Token:
    """Permits requests with a token: in a header, or in a URL, after which a browser keeps a cookie.

    Args:
        token: the token; ``None``: make one. Then only requests of this machine are answered at all.

    Attributes:
        made: whether it was made here.
    """

    def __init__(self, token: str | None = None) -> None:
        self.made = token is None
        self.token = token or secrets.token_urlsafe(24)
        # The cookie does not reveal the token, which people may use elsewhere.
        self._kept = hmac.digest(self.token.encode(), b"cookie", "sha256").hex()
        # With Basic a browser asks in its own window, and does not show the page that explains what to do.
        self.challenge = b'Bearer realm="cronsensus"' if self.made else Password.challenge

    def __call__(self, request: Request) -> Literal["operate"] | None:
        """Return ``"operate"`` if the request shows the token."""
        user, secret = _credentials(request, "basic", "bearer")
        is_right = _same(secret, self.token)
        is_right |= _same(request.query_params.get(PARAMETER, ""), self.token)
        is_right |= _same(request.cookies.get(_cookie(request), ""), self._kept)
        if not is_right:
            return None
        # A token that was made here is only known to the person who started the dashboard, whose name Access has.
        request.state.user = user[:_LONGEST_USER] or (None if self.made else "dashboard")
        return "operate"

    def is_given(self, request: Request) -> bool:
        """Return whether the request shows a token, right or wrong; cookies do not count, since nobody types them."""
        return "authorization" in request.headers or PARAMETER in request.query_params

    @property
    def what_to_do(self) -> str:
        """A text for people who were refused: what they may do."""
        if self.made:
            return (
                "This dashboard asks for a token: open the URL that it printed when it was started, which ends with"
                f" ?{PARAMETER}=…, or send that as Authorization: Bearer. Each start makes another; {TOKEN} keeps one."
            )
        return (
            f"This dashboard asks for a token: give that of {TOKEN} as the password, with your name as the user,"
            " or send it as Authorization: Bearer."
        )

    def keep_in_browser(self, request: Request) -> list[tuple[bytes, bytes]] | None:
        """Return the headers that redirect a browser to the URL without the token, with the cookie.

        ``None``: the URL has no token, or the client is no browser, and is answered at once.
        """
        scope = request.scope
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = urlencode([pair for pair in parameters if pair[0] != PARAMETER])
        if PARAMETER not in dict(parameters):
            return None
        scope["query_string"] = query.encode()
        if request.method not in {"GET", "HEAD"} or "text/html" not in request.headers.get("accept", ""):
            return None
        cookie = f"{_cookie(request)}={self._kept}; Path={_base(request) or '/'}; HttpOnly; SameSite=Strict"
        cookie += "; Secure" if scope["scheme"] == "https" else ""
        # Relative: right below any prefix, and it cannot lead to another host.
        location = f"./{quote(scope['path'].rpartition('/')[2])}{'?' if query else ''}{query}"
        return [
            (b"location", location.encode()),
            (b"set-cookie", cookie.encode()),
            (b"cache-control", b"no-store"),
        ]

    def page(self, request: Request) -> str:
        """Return a page that asks for the token and then leads to where the request wanted to go."""
        parameters = [pair for pair in request.query_params.multi_items() if pair[0] != PARAMETER]
        hidden = "".join(
            f'<input type="hidden" name="{escape(name)}" value="{escape(text)}">' for name, text in parameters
        )
        title, _, explanation = escape(self.what_to_do).partition(": ")
        return _ASKING_PAGE.format(base=escape(_base(request)), title=title, what=explanation, hidden=hidden)


def from_environment(env: Mapping[str, str] | None = None) -> Password | Token | None:
    """Return the password or token that the environment requires; ``None``: none.

    Raises:
        ConfigurationError: it is too short to be a secret, or half of it is missing.
    """
    env = os.environ if env is None else env
    token, user, password = (env.get(name) for name in (TOKEN, USER, PASSWORD))
    if token is not None:
        if user is not None or password is not None:
            raise ConfigurationError(f"{TOKEN} and {USER} are both set; leave one of the two out")
        return Token(_long_enough(TOKEN, token))
    if user is None and password is None:
        return None
    if not user or password is None:
        raise ConfigurationError(f"{USER} and {PASSWORD} go together, and one is missing; set both, or {TOKEN}")
    return Password(_long_enough(PASSWORD, password), user)


def _long_enough(name: str, secret: str) -> str:
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigurationError(
            f"{name} has {len(secret)} characters and can be guessed; use {_SHORTEST_SECRET} or more (openssl rand "
            "-hex 16)"
        )
    return secret


def _cookie(request: Request) -> str:
    """Return the name of the cookie. Cookies belong to a host, which may have a dashboard on each port."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"cronsensus_token_{port if port.isdecimal() else 80}"


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _credentials(request: Request, *schemes: str) -> tuple[str, str]:
    """Return the user and the secret of a request's ``Authorization``; both empty without one of ``schemes``."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() not in schemes:
        return "", ""
    return _decoded(credentials) if scheme.lower() == "basic" else ("", credentials.strip())


def _decoded(credentials: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password


def _same(first: str, second: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(first.encode(), second.encode())
