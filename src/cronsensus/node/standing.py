"""Take turns without a leader. Pure.

Every node may fire every job; the store lets one of them win. If all of them tried at the same instant, the losers
would only be in the winner's way. So for each due instant the live nodes stand in an order that all compute alike
(rendezvous hashing): the first goes at once, each later one a little after the one before, and finds that nothing is
left to do. If the first is dead or busy, the second is late by one ``STAGGER``, and nothing else is lost.

A crowd need not look at every due time. For each ``TERM`` the first ``ALERT`` nodes of an order of that term do; the
others rest: they look some seconds after, one after the other, so that the cluster never sleeps although each of them
does. If all who are alert die at the same moment, the first of the others is late by one ``REST_STEP``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cronsensus.instants import to_micros

STAGGER = timedelta(milliseconds=15)
LAST_PLACE = 6
"""Places after which all stand together; a crowd of stand-ins at the same moment is harmless, it only reads."""
ALERT = 4
"""Nodes that look at every due time."""
TERM = timedelta(seconds=10)
"""How long the same ones do. A run longer than that mostly does not meet the next one on the same node."""
REST_STEP = timedelta(milliseconds=500)
LONGEST_REST = timedelta(seconds=10)
IN_TIME = timedelta(milliseconds=500)
"""How long before its term a node looks, so that it knows what is due in it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_alert(session: str, sessions: Sequence[str], instant: datetime | None) -> bool:
    """Whether ``session`` is one of those that look at every due time in the term of ``instant``.

    ``None``: nothing is to come; the same ones are alert until something is.
    """
    return len(sessions) <= ALERT or _rank(session, sessions, _term(instant or _EPOCH)) < ALERT


def place(session: str, sessions: Sequence[str], instant: datetime) -> int:
    """Return how many of ``sessions`` stand before ``session`` for the work of ``instant``, the alert ones first."""
    awake, resting = _sides(sessions, instant)
    if is_alert(session, sessions, instant):
        return min(_rank(session, awake, instant), LAST_PLACE)
    return min(len(awake) + _rank(session, resting, instant), LAST_PLACE)


def head_start(session: str, sessions: Sequence[str], instant: datetime) -> timedelta:
    """Return how long ``session`` leaves the work of ``instant`` to the others."""
    return place(session, sessions, instant) * STAGGER


def rests_until(session: str, sessions: Sequence[str], instant: datetime) -> datetime:
    """Return when to look where the next due time is ``instant``: long after it, unless a term of its own begins."""
    _, resting = _sides(sessions, instant)
    until = instant + min((_rank(session, resting, instant) + 1) * REST_STEP, LONGEST_REST)
    term = _term(instant) + TERM
    while term < until:
        if is_alert(session, sessions, term):
            return max(instant + LAST_PLACE * STAGGER, term - IN_TIME)
        term += TERM
    return until


def _sides(sessions: Sequence[str], instant: datetime) -> tuple[Sequence[str], Sequence[str]]:
    """Return those who are alert at ``instant``, and those who rest."""
    if len(sessions) <= ALERT:
        return sessions, ()
    term = _term(instant)
    by_term = sorted(sessions, key=lambda session: _weight(session, term))
    return by_term[:ALERT], by_term[ALERT:]


def _term(instant: datetime) -> datetime:
    return instant - (instant - _EPOCH) % TERM


def _rank(session: str, sessions: Sequence[str], instant: datetime) -> int:
    mine = _weight(session, instant)
    return sum(_weight(other, instant) < mine for other in sessions if other != session)


def _weight(session: str, instant: datetime) -> bytes:
    return hashlib.blake2b(f"{session}:{to_micros(instant)}".encode(), digest_size=8).digest()
