"""Turns the store's notifications into wake-ups. Losing all of them costs latency, never correctness."""

from __future__ import annotations

from collections.abc import Callable

from cronsensus.errors import StoreError
from cronsensus.node.backoff import backoff_seconds
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")
WAIT_SECONDS = 60.0
FIRST_AND_LONGEST_PAUSE = (0.1, 5.0)
"""First and longest wait before the store is tried again, seconds."""


class Listener:
    """Waits for notifications on a handle of its own and calls ``on_notification``. ``run`` is its thread."""

    def __init__(self, store: Store, on_notification: Callable[[], None]) -> None:
        self._store = store
        self._on_notification = on_notification
        self._stopped = Event()
        self._registered = ""

    def register_presence(self, session: str) -> None:
        """Let others see that the process of ``session`` lives, where the store can show it."""
        self._registered = session
        self._store.register_presence(session)

    def run(self) -> None:
        """Wait for notifications and pass them on until ``stop``."""
        troubles, deaf = 0, True
        while not self._stopped.is_set():
            try:
                notified = self._store.wait(0.0 if deaf else WAIT_SECONDS)
                if (notified or deaf) and not self._stopped.is_set():
                    # From here on notifications arrive; those that were sent before may have been for us.
                    self._on_notification()
                troubles, deaf = 0, False
            except StoreError as error:
                if not troubles:
                    _log.warning("no wake-ups for now, work is found by looking: %s", error)
                self._stopped.wait(backoff_seconds(troubles, FIRST_AND_LONGEST_PAUSE, self._registered))
                troubles, deaf = troubles + 1, True
            except Exception:  # noqa: BLE001 - logged
                if not self._stopped.is_set():
                    _log.exception("a mistake in cronsensus; please report it. Work is found by looking meanwhile")
                self._stopped.wait(WAIT_SECONDS)

    def stop(self) -> None:
        """End ``run``; closes the handle."""
        self._stopped.set()
        self._store.close()
