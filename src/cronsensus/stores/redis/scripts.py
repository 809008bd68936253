"""The Lua scripts, one for each verb: a file of its own and the parts that it needs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)
_LUA = files("cronsensus.stores.redis").joinpath("lua")


@dataclass(frozen=True, slots=True)
class Script:
    """One script, and the hash by which a server that has seen it knows it."""

    name: str
    text: bytes
    sha: bytes


@cache
def script_of(verb: str) -> Script:
    """Return the script of a verb."""
    parts: dict[str, str] = {}
    body = _read_part(f"verbs/{verb}.lua")
    for part in ("base", *_needed_parts(body)):
        _gather_parts(part, parts)
    text = "\n".join([*parts.values(), body]).encode()
    return Script(verb, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def list_verbs() -> list[str]:
    """Return the names of all scripts."""
    return sorted(path.name.removesuffix(".lua") for path in _LUA.joinpath("verbs").iterdir())


def _gather_parts(part: str, parts: dict[str, str]) -> None:
    """Add a part behind those that it needs itself."""
    if part in parts:
        return
    text = _read_part(f"{part}.lua")
    for other in _needed_parts(text):
        _gather_parts(other, parts)
    parts[part] = text


def _needed_parts(text: str) -> list[str]:
    return [part for line in _NEEDS.findall(text) for part in line.split()]


def _read_part(path: str) -> str:
    return _LUA.joinpath(path).read_text(encoding="utf-8")
