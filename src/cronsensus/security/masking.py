"""Mask secrets in text and data before they are shown or logged. It imports no other module, so every floor may use it.

There is one list of the names of secrets, for text (errors, reasons, log lines, URLs, headers, command lines) and
for data (arguments, results).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

STARS = "***"

_KEYS = ("api", "access", "account", "auth", "encryption", "private", "shared", "signing")
_WORD = (
    r"(?:passw(?:or)?d|passphrase|passwort|pwd|secret|token|credential|authorization|cookie"
    rf"|(?:{'|'.join(_KEYS)})[_-]?key"
    r"|(?<![^\W_])pass|(?<=[?&_-])sig(?:nature)?)"
)
_HINT = re.compile(
    "pass|pwd|secret|token|credential|authorization|cookie|sig" + "".join(f"|{kind}[_-]?key" for kind in _KEYS)
)
"""Where a name may begin, in small letters: each begins with a literal, which makes the search ten times faster."""

# A small letter behind makes it another word (tokenizer, secretary). The bound keeps the search linear.
_NAME = rf"{_WORD}(?-i:s?(?![a-z]))[\w-]{{0,40}}+"
_ANY_NAME = re.compile(_NAME, re.IGNORECASE)
_ENDS_IN_WORD = re.compile(rf"{_WORD}\Z", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,_]+")
_SAYS_WHETHER = frozenset({"true", "false", "null", "none", "yes", "no"})
"""Values that say whether there is a secret: MySQL's ``(using password: NO)``, ``hide_password=False``."""
_EMPTY = frozenset({"", "[]", "{}", "()"})
_CLOSING = ")]}>,;.:!?'\"\\&"

_SCHEME = r"(?:bearer|basic|token|apikey|negotiate)[ \t]{1,8}"
_VALUE = (
    # JSON within JSON has backslashes before its quotes, and twice as many and one before a quote of the value.
    r"(?:[bfru]{0,2}(?P<quote>(?P<escape>\\{0,8})[\"'])"
    r"(?P<quoted>(?:(?:(?P=escape)\\){2}|(?P=escape)\\(?P=escape)[\"']|(?!(?P=quote))[^\n])*+)"
    r"|(?P<brackets>\[[^\]\n]*+\]?|\{[^}\n]*+\}?|\([^)\n]*+\)?)"
    rf"|(?:{_SCHEME})?(?P<plain>\*{{3}}(?=@)|(?:[^\s&]++|&(?![\w.%-]{{1,40}}=))++)"
    # Behind the type of a parameter comes its default, which is the secret: password: str = "x".
    r"(?P<default>[ \t]{1,4}=[ \t][^\n]*)?)"
)
_NAMED = re.compile(
    rf"(?P<name>{_NAME})"
    # "name": value, name=value, d["name"] = value, and the pair ("name", "value").
    r"(?:(?:\\{0,8}[\"'])?\]?[ \t]{0,8}+(?:=>|:=|%3[AD]|[=:](?!=))[ \t]{0,8}+"
    rf"|\\{{0,8}}[\"'],[ \t]{{0,8}}+(?=[bfru]{{0,2}}\\{{0,8}}[\"'])){_VALUE}",
    re.IGNORECASE,
)
_FLAG = re.compile(rf"(?<![\w-])--(?P<name>[\w-]{{0,40}}?{_WORD})[ \t]{{1,8}}+(?!-){_VALUE}", re.IGNORECASE)
_HEADER = re.compile(
    rf"((?:authorization|cookie)[ \t]{{0,8}}:[ \t]{{0,8}}+)(?!{_SCHEME}|[\"'\[{{(\\])([^\r\n]+)", re.IGNORECASE
)
_BARE = re.compile(r"\b((?:bearer|basic)[ \t]{1,8})(?=[\w.~+/-]{0,400}\d)[\w.~+/-]{12,}+=*", re.IGNORECASE)

_ORIGIN = re.compile(
    r"(?:[^/?#@\s]*@)?([\w.-]+(?::\d+)?|\[[\da-f:.]+\](?::\d+)?)(?:[/?#](.*))?", re.IGNORECASE | re.DOTALL
)
_USER = re.compile(r"://[^\s/@:]*:")
_REST_OF_WORD = re.compile(r"\S*")
_PORT = re.compile(r"\d{1,5}(?!\S)")
_SPACED = re.compile(r"[^\s@]*(?: (?!\S*://)[^\s@]+){0,4}? (?!\S*://)\S*@")
_ONE_SPACE = re.compile(r"[^\s/:?#(]* (?!\S*://)[^\s(]*@")


def mask(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """Return ``text`` with ``***`` for passwords in URLs, and for values under the name of a secret.

    Such are ``PGPASSWORD=x``, ``pwd=x``, ``api_key: x``, ``{"password": "x"}``, ``?access_token=x``, ``--token x``,
    ``Authorization: Bearer x``, and ``Cookie:`` up to the end of its line. A value without quotes ends at a space, and
    a bracket or a comma that closes it stays. A password in a URL ends at the last ``@`` of its word, and may have
    spaces.

    In doubt it masks: a word that only looks like a value, and all text up to a later ``@``. Shown are ``true``,
    ``false``, ``null``, ``None``, ``yes`` and ``no``, which say whether there is a secret, and numbers if the name does
    not end in such a word (``token_count=3``, ``max_tokens: 512``; but not ``pin_token=3``). Longer words
    (``tokenizer``) are no such names.
    It takes time linear to the text's length, and masked text may be masked again.
    Not noticed: a secret that nothing names (``the key is x``), and a user without a password in a URL.

    Args:
        text: what is to be shown.
        secrets: further values to mask everywhere, as those of a URL, which a server may repeat in an error.

    Example:
        >>> mask("cannot reach postgresql://ada:p@ss@db/app?sslpassword=x (PGPASSWORD=x)")
        'cannot reach postgresql://ada:***@db/app?sslpassword=*** (PGPASSWORD=***)'
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, STARS)
    if "://" in text:
        text = _mask_urls(text)
    lowered = text.lower()
    if "cookie" in lowered or "authorization" in lowered:
        text = _HEADER.sub(_mask_header, text)
        lowered = text.lower()
    if _HINT.search(lowered) is not None:
        text = _mask_named(text, lowered)
        if "--" in text:
            text = _FLAG.sub(_mask_value, text)
    if "bearer" in lowered or "basic" in lowered:
        text = _BARE.sub(rf"\1{STARS}", text)
    return text


def mask_target(url: str) -> str:
    """Return a URL whose path is a secret, as of a webhook or a ping, with only its scheme and its host.

    With other schemes the host is a secret, too: there the URLs of ``apprise`` have their tokens.

    Example:
        >>> mask_target("https://hooks.slack.com/services/T0/B0/XYZ"), mask_target("slack://TokenA/TokenB")
        ('https://hooks.slack.com/***', 'slack://***')
        >>> mask_target("mailto://ops@example.org")
        'mailto://ops@example.org'
    """
    scheme, colon, after_scheme = url.partition(":")
    if not colon or "/" in scheme:
        start, slash, _ = url.partition("/")
        return mask(start) + (f"/{STARS}" if slash else "")
    if scheme.lower() == "mailto":
        return mask(url) if ":" not in after_scheme else f"{scheme}:{STARS}"
    origin = _ORIGIN.fullmatch(after_scheme.removeprefix("//")) if scheme.lower() in {"http", "https"} else None
    # With an @ further on, what looks like a port may be the beginning of a password.
    if origin is None or (":" in origin[1] and "@" in (origin[2] or "")):
        return f"{scheme}://{STARS}"
    return f"{scheme}://{origin[1]}" + (f"/{STARS}" if origin[2] else "")


def mask_data(value: Any, name: str = "") -> Any:
    """Return arguments or a result as they may be shown: masked by name at any depth, texts by ``mask``.

    Args:
        value: JSON data.
        name: what it is called; its key, or the parameter's name.
    """
    if name and _is_secret(name, value):
        return STARS
    if isinstance(value, Mapping):
        return {mask(str(key)): mask_data(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_data(item) for item in value]
    return mask(value) if isinstance(value, str) else value


def _is_secret(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool) or not _ANY_NAME.search(name):
        return False
    return not isinstance(value, int | float) or _ENDS_IN_WORD.search(name) is not None


def _mask_named(text: str, lowered: str) -> str:
    if len(lowered) != len(text):  # a letter whose small one is two
        return _NAMED.sub(_mask_value, text)
    parts, copied_up_to = [], 0
    for hint in _HINT.finditer(lowered):
        if hint.start() < copied_up_to:
            continue
        match = _NAMED.match(text, hint.start())
        if match is not None:
            parts += [text[copied_up_to : match.start()], _mask_value(match)]
            copied_up_to = match.end()
    return "".join([*parts, text[copied_up_to:]])


def _mask_value(match: re.Match[str]) -> str:
    plain, quoted, brackets = match["plain"], match["quoted"], match["brackets"]
    before = match[0][: match.start("plain" if plain else "brackets" if brackets else "quoted") - match.start()]
    if plain is None:
        return match[0] if (quoted or brackets or "") in _EMPTY else before + STARS
    if match["default"]:
        return before + STARS
    value = plain.rstrip(_CLOSING)
    if not value or value.lower() in _SAYS_WHETHER:
        return match[0]
    if _NUMBER.fullmatch(value) and not _ENDS_IN_WORD.search(match["name"]):
        return match[0]
    return before + STARS + plain[len(value) :]


def _mask_header(match: re.Match[str]) -> str:
    value = match[2].rstrip(_CLOSING + " \t")
    return match[1] + (STARS if value else "") + match[2][len(value) :]


def _mask_urls(text: str) -> str:
    """Mask the passwords of URLs.

    Each word is looked through once for its ``@``: a search for each ``://`` of it would take quadratic time.
    """
    parts, copied_up_to, position = [], 0, 0
    while (user := _USER.search(text, position)) is not None:
        start = user.end()
        word_end = _end_of(_REST_OF_WORD, text, start)
        at_sign = _last_at(text, start, word_end)
        if at_sign >= 0:
            spaced = _ONE_SPACE.match(text, at_sign + 1) if "@" not in text[at_sign + 1 : word_end] else None
        else:
            spaced = None if _PORT.match(text, start) else _SPACED.match(text, start)
        if spaced is not None:
            at_sign = spaced.end() - 1
        if at_sign < 0:
            position = word_end
            continue
        parts += [text[copied_up_to:start], STARS]
        copied_up_to = position = at_sign
    return "".join([*parts, text[copied_up_to:]])


def _last_at(text: str, start: int, end: int) -> int:
    """Return where the ``@`` that ends a password is, or -1.

    The last ``@`` before a query ends it, for one may hold an ``@``; only where there is none may it hold a ``?``.
    """
    query = text.find("?", start, end)
    at = text.rfind("@", start, query) if query >= 0 else -1
    return at if at >= 0 else text.rfind("@", start, end)


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return start if match is None else match.end()
