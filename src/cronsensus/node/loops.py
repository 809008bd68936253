"""Track the event loops that run jobs in this process: a call that blocks such a loop may wait for itself."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from cronsensus.errors import ConfigurationError

_loops: weakref.WeakSet[Any] = weakref.WeakSet()


def runs_jobs(loop: Any, *, now: bool = True) -> None:
    """Note that a node runs its async jobs on ``loop``, or that it no longer does."""
    if now:
        _loops.add(loop)
    else:
        _loops.discard(loop)


def running_loop() -> Any:
    """Return the event loop that runs on this thread, or ``None``."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()  # noqa: SLF001 - the one that asks and raises nothing


def refuse_to_block(what: str, instead: str) -> None:
    """Raise where a wait would block an event loop on which jobs run.

    Raises:
        ConfigurationError: it would.
    """
    loop = running_loop()
    if loop is not None and loop in _loops:
        raise ConfigurationError(
            f"{what} here would block the event loop on which async jobs run, and could wait for itself for ever; "
            f"{instead}"
        )
