"""The runs of the last day, kept in the process: a page reads only those that ended since the page before."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.model.glance import Glance
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock, SystemClock

MOST_ENDED = 1_500
"""Ended runs that are kept at most, the newest: each costs some 10 µs to read, and as much to draw."""
_OVERLAP = timedelta(seconds=30)
"""How much later an end may become visible than another end that was written after it."""
_REFRESH_SECONDS = 60.0
"""Seconds after which all is read anew, because runs may be pruned or forgotten."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Running occurrences, and those that ended since a moment, the newest first; ``whole``: these are all."""

    glances: tuple[Glance, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    at: datetime
    read_anew_at: float
    ended: dict[int, Glance]
    complete: bool


class Recent:
    """Reads recent runs. Safe to share between threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty."""
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def read_ran(self, store: Store, now: datetime, since: datetime) -> Ran:
        """Return the runs that go on, and those that ended since then.

        Args:
            store: where they are; the same at each call.
            now: its clock, read before this.
            since: a moment that does not go back from call to call by more than its clock does.
        """
        with self._lock:
            kept, monotonic = self._kept, self._clock.monotonic()
            read_all = kept is None or monotonic >= kept.read_anew_at or now < kept.at
            read_from = since if kept is None or read_all else max(since, kept.at - _OVERLAP)
            glances = store.ran_since(read_from, limit=MOST_ENDED)
            fresh = {glance.id: glance for glance in glances if glance.state.final}
            if kept is None or read_all or len(glances) >= MOST_ENDED:  # there is a gap between what is kept and this
                self._kept = kept = _Kept(now, monotonic + _REFRESH_SECONDS, fresh, len(glances) < MOST_ENDED)
            else:
                merged = {number: glance for number, glance in (kept.ended | fresh).items() if _ended(glance) >= since}
                newest = sorted(merged, reverse=True)[:MOST_ENDED]
                complete = kept.complete and len(newest) == len(merged)
                self._kept = kept = _Kept(
                    now, kept.read_anew_at, {number: merged[number] for number in newest}, complete
                )
        # A run that had ended may run again: the newer reading holds.
        by_id = kept.ended | {glance.id: glance for glance in glances}
        return Ran(tuple(by_id[number] for number in sorted(by_id, reverse=True)), kept.complete)


def _ended(glance: Glance) -> datetime:
    return glance.finished_at or glance.created_at
