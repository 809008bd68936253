"""What running attempts say of themselves, gathered for the node's next round. Floor 4.

Progress and log lines are worth a write now and then, not one each. What the store could not take is kept for the next
time; what it refuses, because the run is no longer current, is nobody's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.clock import Clock
from cronsensus.model.occurrence import LogLine, Note
from cronsensus.node.run import Run
from cronsensus.stores.base import Store

EVERY = 0.5
"""Least seconds between two writes while an attempt runs."""

_Key = tuple[int, int]


class Notes:
    """Progress and log lines that the store does not have yet. Jobs' threads add, the conductor flushes."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._progress: dict[_Key, tuple[float, float]] = {}
        self._lines: dict[_Key, list[LogLine]] = {}
        self._flushed_at = -1e9

    def progress(self, run: Run, done: float, total: float) -> None:
        """Note how far a run is; the last word counts."""
        with self._lock:
            first = self._empty
            self._progress[run.id, run.token] = float(done), float(total)
        if first:
            self._wake()

    def line(self, run: Run, line: LogLine) -> None:
        """Note a line."""
        with self._lock:
            first = self._empty
            self._lines.setdefault((run.id, run.token), []).append(line)
        if first:
            self._wake()

    @property
    def wanted_in(self) -> float | None:
        """Return the seconds until the next write is wanted; ``None`` when there is nothing to write."""
        with self._lock:
            if self._empty:
                return None
            return max(0.0, self._flushed_at + EVERY - self._clock.monotonic())

    def flush(self, store: Store) -> None:
        """Write everything; what a store error leaves unwritten stays."""
        with self._lock:
            if self._empty:
                return
            progress, self._progress = self._progress, {}
            lines, self._lines = self._lines, {}
        keys = sorted(progress.keys() | lines.keys())
        try:
            store.note([Note(*key, progress.get(key), tuple(lines.get(key, ()))) for key in keys])
        except BaseException:
            with self._lock:
                self._progress = progress | self._progress
                for key, later in self._lines.items():
                    lines.setdefault(key, []).extend(later)
                self._lines = lines
            raise
        with self._lock:
            self._flushed_at = self._clock.monotonic()

    @property
    def _empty(self) -> bool:
        return not self._progress and not self._lines
