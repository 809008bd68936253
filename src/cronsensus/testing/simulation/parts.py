"""What is simulated. Floor 6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cronsensus.clock import Clock
from cronsensus.node.conductor import Conductor
from cronsensus.node.keeper import Keeper
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Parts:
    """The real parts; a test that removes a safeguard puts something else in one place."""

    store: Callable[[Clock], Store] = lambda clock: MemoryStore(clock=clock)
    conductor: type[Conductor] = Conductor
    keeper: type[Keeper] = Keeper
