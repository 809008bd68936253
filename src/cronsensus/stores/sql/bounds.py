"""How long a transaction may stand still before the server ends it."""

from __future__ import annotations

MOST_PAUSED = 2.0
"""Seconds that a transaction of ours may stand still between two statements before the server ends it.

A process that is frozen in the middle of a verb holds locks, and what waits for them must not wait for a whole lease.
"""
MOST_IDLE = 60
"""Seconds between two statements of a block after which a server that has no limit of its own ends the transaction: the
locks of a node that stands still would keep the run's next attempt waiting for ever."""
