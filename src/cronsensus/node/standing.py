"""Take turns without a leader. Pure. Floor 4.

Every node may fire every job; the store lets one of them win. If all of them tried at the same instant, the losers
would only be in the winner's way. So for each due instant the live nodes stand in an order that all compute alike
(rendezvous hashing): the first goes at once, each later one a little after the one before, and finds that nothing is
left to do. If the first is dead or busy, the second is late by one ``STAGGER``, and nothing else is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from cronsensus.instants import to_micros

STAGGER = timedelta(milliseconds=15)
LAST_PLACE = 8
"""Places after which all stand together; a crowd of stand-ins at the same moment is harmless, it only reads."""


def place(session: str, sessions: Sequence[str], instant: datetime) -> int:
    """Return how many of ``sessions`` stand before ``session`` for the work of ``instant``."""
    mine = _weight(session, instant)
    return min(sum(_weight(other, instant) < mine for other in sessions if other != session), LAST_PLACE)


def head_start(session: str, sessions: Sequence[str], instant: datetime) -> timedelta:
    """Return how long ``session`` leaves the work of ``instant`` to the others."""
    return place(session, sessions, instant) * STAGGER


def _weight(session: str, instant: datetime) -> bytes:
    return hashlib.blake2b(f"{session}:{to_micros(instant)}".encode(), digest_size=8).digest()
