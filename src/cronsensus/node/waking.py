"""When to look again: what a node knows of the time ahead.

No clock and no thread: instants are the store's, as a view gave them, and the answer is a number of seconds from that
view.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from cronsensus.logger import Logger
from cronsensus.node.standing import head_start, is_alert, rests_until
from cronsensus.stores.values import View

_log = Logger("cronsensus.node")

IDLE = 180.0
"""Most seconds between looks when nothing runs and nothing is due, where the store tells nodes of what comes."""
UNTOLD = 2.0
"""The same where it cannot tell them."""
AFTER_A_LOST_RACE = 0.002
"""Seconds until a job that another node fired is looked at again; doubles with each race lost in a row."""
STEP_NOTICED = timedelta(seconds=5)
"""A store's clock that moved this much more or less than time passed was set; that is worth a line in the log."""
MOST_DOUBLINGS = 10


def after_trouble(troubles: int, bounds: tuple[float, float], who: str) -> float:
    """Return the seconds to wait after the last of so many failures in a row: longer each time, and differently long.

    All nodes lose a server in the same instant. ``who`` spreads them over the last half of the wait, or they would all
    knock at once, each time again. A hash, not chance: a simulation is played again from its seed.
    """
    first, longest = bounds
    wait = min(longest, first * 2.0 ** min(troubles, MOST_DOUBLINGS))
    lot = int.from_bytes(hashlib.blake2b(f"{who} {troubles}".encode(), digest_size=4).digest())
    return wait * (0.5 + lot / 2**33)


class Waking:
    """What the rounds so far tell about the next one.

    Attributes:
        lost_in_a_row: races that this node lost one after the other.
        fruitless: rounds in a row in which something waited and nothing of it was for this node.
        ours: the next time at which a job is due, if this node is the first to fire it.
        resting: whether this node leaves the next due time, and what runs meanwhile, to others.
        watch_from: the seconds from the view to when somebody may run something; ``None``: not as far as is known.
    """

    def __init__(self) -> None:
        self.lost_in_a_row = 0
        self.fruitless = 0
        self.ours: datetime | None = None
        self.resting = False
        self.watch_from: float | None = None
        self._expected: datetime | None = None
        self._last_reading: tuple[float, datetime] | None = None

    def left_to_others(self, session: str, view: View) -> timedelta:
        """Return how long this node still leaves what is due to those who stand before it; negative: no longer."""
        if self._expected is None or self._expected > view.now:
            return timedelta(0)
        return self._turn(session, view, self._expected) - view.now

    def wait(
        self,
        session: str,
        view: View,
        not_yet: timedelta,
        coming: datetime | None,
        *,
        free: bool,
        watch: float,
        told: bool = True,
    ) -> float:
        """Return the seconds after ``view`` until something wants this node.

        Args:
            session: this node's.
            view: what it saw.
            not_yet: how long it leaves what is due to others.
            coming: when the next of what it fired itself is due.
            free: whether it could run one more.
            watch: seconds between looks at what others run.
            told: whether hints reach this node.
        """
        self.ours = None
        waits = [IDLE if told else UNTOLD]
        if self.lost_in_a_row:
            waits.append(AFTER_A_LOST_RACE * 2.0 ** min(self.lost_in_a_row, MOST_DOUBLINGS))
        if not_yet > timedelta(0) and (view.due or view.backlog):
            waits.append(not_yet.total_seconds())
        else:
            times = (view.next_job, view.next_pending, coming)
            self._expected = min((at for at in times if at is not None), default=None)
            self.resting = told and not is_alert(session, view.sessions, self._expected)
            if self._expected is not None:
                if self.resting:
                    turn = rests_until(session, view.sessions, self._expected)
                else:
                    turn = self._turn(session, view, self._expected)
                waits.append((turn - view.now).total_seconds())
                if turn == self._expected and self._expected in {view.next_job, coming}:
                    self.ours = self._expected
        others = [holder.expires_in.total_seconds() for holder in view.holders if holder.id != session]
        waits += [max(0.0, left) + watch if self.resting else min(watch, max(0.0, left)) for left in others]
        comes = None if self._expected is None else (self._expected - view.now).total_seconds()
        self.watch_from = 0.0 if others else comes
        if not_yet <= timedelta(0) and view.backlog and free:
            # What waits and is not for this node to claim: blocked behind a run, or nobody here has the function.
            waits.append(watch * 2.0 ** min(max(0, self.fruitless - 1), MOST_DOUBLINGS))
        return min(waits)

    def compare_clocks(self, read_at: float, now: datetime) -> None:
        """Say so when the store's clock was set: ahead is downtime, back is a delay; neither repeats anything."""
        if self._last_reading is not None:
            passed = timedelta(seconds=read_at - self._last_reading[0])
            moved = now - self._last_reading[1]
            if abs(moved - passed) > STEP_NOTICED:
                way = "ahead" if moved > passed else "back"
                by = abs(moved - passed)
                _log.warning("the store's clock was set %s by %s: due times follow it, nothing is repeated", way, by)
        self._last_reading = (read_at, now)

    @staticmethod
    def _turn(session: str, view: View, instant: datetime) -> datetime:
        return instant + head_start(session, view.sessions, instant)
