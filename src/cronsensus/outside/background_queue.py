"""A background queue for acts that may wait for locked rows: the heartbeat, which finds them, must not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.lock.worker_pool import submit_act
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.outside")

Act = Callable[[], object]


class BackgroundQueue:
    """Does one act after another, on a thread that ends with the last one. Safe to share between threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._waiting: dict[Act, None] = {}
        self._under_way = False

    def add_act(self, act: Act) -> None:
        """Have this done soon; an act that is queued already is done once."""
        with self._lock:
            self._waiting[act] = None
            if self._under_way:
                return
            self._under_way = True
        submit_act(self._run_acts)

    def _run_acts(self) -> None:
        while (act := self._next_act()) is not None:
            try:
                act()
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a mistake in cronsensus; please report it. It was done in the background")

    def _next_act(self) -> Act | None:
        with self._lock:
            if self._waiting:
                act = next(iter(self._waiting))
                del self._waiting[act]
                return act
            self._under_way = False
            return None
