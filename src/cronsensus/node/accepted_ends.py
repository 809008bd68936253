"""The ends of runs that the store has accepted from a node, kept for a while.

A store may lose its last moment after it has answered: a failover to a standby that lags, a restart from a snapshot, a
restored backup. Then a run is *running* again whose end it had accepted. A node that still knows the end sends it
again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cronsensus.membership.loss import ENDS_KEPT
from cronsensus.model.ends import End, Final
from cronsensus.model.step import GiveBack
from cronsensus.timing.clock import Clock

MOST_TEXT_CHARACTERS = 32_000_000
"""Most characters of results and tracebacks that are kept; beyond, the oldest ends are dropped."""
MOST_ENDS = 100_000
"""Most ends that are kept, some 50 MB; at more than 1,700 per second that is less than a minute."""

Key = tuple[int, int]
"""Occurrence and token."""


class _AcceptedEnd(NamedTuple):
    at: float
    end: End | GiveBack
    characters: int


class AcceptedEnds:
    """The ends that the store has accepted from this node; the latest of each run.

    ``remember_end`` belongs to the thread of the node's rounds; any thread may read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[Key, _AcceptedEnd] = {}
        self._order: deque[tuple[float, Key]] = deque()
        self._text = 0
        self._final_ends: dict[int, End] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether the end of this run is still known."""
        return key in self._ends

    def keys(self) -> set[Key]:
        """Return the runs whose end is still known."""
        return set(self._ends)

    def remember_end(self, key: Key, end: End | GiveBack) -> None:
        """Remember that the store has just accepted an end."""
        now = self._clock.monotonic()
        if key in self._ends:
            self.pop_end(key)
        accepted = _AcceptedEnd(now, end, _text_length(end))
        self._ends[key] = accepted
        if isinstance(end, End) and isinstance(end.then, Final):
            self._final_ends[key[0]] = end
        self._order.append((now, key))
        self._text += accepted.characters
        while self._order and (
            now - self._order[0][0] > ENDS_KEPT or self._text > MOST_TEXT_CHARACTERS or len(self._order) > MOST_ENDS
        ):
            at, oldest = self._order.popleft()
            remembered = self._ends.get(oldest)
            if remembered is not None and remembered.at == at:
                self.pop_end(oldest)

    def accepted_at(self, key: Key) -> float | None:
        """Return when the store accepted the end (monotonic seconds); ``None`` if it is not remembered."""
        remembered = self._ends.get(key)
        return None if remembered is None else remembered.at

    def has_ended(self, occurrence: int, session: str) -> bool:
        """Whether the store has accepted a final end of an occurrence from this session."""
        remembered = self._final_ends.get(occurrence)
        return remembered is not None and remembered.session == session

    def pop_end(self, key: Key) -> End | GiveBack | None:
        """Remove and return the end of a run."""
        remembered = self._ends.pop(key, None)
        if remembered is None:
            return None
        self._text -= remembered.characters
        if self._final_ends.get(key[0]) is remembered.end:
            del self._final_ends[key[0]]
        return remembered.end


def _text_length(end: End | GiveBack) -> int:
    if isinstance(end, GiveBack):
        return 0
    error = 0 if end.error is None else len(end.error.message) + len(end.error.traceback)
    return len(end.then.result or "" if isinstance(end.then, Final) else "") + error
