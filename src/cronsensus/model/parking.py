"""Parked occurrences: they have no due time, take no slot, and go on when they are woken."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Sleeper(NamedTuple):
    """An occurrence that is parked until it is woken; ``on``: what it waits for."""

    id: int
    job: str
    on: str
    scheduled_for: datetime | None
    created_at: datetime
