"""Values as PostgreSQL reads them: as text, whose type the statement says, so that it is prepared once."""

from __future__ import annotations

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
    return array(value) if isinstance(value, (list, tuple)) else str(value)


def array(values: Sequence[Any]) -> str:
    """Return an array's text; elements are numbers, text or ``None``."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else str(value)
