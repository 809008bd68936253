"""JSON, bounded and honest: what goes in comes out equal, or is refused. Floor 2.

Tuples come back as lists; everything else that JSON does not have (dates, sets, bytes, NaN, keys that are not text) is
refused with the path to it, rather than silently becoming something else on the other side. No class is ever rebuilt.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from cronsensus.errors import InvalidPayload, StoreCorrupt

LARGEST = 256 * 1024
"""Most bytes of one JSON text in a store: arguments, a result."""
DEEPEST = 64

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def dumps(value: Any, *, what: str = "value", largest: int = LARGEST) -> str:
    """Return ``value`` as JSON text.

    Raises:
        InvalidPayload: it holds something that is not JSON (the message has the path), nests too deep, or is too large.
    """
    _check(value, what, 0)
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}") from error
    if len(text) > largest:
        raise InvalidPayload(
            f"{what} is {len(text):,} bytes as JSON, more than the {largest:,} that a store keeps; "
            "store the data elsewhere and pass its key"
        )
    return text.decode()


def loads(text: str | bytes) -> Any:
    """Return what ``dumps`` wrote.

    Raises:
        StoreCorrupt: the text is not JSON.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreCorrupt(f"a stored value is not JSON: {error}") from error


def _check(value: Any, path: str, depth: int) -> None:
    kind = type(value)
    if kind in _PLAIN or value is None:
        return
    if depth > DEEPEST:
        raise InvalidPayload(f"{path} nests deeper than {DEEPEST} levels")
    if kind is float:
        if not math.isfinite(value):
            raise InvalidPayload(f"{path} is {value}: JSON has no such number; pass None")
    elif kind is int:
        if not -(2**63) <= value < 2**64:
            raise InvalidPayload(f"{path} is an integer beyond 64 bits; pass it as text")
    elif kind in (list, tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidPayload(f"{path} has the key {key!r}: JSON keys are text")
            _check(item, f"{path}.{key}", depth + 1)
    else:
        raise InvalidPayload(
            f"{path} is a {kind.__module__}.{kind.__qualname__}, which is not JSON; pass text, numbers, lists or dicts"
        )


_PLAIN = frozenset({str, bool})
