"""What the judge writes down of jobs, occurrences and sessions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cronsensus.model.job import JobSpec
from cronsensus.model.states import SERIAL_ORIGINS, Origin, State
from cronsensus.node.lead_time import EARLY_SLACK, LEAST_AND_MOST_LEAD, LONGEST_LEAD, MOST_ROUND_TRIPS, RESERVE_FACTOR
from cronsensus.triggers import Trigger
from tests.simulation.cluster.clocks import SECOND, START

MICROSECOND = timedelta(microseconds=1)
LONG_BEFORE = START - timedelta(days=400)
FUZZ = 1000
"""Microseconds within which the store's floats and the judge's integers may differ about the end of a lease."""


def most_early(ahead: timedelta, drift: float) -> int:
    """Return by how many microseconds a run that was claimed ``ahead`` may begin too soon on a clock that runs fast.

    A node waits by its monotonic clock from a reading of the store's: that of the claim, which is no further from the
    due time than ``ahead``, or that of a look, which is no further than the longest lead time. A clock that counts
    ``1 + drift`` seconds in one ends a wait of W seconds by less than ``W * drift`` too soon, and by nothing else does
    a run begin early. ``ahead`` tells how long the longest lead time can be: ``MOST_ROUND_TRIPS`` round trips, and the
    lead time is at least ``2 * RESERVE_FACTOR`` of one where it is not the longest itself.
    """
    wait = min(
        max(LEAST_AND_MOST_LEAD[1], ahead.total_seconds() * MOST_ROUND_TRIPS / (2 * RESERVE_FACTOR)),
        LONGEST_LEAD + EARLY_SLACK,
    )
    return math.ceil(wait * drift * SECOND)


def to_micros(duration: timedelta) -> int:
    """Return a duration in microseconds."""
    return round(duration.total_seconds() * SECOND)


@dataclass(slots=True, eq=False)
class Record:
    """An occurrence.

    Attributes:
        created: place in the order of creation.
        once: begun under ``on_crash="fail"``.
        begun: tokens under which work began that must not begin again.
        answers: what the store answered to each token that it accepted.
        begins: when its last claim may begin to run, true microseconds; ``early``: by how many it may begin too soon.
        reserved: it was claimed to wait on its node for a free slot, and has not said that it has begun.
        lines: what its attempts logged, each with the number of the attempt.
        adopted: made by hand ahead of its nominal time, which then came.
    """

    id: int
    job: str
    key: str
    origin: Origin
    created: int
    due_at: datetime
    scheduled_for: datetime | None
    expires_at: datetime | None
    state: State = State.PENDING
    token: int = 0
    session: str = ""
    attempts: int = 0
    begins: int = 0
    early: int = 0
    reserved: bool = False
    failures: int = 0
    crashes: int = 0
    cancel: bool = False
    once: bool = False
    adopted: bool = False
    pruned: bool = False
    progress: tuple[float, float] | None = None
    lines: list[tuple[int, str]] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    answers: dict[int, State] = field(default_factory=dict)

    @property
    def serial(self) -> bool:
        """Whether a job's overlap policy is for it."""
        return self.origin in SERIAL_ORIGINS

    @property
    def final(self) -> bool:
        """Whether it has its verdict."""
        return self.state.final

    def __str__(self) -> str:
        return f"{self.job} #{self.id} ({self.origin}, {self.key})"


@dataclass(slots=True, eq=False)
class SessionBook:
    """A session; ``until`` is the end of its lease in true microseconds.

    ``forgot``: the store was set back in its life, so its node may believe more of it than is so.
    """

    id: str
    until: int
    ended: bool = False
    forgot: bool = False

    def alive(self, micros: int) -> bool:
        """Whether nobody ended it and its lease has not run out."""
        return not self.ended and micros < self.until


class JobBook:
    """A job: the triggers that held, since when, and how far it is decided."""

    def __init__(self, spec: JobSpec, now: datetime) -> None:
        self.spec = spec
        self.declared_at = now
        self.watermark = now
        if spec.trigger is not None and spec.trigger.next_after(now) is None:
            last = spec.trigger.latest_until(now, LONG_BEFORE)
            if last is not None:
                self.watermark = last - MICROSECOND
        self.eras: list[tuple[datetime, Trigger | None]] = [(self.watermark, spec.trigger)]
        self.paused = False
        self.retired = False
        self.fired: set[datetime] = set()
        self.acquired: set[datetime] = set()
        """Times that another program kept."""
        self.records: list[Record] = []

    @property
    def kept_elsewhere(self) -> bool:
        """Whether another program keeps this job's time."""
        return self.spec.trigger is None and not self.retired

    def may_be_acquired(self, time: datetime) -> bool:
        """Whether no plan decides a nominal time, so that it may be won by name."""
        earlier = [trigger for since, trigger in self.eras if since < time] or [self.eras[0][1]]
        return earlier[-1] is None

    def redefine(self, spec: JobSpec, now: datetime) -> None:
        """Note a changed definition; a retired job comes back."""
        if self.retired:
            self.watermark, self.retired = max(self.watermark, now), False
        self._begin_era(spec.trigger, now)
        self.spec = spec

    def retire(self, now: datetime) -> None:
        """Note the end; what nobody decided up to now, or up to where the last trigger began to hold, is missed."""
        for nominal in self.nominals(self.watermark, max(now, self.eras[-1][0])):
            self.watermark = nominal
        self.retired = True
        self._begin_era(None, now)

    def _begin_era(self, trigger: Trigger | None, now: datetime) -> None:
        self.eras.append((max(now, self.watermark, self.eras[-1][0]), trigger))

    def nominals(self, after: datetime, until: datetime) -> list[datetime]:
        """Return every nominal time in (after, until], one by one."""
        found = []
        for index, (since, trigger) in enumerate(self.eras):
            end = min(self.eras[index + 1][0], until) if index + 1 < len(self.eras) else until
            position: datetime | None = max(since, after)
            while trigger is not None and position is not None and position < end:
                position = trigger.next_after(position)
                if position is not None and position <= end:
                    found.append(position)
        return found
