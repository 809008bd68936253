"""The verb ``rewind``: move a job's watermark back, so that its times since then are decided again."""

from __future__ import annotations

from cronsensus.model.rewind import REWIND, Rewind
from cronsensus.stores.sql.job_rows import find_locked, living_job
from cronsensus.stores.sql.occurrence_rows import micros
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import to_micros


def rewind_job(tx: Transaction, rewind: Rewind, *, by: str, why: str) -> bool:
    """Rewind a job. Safe: its row is locked, and the UPDATE compares watermark, revision and pause again."""
    row = living_job(rewind.job, find_locked(tx, rewind.job))
    seen_watermark, watermark = to_micros(rewind.watermark_seen), to_micros(rewind.watermark)
    era_began = to_micros(rewind.eras[-1].since)
    if row.paused_at is not None or (row.watermark, row.revision) != (seen_watermark, rewind.revision):
        return False
    tx.send(
        "rewind_job",
        job=row.id,
        seen=seen_watermark,
        revised=rewind.revision,
        watermark=watermark,
        following=micros(rewind.next_due),
        began=era_began,
        expect=1,
    )
    tx.send("withdraw_verdicts", job=row.id, watermark=watermark)
    for ledger_range in rewind.cut:
        tx.send(
            "cut_verdict",
            job=row.id,
            verdict=ledger_range.id,
            until=to_micros(ledger_range.range.last),
            many=ledger_range.range.count,
        )
    tx.send("withdraw_occurrences", job=row.id, watermark=watermark)
    tx.send("withdraw_pauses", job=row.id, watermark=watermark)
    tx.send("cut_pauses", job=row.id, watermark=watermark)
    tx.send("withdraw_eras", job=row.id, began=era_began, revised=rewind.revision)
    tx.send("begin_era_before", job=row.id, began=era_began)
    record(tx, by, REWIND, rewind.job, why, **rewind.details)
    return True
