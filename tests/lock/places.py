"""Where a lock is held, as one text that fits on a command line."""

from typing import Any

from cronsensus import Lock


def lock_at(where: str, name: str, **options: Any) -> Lock:
    """Return a lock at a URL, or at several with commas between."""
    return Lock(where.split(",") if "," in where else where, name, **options)
