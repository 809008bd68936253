"""Take the secrets out of text before anybody sees it. A leaf above ``errors``, so that every floor may use it."""

from __future__ import annotations

import re

# The last @ before a query ends the password, for one may hold an @; only where there is none may it hold a ?.
_IN_URL = re.compile(r"(?<=://)(?P<before>[^\s/@:]*:)(?:[^\s?]*|\S*)@")
_PARAMETER = re.compile(r"(?P<before>\b(?:\w*_)?(?:ssl)?(?:password|passwd|secret|token)=)[^&\s]+", re.IGNORECASE)


def mask(text: str) -> str:
    """Return ``text`` with stars for the passwords of the URLs in it, and for parameters that are called like secrets.

    Too much may be taken for a password (up to an ``@`` further on in the same word), never too little.

    Example:
        >>> mask("cannot reach postgresql://ada:p@ss@db/app?sslpassword=x")
        'cannot reach postgresql://ada:***@db/app?sslpassword=***'
    """
    return _PARAMETER.sub(r"\g<before>***", _IN_URL.sub(r"\g<before>***@", text))
