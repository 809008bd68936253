"""How a caller waits for the end of a run."""

from __future__ import annotations

from cronsensus.process.interrupts import Event
from cronsensus.timing.clock import SystemClock


class Waits:
    """Waits by the host's clock, while nodes work. A test that turns its nodes by hand puts another in its place."""

    def monotonic(self) -> float:
        """Return the clock by which a timeout is measured, in seconds."""
        return SystemClock().monotonic()

    def wait(self, seconds: float) -> None:
        """Block for so many seconds."""
        Event().wait(seconds)

    async def await_(self, seconds: float) -> None:
        """Wait for so many seconds, and hold no thread meanwhile."""
        import asyncio

        await asyncio.sleep(seconds)
