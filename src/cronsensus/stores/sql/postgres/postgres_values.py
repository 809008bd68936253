"""Write values for PostgreSQL as text; the statement names their types, so it is prepared only once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


def as_text(value: Any) -> str | None:
    """Return a value as the server reads it."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(
            value
        )  # what the driver would make of an enumeration, or of a class of the user's, is its own
    return array_text(value) if isinstance(value, (list, tuple)) else str(value)


def array_text(values: Sequence[Any]) -> str:
    """Return an array's text; elements are numbers, text or ``None``.

    Those of a step are hundreds of one kind, and need no look at each.
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        return "{" + ",".join(map(str, values)) + "}"
    if kinds == {str} and not _NEEDS_ESCAPE.search("".join(values)):
        return '{"' + '","'.join(values) + '"}'
    return "{" + ",".join(map(_element_text, values)) + "}"


_NEEDS_ESCAPE = re.compile(r'["\\]')


def _element_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
