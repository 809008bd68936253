"""What a store's verbs take and return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import NamedTuple, Self

from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobState
from cronsensus.model.session import SessionView

NO_DELAY = timedelta(0)
"""Of a step: decide only what is due now. Of a retirement: the job fires nothing from now on."""
REMEMBERED = timedelta(days=366)
"""For how long ``prune`` leaves retired jobs, releases that were replaced, and entries of the trail."""
HISTORY_KEPT = timedelta(days=1)
"""For how long at least ``prune`` leaves eras and pauses that are over, however short the job's ``keep`` is."""
MOST_AHEAD = timedelta(seconds=1)
"""How far ahead a step may look. A run that is put back is due when it was before; where the clock was set back
meanwhile, it is due after this at the latest."""


def check_ahead(ahead: timedelta) -> None:
    """Raise ``InvalidOption`` unless ``ahead`` lies between zero and ``MOST_AHEAD``."""
    if not NO_DELAY <= ahead <= MOST_AHEAD:
        raise InvalidOption(
            f"ahead={ahead!r}: work is decided at most {MOST_AHEAD.total_seconds():g} s before its due time, and never "
            "after it by this option; pass a timedelta between 0 and that"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """What a store can do, as data: printed in the documentation, read by the conformance suite.

    Attributes:
        name: as people call it.
        clock: whose clock judges due times: ``"server"``, ``"host"`` or ``"process"``.
        lease_clock: whose clock judges leases; ``"monotonic"`` is immune to a stepping wall clock.
        hosts: ``"one"`` or ``"many"``.
        notify: wake-ups reach other processes.
        transactional_finish: a run's effects may commit together with its result (G5).
        survives: what an acknowledged write outlives, in words.
        poll: most seconds between two looks of an idle node, where notifications are lost more easily than elsewhere.
    """

    name: str
    clock: str
    lease_clock: str
    hosts: str
    notify: bool
    transactional_finish: bool
    survives: str
    poll: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DefineResult:
    """What ``define_jobs`` did, by job name.

    Attributes:
        superseded: a newer release that is alive defines it otherwise; left alone.
        kept: not declared any more, but a session of another release is alive that may still declare it; left alone.
            In both cases, repeat the call later.
        moved: those of the unchanged whose next due time is another one by the zone rules of the caller.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


class Partition(NamedTuple):
    """Part ``place`` (counted from 0) of ``of`` parts of all jobs. The store decides which job is in which part."""

    place: int
    of: int


class Pruned(int):
    """How many occurrences and ranges were deleted.

    Attributes:
        needed: how many of them something open may need: a run that waits for its upstreams, or the retry of a batch.
            It is 0 unless a time was named: by ``keep`` they are left.
    """

    needed: int

    def __new__(cls, deleted: int = 0, needed: int = 0) -> Self:
        """Return the number ``deleted`` with ``needed``."""
        pruned = super().__new__(cls, deleted)
        pruned.needed = needed
        return pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state that ``look`` read, of one moment.

    Attributes:
        now: the store's clock.
        jobs: jobs whose next due time has come, or comes within ``ahead``: at most ``limit``, most overdue first. Where
            there are more of them, a quarter of ``limit`` are the jobs that came due last, so that they do not wait
            until all those before them are done.
        more: there are more of them than ``limit``.
        next_job: the earliest due time of any job that is later than ``now`` and ``ahead``; ``None``: there is none. It
            says nothing of jobs that come before and are not shown; for them there is ``more``.
        backlog: pending occurrences are due now, claimable or not.
        next_pending: the earliest due time still to come of a pending occurrence.
        holders: live or overdue sessions that hold runs; the caller checks whether they are alive.
        sessions: ids of live sessions that take turns (those of nodes), sorted, at most 64.
        absent: ids of live sessions whose process showed a sign of life (``register_presence``), as this handle saw or
            the session wrote down, and shows none now. The process is gone, or its connection was cut off just now.
            This is evidence, not proof: look again before acting on it.
        age: seconds that passed between the arrival of ``now`` and the end of the look, which may ask more than once.
        parked: whether anything waits until it is woken: a batch, or a run that comes after others.
    """

    now: datetime
    jobs: tuple[JobState, ...]
    more: bool
    next_job: datetime | None
    backlog: bool
    next_pending: datetime | None
    holders: tuple[SessionView, ...]
    sessions: tuple[str, ...]
    absent: tuple[str, ...] = ()
    age: float = 0.0
    parked: bool = False

    @property
    def due(self) -> list[JobState]:
        """Return the jobs that are due now, without those that come due soon."""
        return [job for job in self.jobs if job.due_at is None or job.due_at <= self.now]


def newest_of(limit: int) -> int:
    """Return how many of ``limit`` due jobs are those that came due last, where there are more."""
    return limit // 4


LOOKED_THROUGH = 5_000
"""Occurrences, from the newest on, among which ``ran_since`` looks for those that have ended."""
