"""The order in which nodes act on a due time; all nodes compute it alike, without a leader or messages. Pure.

Every node may fire every job; the store lets only one of them win. If all tried at the same instant, the losers would
only add contention. So for each due time the live nodes are ordered by rendezvous hashing, and each has its turn:

=====================  ==================================================
place                  its turn
=====================  ==================================================
0                      the lead time *before* the due time
1 … ``IN_FRONT`` - 1   ``STAGGER`` after it, and as much later each
further back           ``LATE_STEP`` after it, and as much later each
=====================  ==================================================

The same nodes are in front for a ``TERM``, so that the others can sleep. Which of them is first differs from one due
time to the next, so that runs are spread. If the first is dead or busy, the second is late by a ``STAGGER``. If all in
front die in the same moment, the next node is usually late by a ``LATE_STEP``; by several if a term has just begun,
because it sleeps by its place in the previous term.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cronsensus.timing.instants import to_micros

STAGGER = timedelta(milliseconds=15)
"""How long each node leaves a due time to the node before it."""
IN_FRONT = 4
"""The number of nodes in front, which act on every due time."""
TERM = timedelta(seconds=10)
"""How long the same nodes are in front. After longer runs, the next run of a job is usually on another node."""
LATE_STEP = timedelta(milliseconds=500)
LATEST_TURN = timedelta(seconds=10)
"""How long after a due time the last of all nodes looks."""
LAST_STAGGERED_PLACE = 6
"""From this place on, nodes have the same turn if the store does not notify: they only read, so that does no harm."""
LOOK_BEFORE_TERM = timedelta(milliseconds=500)
"""How long before its own term in front a node looks, so that it knows what is due in it."""
SWEEP_EVERY = timedelta(seconds=5)
"""Time between two sweeps of parked occurrences by a node in front, while there are any."""
MOST_TERMS = 18
"""Terms after which a node checks again whether it is in front, with any number of nodes."""
LOOKOUT = timedelta(milliseconds=350)
"""How long after a node the next one looks, if nothing happens and the store does not notify. A node that dies leaves a
gap of two such times, and the check for its sign of life takes a moment more: a second in all."""
POLL_WITHOUT_NOTIFICATIONS = timedelta(seconds=2)
"""Most time between two looks of a node then: there may be work that only this node can do."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=256)  # of a herd, hundreds are due in one moment
def place_of(session: str, sessions: tuple[str, ...], instant: datetime) -> int:
    """Return how many of ``sessions`` go before ``session`` at ``instant``."""
    if session not in sessions:
        return len(sessions)
    by_term = _order_sessions(sessions, _term_of(instant)) if len(sessions) > IN_FRONT else sessions
    front = by_term[:IN_FRONT]
    return _order_sessions(front, instant).index(session) if session in front else by_term.index(session)


def is_in_front(session: str, sessions: tuple[str, ...], instant: datetime | None) -> bool:
    """Whether ``session`` is among the first in turn order at ``instant``; ``None`` for no due time."""
    return place_of(session, sessions, instant or _EPOCH) < IN_FRONT


def turn_of(
    session: str,
    sessions: tuple[str, ...],
    instant: datetime,
    *,
    lead: timedelta = timedelta(0),
    hears_notifications: bool = True,
) -> datetime:
    """Return when it is the turn of ``session`` for what is due at ``instant``.

    Without notifications (``hears_notifications``) all nodes act like those in front: each learns of work only by its
    own looks.
    """
    place = place_of(session, sessions, instant)
    if place == 0:
        return instant - lead
    if place < IN_FRONT or not hears_notifications:
        return instant + min(place, LAST_STAGGERED_PLACE) * STAGGER
    at = instant + min((place - IN_FRONT + 1) * LATE_STEP, LATEST_TURN)
    term = _term_of(instant) + TERM
    while term < at:
        if is_in_front(session, sessions, term):
            return max(instant + IN_FRONT * STAGGER, term - LOOK_BEFORE_TERM)
        term += TERM
    return at


def next_sweep(session: str, sessions: tuple[str, ...], now: datetime) -> datetime:
    """Return when ``session`` next sweeps parked occurrences: each ``SWEEP_EVERY`` in front, else in a later term.

    It follows the terms of ``now``, not of the next due time, so that each node has its turn, also the only node that
    has a job.
    """
    at, latest = now + SWEEP_EVERY, now + MOST_TERMS * TERM
    while at < latest and not is_in_front(session, sessions, at):
        at = _term_of(at) + TERM
    return at


def seconds_to_lookout(session: str, sessions: tuple[str, ...], now: datetime) -> timedelta:
    """Return the time until the turn of ``session`` to look, if nothing happens and nothing notifies it."""
    if len(sessions) < 2 or session not in sessions:
        return POLL_WITHOUT_NOTIFICATIONS
    every = min(len(sessions) * LOOKOUT, POLL_WITHOUT_NOTIFICATIONS)
    at = every * sessions.index(session) / len(sessions)
    # A turn that comes right after a look is left out.
    return (at - (now + LOOKOUT / 2 - _EPOCH)) % every + LOOKOUT / 2


def _term_of(instant: datetime) -> datetime:
    return instant - (instant - _EPOCH) % TERM


def _order_sessions(sessions: Sequence[str], instant: datetime) -> list[str]:
    return sorted(sessions, key=lambda session: _session_weight(session, instant))


def _session_weight(session: str, instant: datetime) -> bytes:
    return hashlib.blake2b(f"{session}:{to_micros(instant)}".encode(), digest_size=8).digest()
