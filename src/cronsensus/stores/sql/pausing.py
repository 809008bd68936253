"""The verbs ``pause`` and ``resume``: stop firing a job, and fire it again."""

from __future__ import annotations

from cronsensus.payload.codec import clean
from cronsensus.stores.sql.job_rows import ask_locked, find_locked, living_job
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction


def pause_job(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop firing a job. Safe: its row is locked when it is read, and the UPDATE checks whether it is paused."""
    row = living_job(job, find_locked(tx, job))
    if row.paused_at is not None:
        return False
    # The pause begins after the wait for the row: what was decided meanwhile was decided before the pause.
    tx.catch_up()
    tx.send("pause_job", job=row.id, now=tx.now, by=clean(by), why=clean(why), expect=1)
    tx.send("begin_pause", job=row.id, now=tx.now)
    record(tx, by, "pause", job, why)
    return True


def resume_job(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Fire a job again. Safe: as for the pause."""
    locked = ask_locked(tx, job)
    open_pause = tx.send("open_pause", space=tx.namespace, job=job)
    row = living_job(job, locked.row)
    if row.paused_at is None:
        return False
    pause = open_pause.row
    until = tx.now if pause is None else max(pause.start, tx.now)
    tx.send("resume_job", job=row.id, until=max(until, row.pause_ended_at or until), expect=1)
    if pause is not None:
        tx.send("end_pause", pause=pause.id, until=until)
    record(tx, by, "resume", job, why)
    return True
