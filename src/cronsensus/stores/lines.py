"""Standing in line for locks: how one who waits learns that a lock may be free.

Being told is a hint, never the truth: who is told tries, and may find that somebody was faster. A hint may also be lost
with the process that it was for, so who waits looks by itself as well, now and then.
"""

from __future__ import annotations

from cronsensus.interrupts import Event


class Line:
    """One process's place in the lines for any number of locks. This one hears nothing; other stores have their own.

    Who was told by an unlock is out of that line, and joins again if it still waits. ``hear`` by one thread at a time;
    the others by any.

    Attributes:
        tells_all: news reach all who stand in line, so nobody has to be told by who was told.
    """

    tells_all = False

    def __init__(self) -> None:
        self._closed = Event()

    def join(self, name: str) -> None:
        """Stand in line for a lock, at the end, if not in it already. Return when an unlock would be heard of."""

    def leave(self, name: str) -> None:
        """Stand in line no more."""

    def hear(self, timeout: float) -> list[str]:
        """Wait up to ``timeout`` seconds to be told of locks that may be free; return their names."""
        self._closed.wait(max(0.0, timeout))
        return []

    def close(self) -> None:
        """Leave all lines; ends a ``hear`` in another thread. Idempotent."""
        self._closed.set()
