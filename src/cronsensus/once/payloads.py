"""Fingerprints of payloads: they distinguish payloads under the same key, and never contain a value.

A fingerprint has a short hash for each argument that counts, so that an error can name the arguments that differ. An
argument that only one of two fingerprints has is not compared: a release may add arguments, or compare other ones, and
a message that is delivered again across the deploy is the same message.

Unless they are named, these are left out: values that are not plain (a channel, a session, an open file), and what a
broker changes when it delivers a message again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from string import Formatter
from typing import Any

from cronsensus.errors import InvalidOption
from cronsensus.once.keys import Key, require_argument

Payload = str | Iterable[str] | Callable[..., Any]
"""The types of ``payload=``: names of arguments, or a function of the call that returns the values to compare."""

CHANGES_WITH_EACH_DELIVERY = frozenset(
    {
        "acktoken", "ackid", "approximatefirstreceivetimestamp", "approximatereceivecount", "consumertag",
        "deliverycount", "deliveryinfo", "deliverytag", "deliveryattempt", "lockeduntil", "locktoken", "receipthandle",
        "receivecount", "redelivered", "redeliverycount", "redeliveryflag", "traceparent", "tracestate", "xdeath",
    }
)  # fmt: skip
"""Names of arguments and of entries in them, in small letters without ``-`` and ``_``."""
MOST_NAMES = 40
"""Most arguments with a hash of their own; further ones share a hash."""
_REST = "…"
_DEEPEST = 64
_NO_VALUE = object()
_FORMATTER = Formatter()


class FingerprintOf:
    """Returns the fingerprint of a call."""

    def __init__(self, payload: Payload | None, name: str, signature: inspect.Signature | None) -> None:
        """Check ``payload`` against the function's parameters.

        Args:
            payload: names of arguments, or of parts of them such as ``"message.body"``; or a function that is called
                with the same arguments and returns the values to compare. ``None``: all arguments with plain values.
            name: of the function, for messages.
            signature: the callers' parameters; ``None`` if Python cannot tell.

        Raises:
            InvalidOption: it names an argument that the function does not have.
        """
        self._name = name
        self._function = payload if callable(payload) else None
        self._fields: tuple[str, ...] | None = None
        self._ignored: frozenset[str] = frozenset()
        if payload is not None and self._function is None:
            named: Any = (payload,) if isinstance(payload, str) else payload
            fields: list[Any] = list(named) if isinstance(named, Iterable) else [None]
            if not all(isinstance(field, str) for field in fields):
                raise InvalidOption(
                    f"payload={payload!r}: write names of arguments, such as payload=('amount', 'currency'), or a "
                    "function of the call"
                )
            for field in fields:
                require_argument(f"payload={field!r}", field, name, signature)
            self._fields = tuple(fields)
        if signature is not None:
            # An object that a method belongs to is no payload, even if it is a dataclass.
            self._ignored = frozenset({"self", "cls"}.intersection(list(signature.parameters)[:1]))

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound_arguments: Mapping[str, Any], key: Key
    ) -> str:
        """Return the fingerprint, as JSON text.

        Raises:
            InvalidOption: a named argument is no plain value.
        """
        hashes = {
            name: _hash_value(value, key.text, name)
            for name, value in self._counted_arguments(args, kwargs, bound_arguments).items()
        }
        if len(hashes) > MOST_NAMES:
            names = sorted(hashes)
            rest = [hashes.pop(name) for name in names[MOST_NAMES:]]
            hashes[_REST] = _hash_value(rest, key.text, _REST)
        return json.dumps({"k": key.kinds, "p": hashes}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    def _counted_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound_arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        if self._function is not None:
            return {"payload()": self._plain_value("payload()", self._function(*args, **kwargs))}
        if self._fields is not None:
            return {
                field: self._plain_value(field, self._fingerprint_part(field, bound_arguments))
                for field in self._fields
            }
        plain = {
            name: plain_json(value, leave_out=True)
            for name, value in bound_arguments.items()
            if name not in self._ignored and not _describe_changes(name)
        }
        return {name: value for name, value in plain.items() if value is not _NO_VALUE}

    def _fingerprint_part(self, field: str, bound_arguments: Mapping[str, Any]) -> Any:
        try:
            return _FORMATTER.get_field(field, (), bound_arguments)[0]
        except (KeyError, AttributeError, IndexError, TypeError) as error:
            raise InvalidOption(
                f"payload={field!r} of {self._name}() is not in this call: {type(error).__name__}: {error}"
            ) from error

    def _plain_value(self, field: str, value: Any) -> Any:
        plain = plain_json(value)
        if plain is _NO_VALUE:
            raise InvalidOption(
                f"payload= of {self._name}(): {field} is, or holds, a {type(value).__qualname__} that cannot be "
                "compared with what is recorded; name a part of it, such as 'message.body', or write a function that "
                "returns text, numbers, lists or dicts"
            )
        return plain


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two fingerprints.

    Attributes:
        kinds: positions in the key where the values have the same spelling but different types.
        names: arguments that have other values.
        given, recorded: all names that were compared, of this call and of the recorded call.
    """

    kinds: tuple[int, ...]
    names: tuple[str, ...]
    given: tuple[str, ...]
    recorded: tuple[str, ...]


def find_difference(own_text: str | None, stored_text: str | None) -> Difference | None:
    """Return how two fingerprints differ; ``None``: they do not, or one cannot be read."""
    own, stored = _read_fingerprint(own_text), _read_fingerprint(stored_text)
    if own is None or stored is None:
        return None
    # A key of another form has other places.
    kinds = zip(own[0], stored[0], strict=True) if len(own[0]) == len(stored[0]) else ()
    places = tuple(place for place, (kind, other) in enumerate(kinds) if kind != other)
    names = tuple(sorted(name for name in own[1].keys() & stored[1].keys() if own[1][name] != stored[1][name]))
    if not places and not names:
        return None
    return Difference(places, names, tuple(sorted(own[1])), tuple(sorted(stored[1])))


def _read_fingerprint(text: str | None) -> tuple[str, dict[str, str]] | None:
    if text is None:
        return None
    try:
        fingerprint = json.loads(text)
        kinds, hashes = fingerprint["k"], fingerprint["p"]
    except (ValueError, LookupError, TypeError):
        return None  # of a form that this version does not know
    return (kinds, hashes) if isinstance(kinds, str) and isinstance(hashes, dict) else None


def _hash_value(value: Any, key: str, name: str) -> str:
    # Hashed with the key, so that a value has another hash under each key, and no table of hashes reveals it.
    text = json.dumps([key, name, value], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _describe_changes(name: str) -> bool:
    return re.sub("[-_]", "", name.lower()) in CHANGES_WITH_EACH_DELIVERY


# --- plain values -----------------------------------------------------------------------------------------------------


def plain_json(value: Any, *, leave_out: bool = False, depth: int = 0) -> Any:
    """Return a value as JSON values that are equal for equal payloads; ``_NO_VALUE`` if it is not a plain value.

    Args:
        value: anything.
        leave_out: leave out parts that are not plain values, or that a broker changes with each delivery.
        depth: the nesting depth of the value.
    """
    if depth > _DEEPEST:
        return _NO_VALUE
    if isinstance(value, Enum):
        return plain_json(value.value, leave_out=leave_out, depth=depth + 1)
    if isinstance(value, Mapping):
        return _plain_entries(value.items(), leave_out=leave_out, depth=depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare)
        return _plain_entries(fields, leave_out=leave_out, depth=depth)
    if isinstance(value, list | tuple | set | frozenset):
        return _plain_items(value, leave_out=leave_out, depth=depth)
    return _plain_single(value)


def _plain_single(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float | Decimal):
        return _plain_number(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": hashlib.blake2b(value, digest_size=16).hexdigest()}
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return {"microseconds": value // timedelta(microseconds=1)}
    return _NO_VALUE


def _plain_number(value: float | Decimal) -> Any:
    """Return a number so that 9, 9.0 and Decimal("9.00") become equal."""
    if isinstance(value, int):
        return int(value)
    if not math.isfinite(value):
        return {"number": str(value)}
    if value == int(value):
        return int(value)
    return {"number": str((Decimal(repr(value)) if isinstance(value, float) else value).normalize())}


def _plain_entries(items: Iterable[tuple[Any, Any]], *, leave_out: bool, depth: int) -> Any:
    entries: dict[str, Any] = {}
    for key, value in items:
        name = key if isinstance(key, str) else _plain_single(key)
        plain = plain_json(value, leave_out=leave_out, depth=depth + 1)
        if name is _NO_VALUE or plain is _NO_VALUE:
            if not leave_out:
                return _NO_VALUE
        elif not (leave_out and isinstance(name, str) and _describe_changes(name)):
            entries[name if isinstance(name, str) else json.dumps(name)] = plain
    return entries


def _plain_items(values: Iterable[Any], *, leave_out: bool, depth: int) -> Any:
    plain = [plain_json(item, leave_out=leave_out, depth=depth + 1) for item in values]
    kept = [item for item in plain if item is not _NO_VALUE]
    if len(kept) < len(plain) and not leave_out:
        return _NO_VALUE
    if isinstance(values, set | frozenset):
        kept.sort(key=lambda item: json.dumps(item, sort_keys=True))
    return kept
