"""Whether a session is alive, how that is known, and since when it is not."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from cronsensus.insight.sentences import Clause, Sentence
from cronsensus.model.session import SessionView
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

if TYPE_CHECKING:
    from cronsensus.membership.liveness import ProcessState

LATELY = timedelta(seconds=30)
"""A session that holds nothing, and of which only its renewals tell, is known to be alive for so long after each."""
_LONGEST_PAUSE = 2.0
_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of a session that has not ended.

    Attributes:
        state: ``unknown``: it is in time with its lease, and nothing tells whether it still lives.
        known_by: the kernel of this host, the store's server, or nothing but the lease.
        seen: how long ago it was last known to live.
        sentence: the same in words.
    """

    state: Literal["alive", "stopped", "gone", "unknown"]
    known_by: Literal["process", "connection", "lease"]
    seen: timedelta
    sentence: Sentence

    @property
    def is_alive(self) -> bool:
        """Whether it is known to be alive."""
        return self.state == "alive"


def life_of(one: SessionView, now: datetime, *, sign: bool | None, process: ProcessState | None) -> Life:
    """Return what is known of a session that has not ended.

    A lease that ran out is the end of a session, whatever its process does. Else the kernel's word counts more than the
    server's, which takes a process that is stopped for one that runs, and the server's more than a renewal.

    Args:
        one: its row.
        now: the store's clock.
        sign: whether the server shows its sign of life; ``None``: nothing can be told by that.
        process: what the kernel says; ``None``: it cannot be asked.
    """
    renewed = max(now - one.renewed_at, _NO_TIME)
    lives, ago = _lives(one), _ago(renewed)
    if process == "stopped":
        return Life("stopped", "process", renewed, Clause.STOPPED(ago=ago))
    if process == "gone":
        return Life("gone", "process", renewed, Clause.PROCESS_ENDED(ago=ago))
    if one.expires_in <= _NO_TIME or one.state not in {"alive", "draining"}:
        overdue = max(-one.expires_in, _NO_TIME)
        return Life("gone", "lease", renewed, Clause.PAST_ITS_LEASE(overdue=overdue, ago=ago))
    if process == "runs":
        return Life("alive", "process", _NO_TIME, Clause.PROCESS_RUNS(lives=lives))
    if sign is not None:
        if sign:
            return Life("alive", "connection", _NO_TIME, Clause.CONNECTED(lives=lives))
        return Life("gone", "connection", renewed, Clause.CONNECTIONS_ENDED(ago=ago))
    if one.holds or renewed <= LATELY:
        return Life("alive", "lease", renewed, Clause.SEEN(lives=lives, ago=ago))
    return Life("unknown", "lease", renewed, Clause.UNKNOWN(ago=ago))


def _lives(one: SessionView) -> Sentence:
    state = Clause.DRAINING() if one.state == "draining" else Clause.ALIVE()
    return state if one.holds else Clause.IDLE(state=state)


def _ago(duration: timedelta) -> Sentence:
    if duration < timedelta(seconds=1):
        return Clause.NOW()
    return Clause.AGO(time=timedelta(seconds=round(duration.total_seconds())))


def lives_of(store: Store, sessions: Iterable[SessionView]) -> dict[str, Life]:
    """Return what is known of those of ``sessions`` that have not ended, by their ids.

    The store is asked for its clock, and for signs of life of those that the kernel of this host knows nothing of.
    """
    from cronsensus.membership.liveness import process_state  # psutil, for which no help text should wait

    there = [one for one in sessions if one.ended_at is None]
    if not there:
        return {}
    processes = {one.id: process_state(one.host, one.pid, one.pid_started) for one in there}
    signs = _signs(store, [one.id for one in there if processes[one.id] is None and one.expires_in > _NO_TIME])
    now = store.now()
    return {one.id: life_of(one, now, sign=signs.get(one.id), process=processes[one.id]) for one in there}


def _signs(store: Store, sessions: Collection[str]) -> Mapping[str, bool]:
    """Return which sessions show their sign; one missing is asked for twice, as a living node that was cut returns."""
    from cronsensus.membership.liveness import ABSENT_FOR, JOURNEYS

    clock = SystemClock()
    asked_at = clock.monotonic()
    signs = store.signs(sessions)
    missed = [session for session, shown in signs.items() if not shown]
    if missed:
        pause = ABSENT_FOR + JOURNEYS * (clock.monotonic() - asked_at)
        threading.Event().wait(min(pause, _LONGEST_PAUSE))
        again = store.signs(missed)
        signs = {session: shown for session, shown in signs.items() if shown or session in again} | again
    return signs
