"""Wait in the background for a store that is away, so that the application serves meanwhile."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from cronsensus.errors import CoordinationError, CronsensusError, StoreError
from cronsensus.lifecycle.starting import may_come, pause_before
from cronsensus.process.background import PATIENCE
from cronsensus.process.forking import register_for_forks
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_CLOCK = SystemClock()
REFUSAL_PAUSE = 30.0
"""Seconds before the next try if the store refused: servers lock out clients that try a wrong password too often."""


class StoreWait:
    """Tries to open something in the store, on its own thread, until that works or it is cancelled.

    Nothing runs unguarded meanwhile: calls that need the store raise, as always while the store is away.
    """

    def __init__(self, attempt: Callable[[], object], give_up: Callable[[], None], what: str, log: Logger) -> None:
        """Prepare; nothing is tried yet.

        Args:
            attempt: a single try; it raises ``StoreError`` while the store is not available.
            give_up: ends an attempt that is under way, or undoes it; called by ``cancel``.
            what: the thing that waits for the store, for the log: ``"this process's node"``.
            log: gets an ERROR for each cause, and a line when the store is available.
        """
        self._attempt = attempt
        self._give_up = give_up
        self._what = what
        self._log = log
        self._logged = ""
        self._over = Event()
        self._thread: threading.Thread | None = None

    @property
    def waits(self) -> bool:
        """Whether it still tries."""
        return self._thread is not None and not self._over.is_set()

    def start_waiting(self, error: StoreError) -> None:
        """Log the error, and go on trying in the background."""
        self._log_cause(error)
        self._thread = threading.Thread(target=self._try_until_over, name="cronsensus-store-wait", daemon=True)
        register_for_forks(self)
        atexit.register(self.cancel)
        self._thread.start()

    def cancel(self) -> None:
        """Stop trying. Returns when no attempt is under way, or after ``PATIENCE``; then the attempt undoes itself."""
        self._over.set()
        atexit.unregister(self.cancel)
        self._give_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def forked(self) -> None:
        """Stop waiting in a forked child, which has no thread for it; the parent goes on."""
        self._thread = None
        atexit.unregister(self.cancel)

    def _try_until_over(self) -> None:
        began, number, refused = _CLOCK.monotonic(), 0, False
        while not self._over.wait(REFUSAL_PAUSE if refused else pause_before(number := number + 1)):
            try:
                self._attempt()
            except StoreError as error:
                refused = not may_come(error)
                if refused:
                    self._log_cause(error)
            except CoordinationError as error:  # it was cancelled
                self._log.debug("%s", error)
                return
            except Exception:  # noqa: BLE001 - logged: there is no caller
                self._log.exception("%s does not come; restart this process when it is mended", self._what)
                break
            else:
                if not self._over.is_set():
                    self._log.info("the store answers after %.0f s: %s is here", _CLOCK.monotonic() - began, self._what)
                break
        self._over.set()
        atexit.unregister(self.cancel)

    def _log_cause(self, error: CronsensusError) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            self._log.error(
                "the store cannot be used (%s). This process goes on without %s, which comes when the store does; "
                "nothing runs unguarded meanwhile",
                error, self._what,
            )  # fmt: skip
