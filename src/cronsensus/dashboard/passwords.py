"""A token, or a user and a password, from the environment."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from cronsensus.errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.requests import Request

TOKEN = "CRONSENSUS_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable
USER = "CRONSENSUS_DASHBOARD_USER"
PASSWORD = "CRONSENSUS_DASHBOARD_PASSWORD"  # noqa: S105 - the name of a variable
_SHORTEST = 12


class Password:
    """Lets in who knows the password: as ``Authorization: Basic``, for which browsers ask, or as ``Bearer``.

    Args:
        password: what is to be known.
        user: who is to know it; ``None``: any name will do.
    """

    challenge = b'Basic realm="cronsensus", charset="UTF-8"'

    def __init__(self, password: str, user: str | None = None) -> None:
        self._password = password
        self._user = user

    def __call__(self, request: Request) -> Literal["operate"] | None:
        """Return ``"operate"`` if the request shows the password."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        user, password = self._user or "", given.strip()
        if scheme.lower() == "basic":
            user, password = _decoded(given)
        elif scheme.lower() != "bearer" or self._user is not None:
            return None
        right = _same(password, self._password)
        if self._user is not None:
            right &= _same(user, self._user)
        if not right:
            return None
        request.state.user = user or "dashboard"
        return "operate"

    @property
    def what_to_do(self) -> str:
        """Return what somebody who was refused may do."""
        if self._user is None:
            return (
                f"This dashboard asks for a token: give that of {TOKEN} as the password, with your name as the user,"
                " or send it as Authorization: Bearer."
            )
        return f"This dashboard asks for the user and the password of {USER} and {PASSWORD}."


def from_environment(env: Mapping[str, str] | None = None) -> Password | None:
    """Return what the environment asks of a visitor; ``None``: nothing.

    Raises:
        ConfigurationError: what it asks is too short to be a secret, or half of it is missing.
    """
    env = os.environ if env is None else env
    token, user, password = (env.get(name) for name in (TOKEN, USER, PASSWORD))
    if token is not None:
        if user is not None or password is not None:
            raise ConfigurationError(f"{TOKEN} and {USER} are both set; leave one of the two out")
        return Password(_long_enough(TOKEN, token))
    if user is None and password is None:
        return None
    if not user or password is None:
        raise ConfigurationError(f"{USER} and {PASSWORD} go together, and one is missing; set both, or {TOKEN}")
    return Password(_long_enough(PASSWORD, password), user)


def _long_enough(name: str, secret: str) -> str:
    if len(secret) < _SHORTEST:
        raise ConfigurationError(
            f"{name} has {len(secret)} characters and can be guessed; use {_SHORTEST} or more (openssl rand -hex 16)"
        )
    return secret


def _decoded(given: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that tells nothing."""
    return hmac.compare_digest(given.encode(), wanted.encode())
