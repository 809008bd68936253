"""Read a trigger back from JSON. The kinds are a closed table; data names nothing that is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers.at import at
from cronsensus.triggers.base import Trigger, any_of
from cronsensus.triggers.bounds import quoted
from cronsensus.triggers.cron import cron
from cronsensus.triggers.every import every

_KINDS: dict[str, tuple[Callable[..., Trigger], str, frozenset[str]]] = {
    "cron": (cron, "expression", frozenset({"tz", "every", "dst", "start", "end", "jitter"})),
    "every": (every, "interval", frozenset({"start", "end", "jitter"})),
    "at": (at, "instant", frozenset({"jitter"})),
}


def trigger_from_json(data: Mapping[str, Any]) -> Trigger:
    """Return the trigger of ``data``, which ``to_json()`` gave.

    Raises:
        InvalidTrigger: an unknown kind, a key missing or unknown, or a value that makes no sense.
    """
    kind = _kind_of(data)
    if kind != "any_of":
        return _read_single(kind, data)
    _check_keys(data, "parts", frozenset({"jitter"}))
    parts = data["parts"]
    if not isinstance(parts, (list, tuple)):
        raise InvalidTrigger(f"trigger: parts={quoted(parts)} is not a list")
    # A union in a union is never written, so that no depth of data can exhaust the stack.
    triggers = [_read_single(_kind_of(part), part) for part in parts]
    return any_of(*triggers, jitter=data.get("jitter", 0))


def _kind_of(data: object) -> str:
    if not isinstance(data, Mapping):
        raise InvalidTrigger(f"trigger {quoted(data)} is not a JSON object with a kind")
    kind = data.get("kind")
    return kind if isinstance(kind, str) else ""


def _read_single(kind: str, data: Mapping[str, Any]) -> Trigger:
    if kind not in _KINDS:
        kinds = ", ".join([*_KINDS, "any_of (not inside another)"])
        raise InvalidTrigger(f"trigger: kind={quoted(data.get('kind'))} is not known here; known are {kinds}")
    build, main, optional = _KINDS[kind]
    _check_keys(data, main, optional)
    return build(data[main], **{key: value for key, value in data.items() if key in optional})


def _check_keys(data: Mapping[str, Any], main: str, optional: frozenset[str]) -> None:
    if main not in data:
        raise InvalidTrigger(f"trigger of kind {data['kind']!r}: {main} is missing")
    unknown = sorted(quoted(key) for key in data if key not in optional and key not in {"kind", main})
    if unknown:
        raise InvalidTrigger(f"trigger of kind {data['kind']!r}: unknown {', '.join(unknown)[:200]}")
