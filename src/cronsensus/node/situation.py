"""What a decision takes and what it returns: memory, facts, and what to do. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from cronsensus.membership.liveness import Absences
from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.model.session import SessionView
from cronsensus.node.foresight import Coming
from cronsensus.node.lead_time import ClockSample, LeadTime
from cronsensus.node.pace import Pace
from cronsensus.stores.values import AT_ONCE, Partition

NEVER = -1e9
"""A monotonic time before all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What this process knows of itself and of its host.

    Attributes:
        session: of this node.
        free: how many runs it has slots for.
        may_claim: its lease is trusted, and it has a function that can be run now.
        internal: it has functions of internal jobs, whose runs take no slot.
        gone: sessions whose process, on this host, is certainly gone.
        in_doubt: the answer to a claim was lost, so the session may hold runs that are not known here.
        draining: the node takes nothing new.
        unsettled: results or claims that go back wait for the store.
        notified: a notification came since the last round.
        news: something that a look may show came since the last look: a notification, a run that is to be tried again,
            or the node was woken by something else than the runs here, before its sleep was over.
        progress_in: seconds until progress and log lines want to be written; ``None``: there are none.
        begins_in: seconds until a run that was claimed ahead starts; ``None``: none waits.
        reserved: how many claims wait here for a free slot.
        few_reserved: so few of them are left that it is time to claim more.
        reserved_for: for how many seconds the first of them has waited; ``None``: there is none.
        ends: how many attempts have ended here so far.
        given_up: attempts are over and still take their slots; they report nothing when they return.
        trusted: the lease is trusted.
        lost: the session is lost.
        told: the store's notifications reach this node.
        announced: up to which watermark jobs were decided, as other nodes announced.
        watch: seconds between looks at what others run.
        fast_evidence: whether a session is judged by its process too, and not by its lease alone.
    """

    session: str
    free: int = 1
    may_claim: bool = True
    internal: bool = False
    gone: frozenset[str] = frozenset()
    in_doubt: bool = False
    draining: bool = False
    unsettled: bool = False
    notified: bool = False
    news: bool = True
    progress_in: float | None = None
    begins_in: float | None = None
    reserved: int = 0
    few_reserved: bool = True
    reserved_for: float | None = None
    ends: int = 0
    given_up: bool = False
    trusted: bool = True
    lost: bool = False
    told: bool = True
    announced: Mapping[int, datetime] = field(default_factory=dict)
    watch: float = 0.5
    fast_evidence: bool = True

    @property
    def room(self) -> int:
        """Return how many runs it may claim."""
        return self.free if self.may_claim else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The sleep of a node in idle mode: until when, and when it next looks at the processes of its own host."""

    until: float
    watch_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What rounds remember. Times are monotonic seconds, instants the store's.

    Attributes:
        looked_at, look_at: when the store was looked at, and when it is to be looked at next.
        else_at: when it is to be looked at next for another reason than that something comes due.
        notified_at: when the first notification came since the last look, if a claim answered it.
        look_took: how long the last look took.
        sample: the store's clock at ``looked_at``, by the best guess; ``None`` before the first look.
        full: every slot is taken, and more waits or may wait: a claim needs no look before it.
        backlog: more waited at the last look, or was created by this node, than was claimed then.
        lost_races: in a row.
        fruitless: rounds in a row in which something waited, and nothing of it was for this node.
        expected: the next due time, as far as is known.
        ours: the next due time of a job, if this node is first in turn order for it.
        wide: the last look went as far as can be foreseen.
        blind_until: until then nothing is foreseen: too much comes due.
        coming: what comes due without another look; ``None``: not known.
        listens: this node does not look at the next due time if it hears that others decided it.
        in_idle_mode: whether this node leaves ``expected``, and what runs meanwhile, to the active set.
        idle: the sleep in idle mode that goes on now.
        neighbours, neighbours_at: the nodes on this host, and when they were read.
        lead: how long before a due time it is decided.
        sought, decided: the last instant that another look was made for, and that was decided ahead.
        partition: the partition of the due jobs for the next look; ``None``: all of them.
        helping: through with its partition, this node looks at all jobs.
        nodes: how many nodes take part.
        pace: how fast runs end here.
        stepped_at: when results were last sent.
        fired_at, waits: when it last fired, and whether more was created than taken.
        alone: a step with results failed: the next one has nothing but these.
        most_plans: how many plans go in one step; halved when a step fails.
        set_aside: jobs whose plan failed alone (id, revision), and until when they are left alone.
        behind: ids of jobs whose plan failed alone for a reason that passes: the others come first.
        absences: sessions that showed no sign of life.
        active_at: when a look last showed that something runs, waits or comes due.
        reclaimed_at, pruned_at: when the store was last asked for that.
    """

    looked_at: float = NEVER
    look_at: float = NEVER
    else_at: float = NEVER
    notified_at: float = NEVER
    look_took: float = 0.0
    sample: ClockSample | None = None
    full: bool = False
    backlog: bool = True
    lost_races: int = 0
    fruitless: int = 0
    expected: datetime | None = None
    ours: datetime | None = None
    wide: bool = False
    blind_until: float = NEVER
    coming: Coming | None = None
    listens: bool = False
    in_idle_mode: bool = False
    idle: Idle | None = None
    neighbours: tuple[SessionView, ...] = ()
    neighbours_at: float = NEVER
    lead: LeadTime = field(default_factory=LeadTime)
    sought: datetime | None = None
    decided: datetime | None = None
    partition: Partition | None = None
    helping: bool = False
    nodes: int = 1
    pace: Pace = field(default_factory=Pace)
    stepped_at: float = NEVER
    fired_at: float = NEVER
    waits: bool = False
    alone: bool = False
    most_plans: int = 200
    set_aside: tuple[tuple[int, int, float], ...] = ()
    behind: frozenset[int] = frozenset()
    absences: Absences = field(default_factory=Absences)
    active_at: float = NEVER
    reclaimed_at: float = 0.0
    pruned_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask in a look: at most ``limit`` jobs of a ``partition`` that come due within ``ahead``."""

    limit: int
    partition: Partition | None
    ahead: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """What a node does next.

    Attributes:
        sleep: nothing, for so many seconds.
        settle: give the store what it has yet to take: results, claims that go back, progress and log lines.
        adopt: ask which runs the session holds, and start those that are not known here.
        look: look at the store.
        foreseen: decide what comes due by what the last look showed.
        plans: have these carried out.
        want: claim up to so many runs.
        internal: no slot is free, and something is due: claim it if it is of an internal job, which takes none.
        reserve: claim up to so many more, which wait here for a free slot.
        nodes: how many nodes share the end of a queue.
        hand_back: give back what is reserved.
        ahead: how far before their due times plans and claims may come.
        notify: tell the other nodes that there is something for them.
        again: more is due: look again at once.
        early: how long what is due is left to nodes earlier in turn order; negative: no longer.
        reclaim: take the runs of overdue sessions back, and of these, which are dead; ``None``: of none.
        prune: prune what was kept long enough.
        sweep: wake what is parked and waits for nothing any more.
        renew: have the session renewed now: its lease is not trusted.
        read_neighbours: read which nodes are on this host, before the sleep.
        not_planned: jobs whose definition cannot be planned, and why.
    """

    sleep: float | None = None
    settle: bool = False
    adopt: bool = False
    look: Question | None = None
    foreseen: bool = False
    plans: tuple[Plan, ...] = ()
    want: int = 0
    internal: bool = False
    reserve: int = 0
    nodes: int = 1
    hand_back: bool = False
    ahead: timedelta = AT_ONCE
    notify: bool = False
    again: bool = False
    early: timedelta = AT_ONCE
    reclaim: tuple[str, ...] | None = None
    prune: bool = False
    sweep: bool = False
    renew: bool = False
    read_neighbours: bool = False
    not_planned: tuple[tuple[JobState, Exception], ...] = ()


class Fired(NamedTuple):
    """What came of plans.

    Attributes:
        won: the plans that were carried out.
        lost: how many were not, because another node was faster.
        claimed: how many runs this node took: of their occurrences, or of those that waited before.
    """

    won: tuple[Plan, ...] = ()
    lost: int = 0
    claimed: int = 0

    @property
    def created(self) -> int:
        """Return how many occurrences this node made."""
        return sum(len(each.occurrences) for each in self.won)

    def coming(self, now: datetime) -> datetime | None:
        """Return when the next of what was fired is due: the look was before, and cannot know."""
        coming = [each.next_due for each in self.won if each.next_due is not None]
        coming += [one.due_at for each in self.won for one in each.occurrences if one.due_at > now]
        return min(coming, default=None)
