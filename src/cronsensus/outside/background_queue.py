"""A background queue for calls that may wait for locked rows: the heartbeat, which submits them, must not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.lock.worker_pool import submit_act
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.outside")

Call = Callable[[], object]


class BackgroundQueue:
    """Runs one call after another, on a thread that ends with the last one. Safe to share between threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._waiting: dict[Call, None] = {}
        self._is_running = False

    def add_call(self, call: Call) -> None:
        """Queue a call; one that is queued already is not queued twice."""
        with self._lock:
            self._waiting[call] = None
            if self._is_running:
                return
            self._is_running = True
        submit_act(self._run_calls)

    def _run_calls(self) -> None:
        while (call := self._next_call()) is not None:
            try:
                call()
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a mistake in cronsensus, in a background call; please report it")

    def _next_call(self) -> Call | None:
        with self._lock:
            if self._waiting:
                call = next(iter(self._waiting))
                del self._waiting[call]
                return call
            self._is_running = False
            return None
