"""Verbs that stop and resume the firing of a job."""

from __future__ import annotations

from sqlalchemy import bindparam, insert, select, update

from cronsensus.codec import clean
from cronsensus.stores.sql.jobrows import find_locked, living
from cronsensus.stores.sql.schema import jobs, pauses
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction

_j = jobs.c

_PAUSE = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.paused_at.is_(None))
    .values(paused_at=bindparam("now"), paused_by=bindparam("who"), paused_why=bindparam("because"), wake_at=None)
)
_RESUME = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.paused_at.is_not(None))
    .values(
        paused_at=None,
        paused_by=None,
        paused_why=None,
        wake_at=_j.next_due,
        pause_ended_at=bindparam("until"),
    )
)
_INSERT_PAUSE = insert(pauses)
_OPEN_PAUSE = select(pauses.c.id, pauses.c.start).where(pauses.c.job_id == bindparam("job"), pauses.c.end.is_(None))
_END_PAUSE = update(pauses).where(pauses.c.id == bindparam("pause")).values(end=bindparam("until"))


def pause(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop firing a job. Safe: only the UPDATE that found it unpaused goes on."""
    row = living(job, find_locked(tx, job))
    if tx.change(_PAUSE, job=row.id, now=tx.now, who=clean(by), because=clean(why)) != 1:
        return False
    tx.change_many(_INSERT_PAUSE, [{"job_id": row.id, "start": tx.now}])
    record(tx, by, "pause", job, why)
    return True


def resume(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """End a pause. Safe: only the UPDATE that found it paused goes on."""
    row = living(job, find_locked(tx, job))
    if row.paused_at is None:
        return False
    opened = tx.row(_OPEN_PAUSE, job=row.id)
    until = tx.now if opened is None else max(opened.start, tx.now)
    if tx.change(_RESUME, job=row.id, until=max(until, row.pause_ended_at or until)) != 1:
        return False
    if opened is not None:
        tx.change(_END_PAUSE, pause=opened.id, until=until)
    record(tx, by, "resume", job, why)
    return True
