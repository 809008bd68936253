"""What the server has to do for what is measured: for all libraries the same four counts."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.places import Places, Redis

WATCHED = 10
"""Seconds of MONITOR, after those that are timed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the server is asked for each second, idle nodes included.

    Attributes:
        sent: statements by clients.
        executed: the same, and on Redis the commands inside scripts too.
        round_trips: how often a client waited for the network; 0: not counted, since there was none.
        milliseconds: of the server's processor.
    """

    sent: float
    executed: float
    round_trips: float
    milliseconds: float


class Meter:
    """Begins to count when it is made, and says what each second cost."""

    def __init__(self, places: Places, url: str) -> None:
        self._places, self._url = places, url
        self._begun = time.monotonic()
        self._before = self._read()

    def _read(self) -> tuple[int, int, float]:
        places = self._places
        executed = places.executed() if isinstance(places, Redis) else places.sent(self._url)
        return executed, places.round_trips(), places.processor()

    def read(self, watch: float = WATCHED) -> Cost:
        """Return the costs of each second since the beginning; on Redis watch some more seconds for what is sent."""
        seconds = time.monotonic() - self._begun
        executed, trips, spent = (
            (after - before) / seconds for after, before in zip(self._read(), self._before, strict=True)
        )
        places = self._places
        sent = places.watch(self._url, watch)[0] / watch if isinstance(places, Redis) else executed
        return Cost(sent, executed, trips, spent * 1000)
