"""The memory store: simple enough to be obviously right, the oracle of all stores; for tests and simulations.

One lock, one clock, integers that count up: the same calls give the same answers. ``state`` holds rows and indexes,
the other modules the verbs, by group. Everything ends with the process.
"""

from __future__ import annotations

import threading
from typing import Self

from cronsensus.errors import InvalidOption
from cronsensus.stores.base import Store
from cronsensus.stores.memory.jobs import JobVerbs
from cronsensus.stores.memory.memory_reading import MaintenanceVerbs, Reads
from cronsensus.stores.memory.operating import OperatingVerbs
from cronsensus.stores.memory.sessions import SessionVerbs
from cronsensus.stores.memory.state import World
from cronsensus.stores.values import StoreCapabilities
from cronsensus.timing.clock import Clock, SystemClock

__all__ = ["MemoryStore"]

_CAPABILITIES = StoreCapabilities(
    name="memory",
    clock="process",
    lease_clock="monotonic",
    hosts="one",
    notify=False,
    transactional_finish=False,
    survives="nothing: it ends with the process",
)
_worlds: dict[str, World] = {}
_worlds_lock = threading.Lock()


class MemoryStore(JobVerbs, OperatingVerbs, SessionVerbs, MaintenanceVerbs, Reads, Store):
    """A store in this process's memory.

    ``memory://`` is private to this handle and its siblings. Handles on one ``memory://name`` share their state, also
    across namespaces, until the process ends; the first of them decides on the clock.

    Example:
        >>> store = MemoryStore()
        >>> store.counts().jobs
        0
    """

    def __init__(self, url: str = "memory://", *, namespace: str = "default", clock: Clock | None = None) -> None:
        scheme, separator, name = url.partition("://")
        if scheme != "memory" or not separator:
            raise InvalidOption(f"{url!r} is not the URL of a memory store; write memory:// or memory://name")
        if name.strip("/"):
            with _worlds_lock:
                world = _worlds.setdefault(name, World(clock or SystemClock()))
            if clock is not None and clock is not world.clock and type(clock) is not SystemClock:
                raise InvalidOption(f"{url} is open with another clock; a store has one clock for all")
        else:
            world = World(clock or SystemClock())
        self._enter_world(world, namespace)

    @classmethod
    def _on_world(cls, world: World, namespace: str) -> Self:
        self = cls.__new__(cls)
        self._enter_world(world, namespace)
        return self

    def _enter_world(self, world: World, namespace: str) -> None:
        self.namespace = namespace
        self._world = world
        with world.changed:
            self._space = world.space_of(namespace)
            self._space.handles.add(self)

    @property
    def capabilities(self) -> StoreCapabilities:
        """Return what this store can do."""
        return _CAPABILITIES

    def _migrate(self) -> list[str]:
        return []

    def _check(self) -> None:
        """Memory can always be used."""

    def _close(self) -> None:
        """End a wait in another thread, and receive no more notifications."""
        with self._changed:
            self._closed = True
            self._space.handles.discard(self)
            self._changed.notify_all()

    def _sibling(self) -> Self:
        return self._on_world(self._world, self.namespace)
