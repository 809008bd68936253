"""Who fires what, and when?

What is due at a look is planned and fired in the same round; of very much, each node takes its share, as ``sharing``
tells. What this node is the first to fire next is planned, fired and claimed shortly before, as ``ahead`` tells; then
its runs wait in ``holding`` for their moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from cronsensus.clock import Clock
from cronsensus.logger import Logger
from cronsensus.membership.lease import SessionLease
from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.node.ahead import SLACK, Lead, Reading
from cronsensus.node.claiming import Claiming
from cronsensus.node.sharing import Sharing
from cronsensus.node.standing import ALERT
from cronsensus.node.telling import Telling
from cronsensus.node.waking import Waking
from cronsensus.planning import plan
from cronsensus.stores.base import Store
from cronsensus.stores.values import AT_ONCE, Share, View

_log = Logger("cronsensus.node")

MOST_DUE = 200
LEAST_DUE = 25
"""Jobs that a node fires in a round of a herd, however few it could run now."""
FULL = 0.05
"""Seconds that a node waits for free slots before it fires more of a herd than it can start."""
SHARED_FROM = 8
"""Occurrences fired at once from which a node leaves the others their share."""


class Fired(NamedTuple):
    """What came of plans.

    Attributes:
        created: how many occurrences this node made.
        claimed: how many of them it took.
        again: whether more is due already.
        coming: when the next of what it fired is due: the view was taken before and cannot know.
        won, lost: how many of the plans were carried out, and how many were not.
    """

    created: int = 0
    claimed: int = 0
    again: bool = False
    coming: datetime | None = None
    won: int = 0
    lost: int = 0


class Firing:
    """Plans what is due, carries it out, and starts what this node takes of that."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        claiming: Claiming,
        waking: Waking,
        telling: Telling,
        *,
        on_decided: Callable[[Sequence[Plan], datetime], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._claiming = claiming
        self._waking = waking
        self._telling = telling
        self._on_decided = on_decided
        self._lead = Lead()
        self._sought: datetime | None = None
        self._decided: datetime | None = None
        self._sharing = Sharing()
        self._fired_at = -1e9
        self._waits = False
        self._not_planned: set[tuple[int, int]] = set()

    @property
    def share(self) -> Share | None:
        """Return the part of the due jobs that this node looks at next; ``None``: all."""
        return self._sharing.share

    def begin_what_waits(self, lease: SessionLease) -> float | None:
        """In a herd, start what waits before more is fired; return how long to wait for slots if too few are free.

        What is created and waits would be in the way of what is due later: it is begun in the order of due times.
        """
        if self.share is None:
            return None
        if self._waits:
            self._waits = self._claiming.claim(lease) > 0
        left = self._fired_at + FULL - self._clock.monotonic()
        return left if left > 0 and self._claiming.free < LEAST_DUE else None

    @property
    def most(self) -> int:
        """Return how many due jobs to look at next: of a herd no more than the node can start now."""
        return MOST_DUE if self.share is None else min(MOST_DUE, max(LEAST_DUE, self._claiming.free))

    def look(self) -> View:
        """Look as far ahead as this node decides ahead; in a herd, at what is due alone."""
        ahead = AT_ONCE if self.share is not None else timedelta(seconds=self._lead.seconds + SLACK)
        return self._store.look(limit=self.most, share=self.share, ahead=ahead)

    def fire(self, lease: SessionLease, view: View) -> Fired:
        """Fire what a look found due; or nothing, if it found so much that it has to be shared first."""
        if self._sharing.begins(lease.session, view):
            if len(view.sessions) > ALERT:
                self._store.notify()  # those who rest have a share, too
            return Fired(again=True)
        due = view.due
        fired = self._carry_out(lease, self._plans(due, view.now), view) if due else Fired()
        self._fired_at = self._clock.monotonic()
        self._waits = view.backlog or fired.created > fired.claimed
        return fired._replace(again=self._sharing.fired(view, fired.won, fired.lost) or fired.again)

    def fire_ahead(self, lease: SessionLease, view: View, seen: Reading) -> float | None:
        """Shortly before the next due time, if it is this node's turn then, fire and claim what comes due.

        Returns when to come back for that (monotonic seconds); ``None``: no sooner than without it.
        """
        instant = self._waking.ours
        if instant is None or instant == self._decided:
            return None
        begins = seen.begin_of(instant) - self._lead.seconds
        if (began_at := self._clock.monotonic()) < begins - SLACK:
            return begins
        if instant != self._sought and all(job.due_at != instant for job in view.jobs):
            # The look did not go so far, for the round has taken long; or the job was fired in this very round.
            self._sought = instant
            return began_at
        ahead = timedelta(seconds=self._lead.seconds + SLACK)
        # Once: whatever comes of it, the rest is for the look at the due time.
        self._decided = instant
        if not self._claiming.may_claim(lease, self._claiming.free):
            return None
        jobs = [job for job in view.jobs if _comes(job, view.now, instant) and _is_decided_by_time_alone(job)]
        if jobs:
            plans = [replace(each, not_before=instant) for each in self._plans(jobs, instant)]
            self._carry_out(lease, plans, view, ahead=ahead, seen=seen)
            self._lead.took(self._clock.monotonic() - began_at)
        return None

    def _plans(self, jobs: Sequence[JobState], now: datetime) -> list[Plan]:
        plans = []
        for job in jobs:
            try:
                plans.append(plan(job, now))
            except Exception:  # noqa: BLE001 - logged
                # One job's broken definition must not keep the others from firing; it stays due and visible.
                if (job.id, job.revision) not in self._not_planned:
                    self._not_planned.add((job.id, job.revision))
                    _log.exception("cannot plan job %r; its definition needs a look", job.spec.name)
        return plans

    def _carry_out(
        self,
        lease: SessionLease,
        plans: Sequence[Plan],
        view: View,
        *,
        ahead: timedelta = AT_ONCE,
        seen: Reading | None = None,
    ) -> Fired:
        planned, claimed = sum(len(each.occurrences) for each in plans), 0
        limit = self._fair_share(planned, view)
        if planned and self._claiming.may_claim(lease, limit):
            answers, claimed = self._claiming.fire_and_claim(lease, plans, limit, ahead=ahead, seen=seen)
            if lease.lost:
                return Fired(again=True)
        else:
            answers = self._store.fire(plans)
        won = [each for each, ok in zip(plans, answers, strict=True) if ok]
        created = sum(len(each.occurrences) for each in won)
        lost = len(plans) - len(won)
        self._on_decided(won, view.now)
        self._telling.fired(won, lost=lost)
        coming = [each.next_due for each in won if each.next_due is not None]
        coming += [one.due_at for each in won for one in each.occurrences if one.due_at > view.now]
        # Whoever won the others knows when they are due next; this node has to look.
        self._waking.lost_in_a_row = self._waking.lost_in_a_row + 1 if lost else 0
        again = any(at <= view.now for at in coming)
        if created > claimed:
            self._store.notify()
        return Fired(created, claimed, again, min(coming, default=None), len(won), lost)

    def _fair_share(self, fired: int, view: View) -> int:
        """Return how many occurrences to claim of those just fired: all of a few, a share of many."""
        nodes, free = len(view.sessions), self._claiming.free
        if fired < SHARED_FROM or nodes < 2 or view.backlog or self.share is not None:
            return free
        return min(free, -(-fired // nodes))


def _comes(job: JobState, now: datetime, until: datetime) -> bool:
    """Whether a job comes due after ``now``, and not after ``until``."""
    return job.due_at is not None and now < job.due_at <= until


def _is_decided_by_time_alone(job: JobState) -> bool:
    """Whether nothing that may yet happen before its due time has a say in what comes of it.

    The occurrence before may be over by then, and overlap is judged at the due time.
    """
    return job.active == 0 or job.spec.policies.overlap == "allow"
