"""Who fires what, and when? Floor 4.

What is due at a look is planned and fired in the same round. What this node is the first to fire next is planned
shortly before, as ``ahead`` tells.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from cronsensus.clock import Clock
from cronsensus.model.job import JobState
from cronsensus.model.plan import Plan
from cronsensus.node.ahead import LEAD, REHEARSAL, Ahead, Prepared
from cronsensus.node.claiming import Claiming
from cronsensus.node.lease import SessionLease
from cronsensus.node.telling import Telling
from cronsensus.node.waking import Waking
from cronsensus.planning import plan
from cronsensus.stores.base import Glance, Store

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
        self._ahead = Ahead()
        self._one_host = store.capabilities.hosts == "one"

    def fire(self, lease: SessionLease, glance: Glance) -> Fired:
        """Fire what a look found due."""
        return self._carry_out(lease, self._plans(glance.jobs, glance.now), glance)

    def use_prepared(self, lease: SessionLease) -> float | None:
        """Rehearse or fire what was planned ahead, if it is time to; return how long to wait if that was all."""
        now = self._clock.monotonic()
        if (prepared := self._ahead.rehearse(now)) is not None:
            # Too early by the store's clock; where it is not, this was no rehearsal, and the look that follows claims.
            if not any(self._store.fire(prepared.plans)) and not self._claiming.claim(lease):
                return max(0.0, prepared.due_at - self._clock.monotonic())
        elif (prepared := self._ahead.take(now)) is not None:
            self._carry_out(lease, prepared.plans, prepared.glance)
        return None

    def prepare(self, glance: Glance, read_at: float) -> float | None:
        """Shortly before the next due time, if it is this node's turn then, make the plans.

        Returns when to come back for that (monotonic seconds); ``None``: no sooner than without it.
        """
        instant = self._waking.ours
        if instant is None or self._ahead.is_for(instant):
            return None
        due_at = read_at + (instant - glance.now).total_seconds()
        if self._clock.monotonic() < due_at - LEAD:
            return due_at - LEAD
        if not self._claiming.free:
            return None
        plans = self._plans(self._store.upcoming(instant, MOST_DUE), instant)
        plans = [replace(each, not_before=instant) for each in plans]
        self._ahead.prepare(Prepared(instant, due_at, plans, glance))
        return due_at - REHEARSAL if self._one_host else None

    def _plans(self, jobs: Sequence[JobState], now: datetime) -> list[Plan]:
        plans = []
        for job in jobs:
            try:
                plans.append(plan(job, now))
            except Exception:  # noqa: BLE001 - logged
                # One job's broken definition must not keep the others from firing; it stays due and visible.
                _log.exception("cannot plan job %r; its definition needs a look", job.spec.name)
        return plans

    def _carry_out(self, lease: SessionLease, plans: Sequence[Plan], glance: Glance) -> Fired:
        planned, claimed = sum(len(each.occurrences) for each in plans), 0
        limit = self._fair_share(planned, glance)
        if planned and self._claiming.may_claim(lease, limit):
            answers, claimed = self._claiming.fire_and_claim(lease, plans, limit)
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
