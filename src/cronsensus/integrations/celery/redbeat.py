"""RedBeat on every machine: its entries stay in Redis, and without its lock no beat waits for another."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from redbeat.schedulers import ensure_conf

from cronsensus.errors import ConfigurationError


class Lockless:
    """Mixed in before ``RedBeatScheduler``."""

    reserve: Any

    def __init__(self, app: Any, lock_key: str | None = None, **options: Any) -> None:
        """Refuse the lock.

        Raises:
            ConfigurationError: the lock is on, as it is by default: it would be minutes until another beat sends.
        """
        if lock_key or ensure_conf(app).lock_key:
            raise ConfigurationError(
                "set redbeat_lock_key = None: its lock keeps the other beats idle, and "
                "each time is sent once without it"
            )
        super().__init__(app, **options)  # type: ignore[call-arg] # RedBeat's

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002
        """Send an entry, and put its next time into Redis after that: till then other beats see that it is due."""
        result = super().apply_async(entry, producer=producer, advance=False, **options)  # type: ignore[misc]
        if advance:
            self.reserve(entry)
        return result


@lru_cache(maxsize=16)
def without_lock(base: Any) -> Any:
    """Return a ``RedBeatScheduler``, or a subclass, that is to run without its lock."""
    return type(base.__name__, (Lockless, base), {"__module__": __name__})
