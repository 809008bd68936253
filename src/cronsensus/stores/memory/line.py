"""Standing in line for locks within one process."""

from __future__ import annotations

from cronsensus.stores.lines import Line
from cronsensus.stores.memory.state import Space


class MemoryLine(Line):
    """A place in the lines of one namespace."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self._space = space
        self._changed = space.world.changed
        self.told: list[str] = []

    def join(self, name: str) -> None:
        """Stand in line."""
        with self._changed:
            if not self._closed.is_set():
                self._space.lines.setdefault(name, {}).setdefault(self)

    def leave(self, name: str) -> None:
        """Stand in line no more."""
        with self._changed:
            self._space.leave_line(self, name)

    def hear(self, timeout: float) -> list[str]:
        """Wait to be told."""
        with self._changed:
            self._changed.wait_for(lambda: self.told or self._closed.is_set(), max(0.0, timeout))
            told, self.told = self.told, []
            return told

    def close(self) -> None:
        """Leave all lines."""
        with self._changed:
            self._closed.set()
            for name in [name for name, waiting in self._space.lines.items() if self in waiting]:
                self._space.leave_line(self, name)
            self._changed.notify_all()
