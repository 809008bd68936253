"""Prune old rows from time to time: without a node nobody else does, and a message queue makes many runs."""

from __future__ import annotations

from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

PRUNE_EVERY = 300.0
"""Seconds between two prunes."""
PRUNED = 500
"""Most rows that are deleted in one step, for which others wait."""
MOST_STEPS = 100


class Pruning:
    """Prunes one store from one process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Be due for the first time after ``PRUNE_EVERY``."""
        self._store, self._clock = store, clock
        self._pruned_at = clock.monotonic()
        self._closed = False

    def is_due(self) -> bool:
        """Return whether a prune is due. ``True`` only once for each due time."""
        now = self._clock.monotonic()
        if now - self._pruned_at <= PRUNE_EVERY:
            return False
        self._pruned_at = now
        return True

    def prune(self) -> None:
        """Delete in steps, until nothing is left to delete.

        Raises:
            StoreError: the store cannot be asked.
        """
        for _ in range(MOST_STEPS):
            if self._closed or self._store.prune(limit=PRUNED) < PRUNED:
                return

    def close(self) -> None:
        """Take no further step."""
        self._closed = True
