"""What comes due after a look, without another one? Pure.

A look shows the jobs that come due within ``HORIZON``. All nodes plan alike, so each knows from it what the node that
is first in turn order will decide at each due time, and what the job is like afterwards. A plan that was made by that
is carried out only if the job is what the plan saw: what was foreseen wrongly is a lost race, and costs a look.

So only two nodes concern themselves with a due time: the first in turn order brings the plan ahead, the second looks
whether it did. If neither does, because they died in one moment or drain, another one finds that out where its
foresight ends, and then looks at each due time for a while.
"""

from __future__ import annotations

import contextlib
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
BLIND = 60.0
"""Seconds for which a node foresees nothing that found more, or found undone what it had left to others: perhaps two of
them drain, which no look shows."""


class Turn(NamedTuple):
    """When a node next concerns itself with what comes due.

    Attributes:
        instant: the due time, or the one before where none is to come; ``None``: neither.
        at: when it looks, unless it is ``first`` in turn order and decides before.
        first: it is.
        coming: what comes due from ``instant`` on.
        left: the last of the due times before, which are left to others; ``None``: there is none.
    """

    instant: datetime | None
    at: datetime
    first: bool
    coming: Coming
    left: datetime | None = None


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

    def turn_of(self, session: str, lead: timedelta) -> Turn:
        """Return the next due time for which ``session`` is first or second in turn order.

        Where there is none it looks where foresight ends, with time enough (``lead``) for what is due right after that.
        """
        coming, left, sessions = self, None, self.view.sessions
        while (instant := coming.instant) is not None:
            number = place(session, sessions, instant)
            after = None
            if number > 1 and is_active(session, sessions, instant):
                with contextlib.suppress(Exception):  # a look finds it, and tells
                    after = coming.after(instant)
            if after is None:
                return Turn(instant, turn(session, sessions, instant), number == 0, coming, left)
            coming, left = after, instant
        return Turn(left or coming.passed, coming.until - lead, False, coming, left)


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
