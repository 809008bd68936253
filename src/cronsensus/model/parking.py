"""What is parked: it is due never, takes no slot, and goes on when somebody wakes it."""

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
