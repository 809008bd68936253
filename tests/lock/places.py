"""Where a lock is held, as one text that fits on a command line."""

from typing import Any

from cronsensus import Lock


def shortest(where: str) -> str:
    """Return a TTL that is over soon, and that a busy machine keeps: a master has a quarter of it to answer."""
    return "2s" if "," in where else "200ms"


def lock_at(where: str, name: str, **options: Any) -> Lock:
    """Return a lock at a URL, or at several with commas between."""
    return Lock(where.split(",") if "," in where else where, name, **options)
