"""Verbs that stop and resume the firing of a job."""

from __future__ import annotations

from cronsensus.payload.codec import clean
from cronsensus.stores.sql.job_rows import ask_locked, find_locked, living_job
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction


def pause_job(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop firing a job. Safe: its row is locked when it is read, and the UPDATE asks whether it is paused."""
    row = living_job(job, find_locked(tx, job))
    if row.paused_at is not None:
        return False
    # What was decided while the row was waited for was decided before the pause, and is to be read so for ever.
    tx.catch_up()
    tx.send("pause_job", job=row.id, now=tx.now, by=clean(by), why=clean(why), expect=1)
    tx.send("begin_pause", job=row.id, now=tx.now)
    record(tx, by, "pause", job, why)
    return True


def resume_job(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """End a pause. Safe: as for the pause."""
    locked = ask_locked(tx, job)
    begun = tx.send("open_pause", space=tx.namespace, job=job)
    row = living_job(job, locked.row)
    if row.paused_at is None:
        return False
    opened = begun.row
    until = tx.now if opened is None else max(opened.start, tx.now)
    tx.send("resume_job", job=row.id, until=max(until, row.pause_ended_at or until), expect=1)
    if opened is not None:
        tx.send("end_pause", pause=opened.id, until=until)
    record(tx, by, "resume", job, why)
    return True
