"""What happened, in order: kept as plain values while it happens, written as text only when somebody reads it. Floor 6."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from cronsensus.testing.simulation.clocks import SECOND, START


class Trace:
    """The events of one simulation. The same seed gives the same trace, on any machine and with any hash seed."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, str, tuple[Any, ...]]] = []

    def add(self, micros: int, who: str, what: str, *details: Any) -> None:
        """Note an event."""
        self._events.append((micros, who, what, details))

    def __len__(self) -> int:
        return len(self._events)

    def lines(self, about: str | None = None) -> Iterator[str]:
        """Give the events as text; with ``about``, only those in which that text occurs."""
        for micros, who, what, details in self._events:
            line = f"{micros / SECOND:12.6f}  {who:<10} {what:<14} {' '.join(map(_written, details))}".rstrip()
            if about is None or about in line:
                yield line

    def digest(self) -> str:
        """Return a hash of the whole trace."""
        digest = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


def _written(detail: Any) -> str:
    if isinstance(detail, datetime):
        return f"{(detail - START).total_seconds():+g}"
    if isinstance(detail, timedelta):
        return f"{detail.total_seconds():g}s"
    if isinstance(detail, (list, tuple)):
        return "[" + " ".join(map(_written, detail)) + "]"
    return str(detail)
