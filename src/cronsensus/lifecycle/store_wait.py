"""Wait in the background for a store that is away, so that the application serves meanwhile."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from cronsensus.errors import CoordinationError, CronsensusError, StoreError
from cronsensus.lifecycle.starting import may_come, pause_before
from cronsensus.process.background import PATIENCE
from cronsensus.process.forking import mind_forks
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_CLOCK = SystemClock()
AFTER_A_REFUSAL = 30.0
"""Seconds before the next try where the store refused: servers lock out who tries a wrong password too often."""


class StoreWait:
    """Tries to open something in the store, on a thread of its own, until that works or nobody wants it any more.

    Nothing is done unguarded meanwhile: what needs the store raises, as it does whenever the store is away.
    """

    def __init__(self, attempt: Callable[[], object], give_up: Callable[[], None], what: str, log: Logger) -> None:
        """Begin nothing yet.

        Args:
            attempt: one try; it raises ``StoreError`` where the store is not to be had.
            give_up: has an attempt that is under way come to nothing, or undoes what it made; called by ``cancel``.
            what: comes when the store does, for the log: ``"this process's node"``.
            log: gets one ERROR for each cause, and a line when the store has come.
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
        """Log why there is nothing yet, and go on trying in the background."""
        self._log_cause(error)
        self._thread = threading.Thread(target=self._try_until_over, name="cronsensus-store-wait", daemon=True)
        mind_forks(self)
        atexit.register(self.cancel)
        self._thread.start()

    def cancel(self) -> None:
        """Try no more. Returns when nothing is under way, or after ``PATIENCE``; then that undoes itself."""
        self._over.set()
        atexit.unregister(self.cancel)
        self._give_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def forked(self) -> None:
        """Leave the waiting to the parent; a child has no thread for it."""
        self._thread = None
        atexit.unregister(self.cancel)

    def _try_until_over(self) -> None:
        since, number, refused = _CLOCK.monotonic(), 0, False
        while not self._over.wait(AFTER_A_REFUSAL if refused else pause_before(number := number + 1)):
            try:
                self._attempt()
            except StoreError as error:
                refused = not may_come(error)
                if refused:
                    self._log_cause(error)
            except CoordinationError as error:  # it was asked to stop, which it was told by giving up
                self._log.debug("%s", error)
                return
            except Exception:  # noqa: BLE001 - logged: nobody else hears of it
                self._log.exception("%s does not come; restart this process when it is mended", self._what)
                break
            else:
                if not self._over.is_set():
                    self._log.info("the store answers after %.0f s: %s is here", _CLOCK.monotonic() - since, self._what)
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
