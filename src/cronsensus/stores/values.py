"""The arguments and results of a store's verbs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import NamedTuple, Self

from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobState
from cronsensus.model.session import SessionView

NO_DELAY = timedelta(0)
"""For a step: decide only what is due now. For a retirement: the job fires nothing from now on."""
REMEMBERED = timedelta(days=366)
"""How long ``prune`` keeps retired jobs, replaced releases, and entries of the trail."""
HISTORY_KEPT = timedelta(days=1)
"""How long ``prune`` keeps ended eras and pauses at least, even if the job's ``keep`` is shorter."""
MOST_AHEAD = timedelta(seconds=1)
"""How far ahead a step may look. A released run keeps its due time, but is due within this time at the latest, even if
the clock was set back meanwhile."""


def check_ahead(ahead: timedelta) -> None:
    """Raise ``InvalidOption`` unless ``ahead`` lies between zero and ``MOST_AHEAD``."""
    if not NO_DELAY <= ahead <= MOST_AHEAD:
        raise InvalidOption(
            f"ahead={ahead!r}: work is decided at most {MOST_AHEAD.total_seconds():g} s before its due time, and never "
            "after it by this option; pass a timedelta between 0 and that"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """The abilities of a store, as data: printed in the documentation, read by the conformance suite.

    Attributes:
        name: of the kind of store, for people.
        clock: whose clock judges due times: ``"server"``, ``"host"`` or ``"process"``.
        lease_clock: whose clock judges leases; ``"monotonic"`` is immune to a stepping wall clock.
        hosts: ``"one"`` or ``"many"``.
        notify: notifications reach other processes.
        transactional_finish: a run's effects may commit together with its result (G5).
        survives: what an acknowledged write survives, in words.
        poll: most seconds between two looks of an idle node, if notifications are lost more easily than elsewhere.
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
    """The result of ``define_jobs``: job names by what was done.

    Attributes:
        superseded: a newer release that is alive defines it differently; left alone.
        kept: not declared any more, but a live session of another release may still declare it; left alone. In both
            cases, repeat the call later.
        moved: unchanged jobs whose next due time differs under the zone rules of the caller.
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
            It is 0 unless a time was given: by ``keep`` they are kept.
    """

    needed: int

    def __new__(cls, deleted: int = 0, needed: int = 0) -> Self:
        """Return the number ``deleted`` with ``needed``."""
        pruned = super().__new__(cls, deleted)
        pruned.needed = needed
        return pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state that ``look`` read, of a single moment.

    Attributes:
        now: the store's clock.
        jobs: jobs whose next due time has come, or comes within ``ahead``: at most ``limit``, most overdue first. If
            there are more, a quarter of ``limit`` are the jobs that came due last, so that they do not wait until all
            earlier ones are done.
        more: there are more of them than ``limit``.
        next_job: the earliest due time of any job later than ``now`` and ``ahead``; ``None``: there is none. Jobs that
            are due earlier and left out of ``jobs`` do not count; ``more`` is for them.
        backlog: pending occurrences are due now, claimable or not.
        next_pending: the earliest due time still to come of a pending occurrence.
        holders: live or overdue sessions that hold runs; the caller checks whether they are alive.
        sessions: ids of live nodes' sessions, sorted, at most 64; they share the work by taking turns.
        absent: ids of live sessions whose process showed a sign of life (``register_presence``), as this handle saw or
            the session recorded, and shows none now. The process is gone, or its connection was just cut off. This is
            evidence, not proof: look again before acting on it.
        age: seconds from the reading of ``now`` to the end of the look, which may take several round trips.
        parked: whether any run is parked: a batch, or a downstream run.
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
    """Return how many of ``limit`` due jobs are those that came due last, if there are more than ``limit``."""
    return limit // 4


LOOKED_THROUGH = 5_000
"""How many of the newest occurrences ``ran_since`` searches for ended ones."""
