"""The verb that takes a job's schedule back."""

from __future__ import annotations

from cronsensus.model.rewind import REWIND, Rewind
from cronsensus.stores.sql.job_rows import find_locked, living_job
from cronsensus.stores.sql.occurrence_rows import micros
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import to_micros


def rewind_job(tx: Transaction, rewind: Rewind, *, by: str, why: str) -> bool:
    """Take a job's schedule back. Safe: its row is locked, and the UPDATE asks for all that the step rests on."""
    row = living_job(rewind.job, find_locked(tx, rewind.job))
    seen, to, began = to_micros(rewind.watermark_seen), to_micros(rewind.watermark), to_micros(rewind.eras[-1].since)
    if row.paused_at is not None or (row.watermark, row.revision) != (seen, rewind.revision):
        return False
    tx.send(
        "rewind_job",
        job=row.id,
        seen=seen,
        revised=rewind.revision,
        watermark=to,
        following=micros(rewind.next_due),
        began=began,
        expect=1,
    )
    tx.send("withdraw_verdicts", job=row.id, watermark=to)
    for one in rewind.cut:
        tx.send("cut_verdict", job=row.id, verdict=one.id, until=to_micros(one.range.last), many=one.range.count)
    tx.send("withdraw_occurrences", job=row.id, watermark=to)
    tx.send("withdraw_pauses", job=row.id, watermark=to)
    tx.send("cut_pauses", job=row.id, watermark=to)
    tx.send("withdraw_eras", job=row.id, began=began, revised=rewind.revision)
    tx.send("begin_era_before", job=row.id, began=began)
    record(tx, by, REWIND, rewind.job, why, **rewind.details)
    return True
