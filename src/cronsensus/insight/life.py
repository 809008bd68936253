"""Whether a session is alive, by which evidence, and when it was last known to live."""

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

IDLE_ALIVE_FOR = timedelta(seconds=30)
"""How long after a renewal an idle session counts as alive, if its renewals are the only evidence."""
_LONGEST_PAUSE = 2.0
_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of a session that has not ended.

    Attributes:
        state: ``unknown``: its lease has not run out, and there is no evidence that it still lives.
        known_by: the evidence: the kernel of this host, the store's server, or only the lease.
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


def life_of(session: SessionView, now: datetime, *, sign: bool | None, process: ProcessState | None) -> Life:
    """Return what is known of a session that has not ended.

    A session whose lease ran out is gone, whatever its process does. Otherwise the kernel's evidence counts most,
    because the server takes a stopped process for a running one. The server's evidence counts more than a renewal.

    Args:
        session: its row.
        now: the store's clock.
        sign: whether the server shows its sign of life; ``None``: there is no such evidence.
        process: the state of its process by the kernel; ``None``: this host does not see it.
    """
    renewed = max(now - session.renewed_at, _NO_TIME)
    lives, ago = _lives(session), _ago(renewed)
    if process == "stopped":
        return Life("stopped", "process", renewed, Clause.STOPPED(ago=ago))
    if process == "gone":
        return Life("gone", "process", renewed, Clause.PROCESS_ENDED(ago=ago))
    if session.expires_in <= _NO_TIME or session.state not in {"alive", "draining"}:
        overdue = max(-session.expires_in, _NO_TIME)
        return Life("gone", "lease", renewed, Clause.PAST_ITS_LEASE(overdue=overdue, ago=ago))
    if process == "runs":
        return Life("alive", "process", _NO_TIME, Clause.PROCESS_RUNS(lives=lives))
    if sign is not None:
        if sign:
            return Life("alive", "connection", _NO_TIME, Clause.CONNECTED(lives=lives))
        return Life("gone", "connection", renewed, Clause.CONNECTIONS_ENDED(ago=ago))
    if session.holds or renewed <= IDLE_ALIVE_FOR:
        return Life("alive", "lease", renewed, Clause.SEEN(lives=lives, ago=ago))
    return Life("unknown", "lease", renewed, Clause.UNKNOWN(ago=ago))


def _lives(session: SessionView) -> Sentence:
    state = Clause.DRAINING() if session.state == "draining" else Clause.ALIVE()
    return state if session.holds else Clause.IDLE(state=state)


def _ago(duration: timedelta) -> Sentence:
    if duration < timedelta(seconds=1):
        return Clause.NOW()
    return Clause.AGO(time=timedelta(seconds=round(duration.total_seconds())))


def lives_of(store: Store, sessions: Iterable[SessionView]) -> dict[str, Life]:
    """Return what is known of each session that has not ended, by id.

    It reads the store's clock, and the signs of life of sessions whose process this host does not see.
    """
    from cronsensus.membership.liveness import process_state  # psutil, for which no help text should wait

    open_sessions = [session for session in sessions if session.ended_at is None]
    if not open_sessions:
        return {}
    processes = {session.id: process_state(session.host, session.pid, session.pid_started) for session in open_sessions}
    signs = _signs(
        store,
        [session.id for session in open_sessions if processes[session.id] is None and session.expires_in > _NO_TIME],
    )
    now = store.now()
    return {
        session.id: life_of(session, now, sign=signs.get(session.id), process=processes[session.id])
        for session in open_sessions
    }


def _signs(store: Store, sessions: Collection[str]) -> Mapping[str, bool]:
    """Return which sessions show their sign of life. A missing sign is read twice: a node that was cut off returns."""
    from cronsensus.membership.liveness import ABSENT_FOR, ROUND_TRIPS

    clock = SystemClock()
    read_at = clock.monotonic()
    signs = store.signs(sessions)
    missing = [session for session, shown in signs.items() if not shown]
    if missing:
        pause = ABSENT_FOR + ROUND_TRIPS * (clock.monotonic() - read_at)
        threading.Event().wait(min(pause, _LONGEST_PAUSE))
        second_signs = store.signs(missing)
        signs = {session: shown for session, shown in signs.items() if shown or session in second_signs} | second_signs
    return signs
