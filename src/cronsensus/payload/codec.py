"""Arguments and results as JSON, of bounded size: a value comes back equal, or is refused.

Tuples come back as lists; everything else that JSON does not have (dates, sets, bytes, NaN, keys that are not text) is
refused with the path to it, rather than silently becoming something else on the other side. No class is ever rebuilt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cronsensus.errors import InvalidPayload, StoreCorrupt
from cronsensus.model.occurrence import RunError
from cronsensus.security.masking import mask, mask_data

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
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(
            _complaint_with_path(value, what) or f"{what} cannot be written as JSON: {error}"
        ) from error
    # The size is checked first, so that the check of every part takes bounded time.
    if len(text) > largest:
        raise InvalidPayload(
            f"{what} is {len(text):,} bytes as JSON, more than the {largest:,} that a store keeps; "
            "store the data elsewhere and pass its key"
        )
    complaint = _complaint_with_path(value, what)
    if complaint is not None:
        raise InvalidPayload(complaint)
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


def dumps_masked(value: Any) -> str:
    """Return arguments or a result, as a store keeps them, as JSON text to show: without secrets, by ``mask_data``."""
    return dumps(mask_data(value), largest=2 * LARGEST)  # stars may be longer than the value that they replace


def _complaint_with_path(value: Any, what: str) -> str | None:
    """Return what is wrong with ``value``, with the path to it; ``None``: it comes back equal."""
    path_and_complaint = _find_complaint(value, 0)
    if path_and_complaint is None:
        return None
    path, complaint = path_and_complaint
    return f"{what}{path if len(path) <= _LONGEST_PATH else '…' + path[-_LONGEST_PATH:]} {complaint}"


def _find_complaint(value: Any, depth: int) -> tuple[str, str] | None:
    """Return the path to a part of ``value`` that JSON does not have, and what is wrong with it; ``None``: none."""
    kind = type(value)
    if kind in _UNCHECKED_TYPES or value is None:
        return None
    if kind is float:
        return None if math.isfinite(value) else ("", f"is {value}: JSON has no such number; pass None")
    if kind is int:
        return None if -(2**63) <= value < 2**64 else ("", "is an integer beyond 64 bits; pass it as text")
    if kind not in _CONTAINER_TYPES:
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        instead = "raise it" if issubclass(kind, BaseException) else "pass text, numbers, lists or dicts"
        return "", f"is a {name}, which is not JSON; {instead}"
    if depth >= DEEPEST:
        return "", f"nests deeper than {DEEPEST} levels"
    for key, item in value.items() if kind is dict else enumerate(value):
        if kind is dict and type(key) is not str:
            return "", f"has the key {key!r}: JSON keys are text"
        inner = _find_complaint(item, depth + 1)
        if inner is not None:
            path, complaint = inner
            return (f".{key}" if kind is dict else f"[{key}]") + path, complaint
    return None


_UNCHECKED_TYPES = frozenset({str, bool})
_CONTAINER_TYPES = frozenset({list, tuple, dict})
_LONGEST_PATH = 200


# --- what a row keeps as text ---------------------------------------------------------------------------------------

_decode_error = msgspec.json.Decoder(RunError).decode


def write_payload(
    args: Sequence[Any], kwargs: Mapping[str, Any], *, what: str, headers: Mapping[str, str] | None = None
) -> str:
    """Return arguments, and the headers of the call, as the JSON text that a row keeps; ``""`` for none.

    Raises:
        InvalidPayload: the arguments are not JSON, or too large.
    """
    text = dumps([list(args), dict(kwargs)], what=what) if args or kwargs or headers else ""
    # Headers do not count for the size: no call fails because it is traced.
    return f"{text[:-1]},{write_headers(headers)}]" if headers else text


def write_headers(headers: Mapping[str, str]) -> str:
    """Return the headers of a call as JSON text: the third part of a payload."""
    return _encode(dict(headers)).decode()


def read_payload(text: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that ``write_payload`` wrote."""
    args, kwargs, _ = read_call(text)
    return args, kwargs


def read_call(text: str | None) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str] | None]:
    """Return the arguments that ``write_payload`` wrote, and the headers; ``None``: it had none."""
    if not text:
        return (), {}, None
    args, kwargs, *more = loads(text)
    return tuple(args), kwargs, more[0] if more else None


def write_error(error: RunError | None) -> str | None:
    """Return an error as the JSON text that a row keeps."""
    return None if error is None else _encode(clean_error(error)).decode()


def read_error(text: str | None) -> RunError | None:
    """Return what ``write_error`` wrote."""
    return None if text is None else _decode_error(text)


def clean_error(error: RunError) -> RunError:
    """Return an error whose texts a store may keep."""
    return RunError(type=clean(error.type), message=clean(error.message), traceback=clean(error.traceback))


def clean(text: str) -> str:
    """Return ``text`` as a store keeps errors, reasons and log lines: secrets masked, half characters and NUL escaped.

    A secret that is not stored is shown nowhere, so pages, alerts and commands need not mask stored texts. And a text
    that no store can hold must never cost a result.
    """
    text = mask(text)
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def clean_optional(text: str | None) -> str | None:
    """Return ``clean(text)``, or ``None``."""
    return None if text is None else clean(text)
