"""What is simulated. Floor 6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cronsensus.clock import Clock
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Parts:
    """The store; a test that removes one of its safeguards puts something else in its place."""

    store: Callable[[Clock], Store] = lambda clock: MemoryStore(clock=clock)
