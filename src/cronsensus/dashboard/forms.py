"""The fields that a form sends, and the proof that the dashboard's own page sent it."""

from __future__ import annotations

import hmac
import re
import secrets
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "cronsensus_form"
FIELD = "form_token"
_MOST_BYTES = 64 * 1024
_MOST_FIELDS = 100
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32}")


class FormRefusedError(Exception):
    """A form is refused; ``status`` is that of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def token_for(request: Request) -> str:
    """Return the token that a form of this browser must send back: from its cookie, or a new token.

    A page of another site can have a browser send the cookie. It can neither read nor set it, so it does not know what
    to write into the field.
    """
    token = request.cookies.get(COOKIE, "")
    return token if _TOKEN.fullmatch(token) else secrets.token_urlsafe(24)


def keep_token(request: Request, response: Response, token: str, path: str) -> None:
    """Set the cookie with ``token``."""
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, path=path or "/", httponly=True, samesite="strict", secure=secure)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that was posted.

    Raises:
        FormRefusedError: it is too large, no form, or not from a page that this browser has got.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/x-www-form-urlencoded":
        raise FormRefusedError(415, "What was sent is not a form of this dashboard.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise FormRefusedError(413, "The form holds more than 64 KB.")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise FormRefusedError(400, "What was sent is not a form of this dashboard.") from None
    sent_token, cookie_token = fields.pop(FIELD, ""), request.cookies.get(COOKIE, "")
    if not _TOKEN.fullmatch(cookie_token) or not hmac.compare_digest(sent_token.encode(), cookie_token.encode()):
        raise FormRefusedError(403, "The form is not one that this browser was given, or it is too old. Open it again.")
    return fields
