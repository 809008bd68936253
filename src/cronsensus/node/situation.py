"""The inputs and outputs of ``decide``: facts, memory, and the next action. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from cronsensus.membership.liveness import Absences
from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.node.careful import Careful
from cronsensus.node.herd import MOST_DUE_JOBS, Herd
from cronsensus.node.lead_time import ClockSample, LeadTime
from cronsensus.node.pace import Pace, Queue
from cronsensus.node.settings import POLL
from cronsensus.stores.values import NO_DELAY, Partition

NEVER = -1e9
"""A monotonic time before all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What this process knows about itself and its host.

    Attributes:
        session: of this node.
        free_slots: how many runs it may claim now; 0 if its lease is not trusted.
        internal: this node may claim runs of internal jobs, which take no slot.
        in_doubt: the answer to a claim was lost, so the session may hold runs that are not known here.
        draining: the node takes nothing new.
        unsettled: results or released claims wait to be reported.
        queue: the reserved claims, which wait on this node for a free slot.
        notified: a notification came since the last round.
        woken: the node was woken to look, for another reason than a notification or the end of a run.
        progress_in: seconds until progress and log lines are written to the store; ``None``: there are none.
        given_up: attempts that did not stop in time still take their slots. They count as ended, and what they return
            is ignored.
        trusted: the lease is trusted.
        lost: the session is lost.
        hears_notifications: the store's notifications reach this node.
        gone: sessions whose process, on this host, is certainly gone.
        watch_seconds: seconds between looks at what others run.
        fast_evidence: a session is judged by its process too, not by its lease alone.
        poll_seconds: most seconds between looks without another reason.
    """

    session: str
    free_slots: int = 1
    internal: bool = False
    in_doubt: bool = False
    draining: bool = False
    unsettled: bool = False
    queue: Queue = field(default_factory=Queue)
    notified: bool = False
    woken: bool = False
    progress_in: float | None = None
    given_up: bool = False
    trusted: bool = True
    lost: bool = False
    hears_notifications: bool = True
    gone: frozenset[str] = frozenset()
    watch_seconds: float = 0.5
    fast_evidence: bool = True
    poll_seconds: float = POLL


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a node remembers from one round to the next. Times are monotonic seconds.

    Attributes:
        looked_at, look_took: when the node last looked at the store, and how long that took.
        look_at: the alarm: when to look next, unless something wakes the node before.
        sample: the store's clock at ``looked_at``; ``None`` before the first look.
        lead: how long before its due time a job is planned.
        nodes: how many nodes are alive.
        backlog: more occurrences were due than the node could claim, so it claims whenever a run ends.
        defers: this node is not among those in front, so it leaves notifications to them for a moment.
        misses: rounds in a row in which other nodes got all the work.
        careful: what to leave out of the next step, because steps failed lately.
        herd: this node's share when more jobs are due than a look returns.
        pace: how fast runs end here; ``None``: this node reserves nothing.
        absences: sessions that showed no sign of life.
        active_at: when a look last showed that something runs, waits or comes due.
        reclaimed_at, pruned_at: when this node last reclaimed dead sessions, and last pruned.
    """

    looked_at: float = NEVER
    look_took: float = 0.0
    look_at: float = NEVER
    sample: ClockSample | None = None
    lead: LeadTime = field(default_factory=LeadTime)
    nodes: int = 1
    backlog: bool = True
    defers: bool = False
    misses: int = 0
    careful: Careful = field(default_factory=Careful)
    herd: Herd = field(default_factory=Herd)
    pace: Pace | None = field(default_factory=Pace)
    absences: Absences = field(default_factory=Absences)
    active_at: float = NEVER
    reclaimed_at: float = 0.0
    pruned_at: float = 0.0


# --- the next action -------------------------------------------------------------------------------------------------


class Adopt(NamedTuple):
    """Read which runs the session holds, and start those that are not known here."""


class Release(NamedTuple):
    """Release the reserved claims."""


class Work(NamedTuple):
    """Report to the store and claim, in a single step.

    Attributes:
        want: most runs to claim for free slots.
        reserve: most further runs to claim, which wait on this node for a free slot.
        nodes: how many nodes share a queue; near its end each reserves only its share.
        ahead: how long before their due time occurrences may be claimed.
    """

    want: int = 0
    reserve: int = 0
    nodes: int = 1
    ahead: timedelta = NO_DELAY


class Look(NamedTuple):
    """Look at the store.

    Attributes:
        ahead: include jobs that come due within this time.
        limit: most jobs to return.
        partition: the part of all jobs to read; ``None``: all of them.
    """

    ahead: timedelta
    limit: int = MOST_DUE_JOBS
    partition: Partition | None = None


class Sleep(NamedTuple):
    """Do nothing for some seconds."""

    seconds: float


Next = Adopt | Release | Work | Look | Sleep


class Firing(NamedTuple):
    """The step that follows a look: which plans to carry out, and how many runs to claim.

    Attributes:
        plans: plans to carry out.
        want: most runs to claim.
        internal: no slot is free, so claim only runs of internal jobs, which take none.
        ahead: how long before their due times plans and claims may come.
        more_due: more jobs are due than are planned now.
        not_planned: jobs whose definition cannot be planned, and why.
    """

    plans: tuple[Plan, ...] = ()
    want: int = 0
    internal: bool = False
    ahead: timedelta = NO_DELAY
    more_due: bool = False
    not_planned: tuple[tuple[JobState, Exception], ...] = ()


class Fired(NamedTuple):
    """The result of ``Firing``.

    Attributes:
        won: the plans that were carried out.
        lost: how many were not, because another node was faster.
        claimed: how many runs this node claimed, new or older.
    """

    won: tuple[Plan, ...] = ()
    lost: int = 0
    claimed: int = 0

    @property
    def created(self) -> int:
        """Return how many new occurrences wait only for their time and a slot."""
        return sum(len(plan.awake) for plan in self.won)


class Upkeep(NamedTuple):
    """What to do about dead sessions, parked occurrences and old rows.

    Attributes:
        reclaim: dead sessions to end, beside those whose lease ran out; ``None``: reclaim nothing.
        prune: delete rows that were kept long enough.
        sweep: wake parked occurrences that need not wait any more.
    """

    reclaim: tuple[str, ...] | None = None
    prune: bool = False
    sweep: bool = False
