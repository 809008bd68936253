"""Where a lock is held, as one text that fits on a command line."""

from typing import Any

from cronsensus import Lock
from tests.servers.distance import patience


def shortest(where: str) -> str:
    """Return a TTL that is over soon, and that a busy machine keeps: a master has a quarter of it to answer.

    It begins when the lock is asked for, which is many round trips before it is had.
    """
    return f"{patience(2.0 if ',' in where else 0.2, trips=40):.3f}s"


def lock_at(where: str, name: str, **options: Any) -> Lock:
    """Return a lock at a URL, or at several with commas between."""
    return Lock(where.split(",") if "," in where else where, name, **options)
