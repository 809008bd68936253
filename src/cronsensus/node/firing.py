"""Who fires what, and when? Floor 4.

What is due at a look is planned and fired in the same round. What this node is the first to fire next is planned, fired
and claimed shortly before, as ``ahead`` tells; then its runs wait in ``holding`` for their moment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from cronsensus.clock import Clock
from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.node.ahead import Lead, Reading
from cronsensus.node.claiming import Claiming
from cronsensus.node.lease import SessionLease
from cronsensus.node.telling import Telling
from cronsensus.node.waking import Waking
from cronsensus.planning import plan
from cronsensus.stores.base import AT_ONCE, Glance, Store

_log = logging.getLogger("cronsensus.node")

MOST_DUE = 200
SHARED_FROM = 8
"""Occurrences fired at once from which a node leaves the others their share."""


class Fired(NamedTuple):
    """What came of plans.

    Attributes:
        created: how many occurrences this node made.
        claimed: how many of them it took.
        again: whether more is due already.
        coming: when the next of what it fired is due: the glance was taken before and cannot know.
    """

    created: int = 0
    claimed: int = 0
    again: bool = False
    coming: datetime | None = None


class Firing:
    """Plans what is due, carries it out, and starts what this node takes of that."""

    def __init__(self, store: Store, clock: Clock, claiming: Claiming, waking: Waking, telling: Telling) -> None:
        self._store = store
        self._clock = clock
        self._claiming = claiming
        self._waking = waking
        self._telling = telling
        self._lead = Lead()
        self._decided: datetime | None = None

    def fire(self, lease: SessionLease, glance: Glance) -> Fired:
        """Fire what a look found due."""
        return self._carry_out(lease, self._plans(glance.jobs, glance.now), glance)

    def fire_ahead(self, lease: SessionLease, glance: Glance, seen: Reading) -> float | None:
        """Shortly before the next due time, if it is this node's turn then, fire and claim what comes due.

        Returns when to come back for that (monotonic seconds); ``None``: no sooner than without it.
        """
        instant = self._waking.ours
        if instant is None or instant == self._decided:
            return None
        ahead = self._lead.duration
        begins = seen.begin_of(instant) - ahead.total_seconds()
        if (began_at := self._clock.monotonic()) < begins:
            return begins
        # Once: whatever comes of it, the rest is for the look at the due time.
        self._decided = instant
        if not self._claiming.may_claim(lease, self._claiming.free):
            return None
        jobs = [job for job in self._store.upcoming(instant, MOST_DUE) if _is_decided_by_time_alone(job)]
        if jobs:
            plans = [replace(each, not_before=instant) for each in self._plans(jobs, instant)]
            self._carry_out(lease, plans, glance, ahead=ahead, seen=seen)
            self._lead.took(self._clock.monotonic() - began_at)
        return None

    def _plans(self, jobs: Sequence[JobState], now: datetime) -> list[Plan]:
        plans = []
        for job in jobs:
            try:
                plans.append(plan(job, now))
            except Exception:  # noqa: BLE001 - logged
                # One job's broken definition must not keep the others from firing; it stays due and visible.
                _log.exception("cannot plan job %r; its definition needs a look", job.spec.name)
        return plans

    def _carry_out(
        self,
        lease: SessionLease,
        plans: Sequence[Plan],
        glance: Glance,
        *,
        ahead: timedelta = AT_ONCE,
        seen: Reading | None = None,
    ) -> Fired:
        planned, claimed = sum(len(each.occurrences) for each in plans), 0
        limit = self._fair_share(planned, glance)
        if planned and self._claiming.may_claim(lease, limit):
            answers, claimed = self._claiming.fire_and_claim(lease, plans, limit, ahead=ahead, seen=seen)
            if lease.lost:
                return Fired(again=True)
        else:
            answers = self._store.fire(plans)
        won = [each for each, ok in zip(plans, answers, strict=True) if ok]
        created = sum(len(each.occurrences) for each in won)
        lost = len(plans) - len(won)
        self._telling.fired(won, lost=lost)
        coming = [each.next_due for each in won if each.next_due is not None]
        coming += [one.due_at for each in won for one in each.occurrences if one.due_at > glance.now]
        # Whoever won the others knows when they are due next; this node has to look.
        self._waking.lost_in_a_row = self._waking.lost_in_a_row + 1 if lost else 0
        again = (bool(won) and glance.more) or any(at <= glance.now for at in coming)
        if created > claimed:
            self._store.notify()
        return Fired(created, claimed, again, min(coming, default=None))

    def _fair_share(self, fired: int, glance: Glance) -> int:
        """Return how many occurrences to claim of those just fired: all of a few, a share of many."""
        nodes, free = len(glance.sessions), self._claiming.free
        if fired < SHARED_FROM or nodes < 2 or glance.backlog:
            return free
        return min(free, -(-fired // nodes))


def _is_decided_by_time_alone(job: JobState) -> bool:
    """Whether nothing that may yet happen before its due time has a say in what comes of it.

    The occurrence before may be over by then, and overlap is judged at the due time.
    """
    return job.active == 0 or job.spec.policies.overlap == "allow"
