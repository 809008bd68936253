"""Turn order, active set and partitions: what all nodes compute alike, without a leader and without a message. Pure.

Every node may fire every job; the store lets one of them win. If all tried at the same instant, the losers would only
add contention. So for each due time the live nodes are put into an order by rendezvous hashing: the first goes at once,
each later one ``STAGGER`` after the one before, and usually finds nothing left to do. If the first is dead or busy, the
second is late by one ``STAGGER``, and nothing else is lost.

Of many nodes only the first ``ACTIVE`` in an order of each ``TERM`` look at every due time. The others are in idle
mode: they look some seconds later, one after the other, so that the cluster never sleeps although each of them does.
If the whole active set dies in one moment, the first idle node is late by one ``IDLE_STEP``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cronsensus.instants import to_micros
from cronsensus.stores.values import Partition

STAGGER = timedelta(milliseconds=15)
"""How long each node leaves a due time to the node before it in turn order."""
LAST_PLACE = 6
"""From this place on all nodes go at the same time; they only read, so that does no harm."""
ACTIVE = 4
"""Nodes in the active set: they look at every due time. The others are in idle mode."""
TERM = timedelta(seconds=10)
"""How long the active set stays the same. A longer run mostly meets the next one of its job on another node."""
IDLE_STEP = timedelta(milliseconds=500)
"""How long after a due time the first idle node looks, and how much later each further one does."""
LONGEST_IDLE = timedelta(seconds=10)
SWEEP = timedelta(seconds=5)
"""Time between two looks of an active node at all that is parked, while anything is."""
LONGEST_TERMS = 18
"""Terms after which a node asks again whether it belongs to the active set, however many nodes there are."""
IN_TIME = timedelta(milliseconds=500)
"""How long before its own term in the active set a node looks, so that it knows what is due in it."""
LOOKOUT = timedelta(milliseconds=350)
"""How long after one node the next one looks, where nothing happens and the store does not notify. A node that dies
leaves a gap of two such times, and whether it shows a sign of life takes a moment more: a second in all."""
POLL_UNTOLD = timedelta(seconds=2)
"""Most time between two looks of one node then: work may wait that only this node can do."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_active(session: str, sessions: Sequence[str], instant: datetime | None) -> bool:
    """Whether ``session`` is in the active set in the term of ``instant``.

    ``None``: nothing is to come, and the set stays the same until something is.
    """
    return len(sessions) <= ACTIVE or _rank(session, sessions, _term(instant or _EPOCH)) < ACTIVE


def place(session: str, sessions: Sequence[str], instant: datetime) -> int:
    """Return how many of ``sessions`` go before ``session`` at ``instant``: the active set goes first."""
    active, idle = _sets(sessions, instant)
    if is_active(session, sessions, instant):
        return _rank(session, active, instant)
    return min(len(active) + _rank(session, idle, instant), LAST_PLACE)


def turn(session: str, sessions: Sequence[str], instant: datetime) -> datetime:
    """Return when it is the turn of ``session`` for what is due at ``instant``."""
    return instant + place(session, sessions, instant) * STAGGER


def idle_until(session: str, sessions: Sequence[str], instant: datetime) -> datetime:
    """Return when an idle node looks where ``instant`` is due: long after it, or before a term of its own begins."""
    _, idle = _sets(sessions, instant)
    until = instant + min((_rank(session, idle, instant) + 1) * IDLE_STEP, LONGEST_IDLE)
    term = _term(instant) + TERM
    while term < until:
        if is_active(session, sessions, term):
            return max(instant + LAST_PLACE * STAGGER, term - IN_TIME)
        term += TERM
    return until


def next_sweep(session: str, sessions: Sequence[str], now: datetime) -> datetime:
    """Return when ``session`` next sees to what is parked: every ``SWEEP`` in the active set, else in a later term.

    By the terms of ``now`` and not of what is due next: so each node has its turn, also one that alone has a job.
    """
    at, last = now + SWEEP, now + LONGEST_TERMS * TERM
    while at < last and not is_active(session, sessions, at):
        at = _term(at) + TERM
    return at


def lookout(session: str, sessions: Sequence[str], now: datetime) -> timedelta:
    """Return how long it is until ``session`` has its turn to look, where nothing happens and there are no hints."""
    if len(sessions) < 2 or session not in sessions:
        return POLL_UNTOLD
    every = min(len(sessions) * LOOKOUT, POLL_UNTOLD)
    at = every * sessions.index(session) / len(sessions)
    # A turn that comes right after a look is left out.
    return (at - (now + LOOKOUT / 2 - _EPOCH)) % every + LOOKOUT / 2


def partition_of(session: str, sessions: Sequence[str]) -> Partition:
    """Return the partition of ``session`` among live ``sessions``; all jobs, if a look does not show it."""
    return Partition(sessions.index(session), len(sessions)) if session in sessions else Partition(0, 1)


def _sets(sessions: Sequence[str], instant: datetime) -> tuple[Sequence[str], Sequence[str]]:
    if len(sessions) <= ACTIVE:
        return sessions, ()
    term = _term(instant)
    by_term = sorted(sessions, key=lambda session: _weight(session, term))
    return by_term[:ACTIVE], by_term[ACTIVE:]


def _term(instant: datetime) -> datetime:
    return instant - (instant - _EPOCH) % TERM


def _rank(session: str, sessions: Sequence[str], instant: datetime) -> int:
    mine = _weight(session, instant)
    return sum(_weight(other, instant) < mine for other in sessions if other != session)


def _weight(session: str, instant: datetime) -> bytes:
    return hashlib.blake2b(f"{session}:{to_micros(instant)}".encode(), digest_size=8).digest()
