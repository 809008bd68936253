"""Answer a health probe of the dashboard, without a password and without data of the store."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.errors import CronsensusError
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

PATH = "/healthz"
KEPT_SECONDS = 1.0
"""Seconds for which an answer of the store is kept: anybody may probe as often as they like."""
OK = (200, "ok: the store answers")
AWAY = (503, "fail: the store does not answer")


class Healthz:
    """Reads the store's time, at most once in ``KEPT_SECONDS`` seconds."""

    def __init__(self, store: Callable[[], Store]) -> None:
        """Prepare; ``store`` opens the store, which may fail, too."""
        self._store = store
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._answer = AWAY
        self._until = 0.0

    def read_status(self) -> tuple[int, str]:
        """Return a status and a sentence; may wait for the store, so not on an event loop."""
        with self._lock:
            if self._clock.monotonic() >= self._until:
                try:
                    self._store().now()
                    self._answer = OK
                except CronsensusError:
                    self._answer = AWAY
                self._until = self._clock.monotonic() + KEPT_SECONDS
            return self._answer
