"""Log and slow down the senders of wrong passwords."""

from __future__ import annotations

from collections import OrderedDict

from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

FREE_GUESSES = 20
"""Wrong passwords of an address after which its next passwords wait."""
PAUSE_SECONDS = 1.0
"""Seconds that they wait before they are compared. The right password waits, too, or the wait would reveal it."""
FORGET_AFTER = 600.0
"""Seconds without a wrong password after which an address is forgotten."""
_MOST_ADDRESSES = 1_000
_log = Logger("cronsensus.dashboard")


class Guesses:
    """Counts wrong passwords by address. All that comes through a proxy has the proxy's address."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def pause_for(self, address: str) -> float:
        """Return how many seconds a password from ``address`` waits before it is compared."""
        return PAUSE_SECONDS if self._count(address) >= FREE_GUESSES else 0.0

    def note_wrong(self, address: str) -> None:
        """Count a wrong password; log the 1st, 2nd, 4th, 8th … of an address, so that nobody can fill the log."""
        count = self._count(address) + 1
        self._wrong[address] = count, self._clock.monotonic()
        self._wrong.move_to_end(address)
        while len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)
        if count & (count - 1) == 0:
            note = f"; its next ones wait {PAUSE_SECONDS:g} s" if count >= FREE_GUESSES else ""
            _log.warning("a wrong password for the dashboard from %s: %d lately%s", address, count, note)

    def _count(self, address: str) -> int:
        count, at = self._wrong.get(address, (0, 0.0))
        return count if self._clock.monotonic() - at < FORGET_AFTER else 0
