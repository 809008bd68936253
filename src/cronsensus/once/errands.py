"""Does in the background what may wait for rows that others hold: the heartbeat, which finds it, must not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cronsensus.lock.worker_pool import submit
from cronsensus.logger import Logger

_log = Logger("cronsensus.once")

Errand = Callable[[], object]


class Errands:
    """One after the other, on a thread that is there while there are some. Safe to share between threads."""

    def __init__(self) -> None:
        """Have nothing to do yet."""
        self._lock = threading.Lock()
        self._waiting: dict[Errand, None] = {}
        self._under_way = False

    def add(self, errand: Errand) -> None:
        """Have this done soon; one that waits already is done once."""
        with self._lock:
            self._waiting[errand] = None
            if self._under_way:
                return
            self._under_way = True
        submit(self._do)

    def _do(self) -> None:
        while (errand := self._next()) is not None:
            try:
                errand()
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a mistake in cronsensus; please report it. It was done in the background")

    def _next(self) -> Errand | None:
        with self._lock:
            if self._waiting:
                errand = next(iter(self._waiting))
                del self._waiting[errand]
                return errand
            self._under_way = False
            return None
