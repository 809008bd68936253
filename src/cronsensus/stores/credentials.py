"""Find a password that does not survive in a URL, before a driver reads half of it as a host."""

from __future__ import annotations

import re
from urllib.parse import quote

from cronsensus.errors import InvalidOption

_ENDS = re.compile(r"[@/?#\s]|%(?![0-9A-Fa-f]{2})")
"""What ends a password early, or is no character: a driver takes what comes after it for a host, a path or a query."""


def check_credentials(url: str) -> None:
    """Raise if the user name or password of a server's URL holds a character that must be written as ``%XX``.

    The error names that character and nothing else of the password.

    Raises:
        InvalidOption: it does.
    """
    match = _ENDS.search(_credentials_of(url))
    if match is not None:
        character = match[0]
        scheme = url.partition("://")[0]
        raise InvalidOption(
            f"the user name or password in the {scheme}:// URL holds {character!r}, which ends it there; "
            f"write {quote(character, safe='')} for it: {scheme}://USER:PASSWORD@HOST/…"
        )


def _credentials_of(url: str) -> str:
    """Return what stands before the last ``@`` that can be the one before the host."""
    rest = url.partition("://")[2]
    head, _, query = rest.partition("?")
    if "@" in head:
        return head.rpartition("@")[0]
    # Without a path before it, the ? is one of the password's: mysql://ada:p?ss@host/db.
    return "" if "/" in head or "@" not in query else rest.rpartition("@")[0]
