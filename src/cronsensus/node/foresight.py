"""What comes due after a look, without another one? Pure.

A look shows the jobs that come due within ``HORIZON``. All nodes plan alike, so each knows from it what the node that
is first in turn order will decide at each due time, and what the job is like afterwards. A plan that was made by that
is carried out only if the job is what the plan saw: what was foreseen wrongly is a lost race, and costs a look.

So only two nodes ask the store about a due time: the first in turn order brings the plan ahead, the second looks
whether it did. A plan that was carried out is announced, and each further node looks at its turn only if it has heard
nothing: nodes that are dead, cut off, frozen or draining are all silent, on whichever host they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from cronsensus.model.job import JobState
from cronsensus.node.turn_order import is_active, place, turn
from cronsensus.planning import plan
from cronsensus.stores.values import View

HORIZON = timedelta(seconds=3)
"""How far a look foresees, and so how long a node may go without one while jobs come due."""
FEW = 16
"""Most jobs that are foreseen. Where more come due so soon, nodes look at each due time."""
FORECAST_OFF_FOR = 60.0
"""Seconds for which a node forecasts nothing after too many jobs came due."""


class Turn(NamedTuple):
    """When a node next concerns itself with what comes due.

    Attributes:
        instant: the due time, or the one before where none is to come; ``None``: neither.
        at: when it looks, unless it is ``first`` in turn order and decides before.
        first: it is.
        listens: by ``at`` it may have heard that others decided, and then does not look.
    """

    instant: datetime | None
    at: datetime
    first: bool = False
    listens: bool = False


class Coming(NamedTuple):
    """What is known to come due.

    Attributes:
        view: what the last look showed; its ``jobs`` are as they will be when the next of them is due.
        until: no other job comes due by then.
        passed: the last due time that was decided.
    """

    view: View
    until: datetime
    passed: datetime | None = None

    @property
    def instant(self) -> datetime | None:
        """Return when the next of the jobs is due; ``None``: none is before ``until``."""
        due = [job.due_at for job in self.view.jobs if job.due_at is not None and job.due_at <= self.until]
        return min(due, default=None)

    def at(self, instant: datetime) -> list[JobState]:
        """Return the jobs that are due at ``instant``."""
        return [job for job in self.view.jobs if job.due_at is not None and job.due_at <= instant]

    def after(self, instant: datetime) -> Coming:
        """Return what comes after ``instant``, when all that is due then was decided.

        Raises:
            Exception: a job cannot be planned.
        """
        jobs = tuple(_decided(job, instant) for job in self.view.jobs)
        return self._replace(view=replace(self.view, jobs=jobs), passed=instant)

    def unless(self, announced: Mapping[int, datetime]) -> Coming | None:
        """Return what comes after the next due time; ``None``: others did not announce that all of that was decided."""
        if (instant := self.instant) is None:
            return None
        try:
            after = self.after(instant)
        except Exception:  # noqa: BLE001 - a look finds it, and tells
            return None
        for before, job in zip(self.view.jobs, after.view.jobs, strict=True):
            if before is not job and (job.id not in announced or announced[job.id] < job.watermark):
                return None
        return after

    def turn_of(self, session: str, lead: timedelta, trip: timedelta) -> Turn:
        """Return when it is the turn of ``session`` for the next due time.

        Where there is none it looks where foresight ends, with time enough (``lead``) for what is due right after that.
        An announcement has the time of a round trip (``trip``) to arrive.
        """
        sessions, instant = self.view.sessions, self.instant
        if instant is None:
            return Turn(self.passed, self.until - lead)
        at, number = turn(session, sessions, instant), place(session, sessions, instant)
        listens = number > 1 and is_active(session, sessions, instant)
        return Turn(instant, at + trip if listens else at, first=number == 0, listens=listens)


def foresee(view: View) -> Coming | None:
    """Return what ``view``, a look as far as ``HORIZON``, tells of what comes due; ``None``: nothing, or not all."""
    until = view.now + HORIZON
    if view.more or view.backlog or view.due or len(view.jobs) > FEW:
        return None
    if view.next_pending is not None and view.next_pending <= until:
        return None
    coming = Coming(view, until)
    return None if coming.instant is None else coming


def _decided(job: JobState, instant: datetime) -> JobState:
    if job.due_at is None or job.due_at > instant:
        return job
    decided = plan(job, instant)
    return replace(job, watermark=decided.watermark, due_at=decided.next_due, active=0)
