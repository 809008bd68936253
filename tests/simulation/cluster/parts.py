"""What is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """What may be another than the real one.

    Attributes:
        store: makes the store; a test that removes one of its safeguards puts something else in its place.
        forgets: whether the store now and then loses what it acknowledged in its last moment.
        prunes: whether, in nights of batches and diamonds, people prune in between: by ``keep``, and by a time.
    """

    store: Callable[[Clock], MemoryStore] = lambda clock: MemoryStore(clock=clock)
    forgets: bool = False
    prunes: bool = False
