"""The verb ``retire``: stop a job for good, and keep its watermark and its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from cronsensus.planning import undecided_until
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.firing import verdict_row
from cronsensus.stores.sql.job_rows import find_locked, last_eras, readable_eras
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import LARGEST_COUNT, is_sound, whole_number
from cronsensus.stores.values import NO_DELAY
from cronsensus.timing.instants import from_micros, to_micros

_MICROSECOND = timedelta(microseconds=1)
_OPEN_FOR = timedelta(days=1)
"""How long a user's transaction may stay open and still add an occurrence."""


def retire_job(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop a job for good. Safe: the row is locked when it is read, and the UPDATE compares its revision."""
    row = find_locked(tx, job)
    if row is None:
        return False
    stops = row.retired_at is None or row.waiting_until is not None
    if row.retired_at is None:
        retire_all(tx, [row], NO_DELAY)
    elif stops:
        _cancel_waiting(tx, [row.id])
    record(tx, by, "retire", job, why)
    return stops


def _with_revision(row: AnyRow) -> AnyRow:
    """Return the row if its revision is a number, so that an UPDATE can compare it."""
    whole_number(row.revision)
    return row


class OverduePending:
    """A search for pending occurrences of retired jobs that are to be cancelled; it is sent when this is made.

    They were kept long enough, or a user's transaction added them after the job was retired.
    """

    def __init__(self, tx: Transaction) -> None:
        """Send the search."""
        self._kept = tx.send("overdue_jobs", space=tx.namespace, now=tx.instant())
        self._late = tx.send("lately_retired", space=tx.namespace, recent=tx.instant(-_OPEN_FOR // _MICROSECOND))

    def __bool__(self) -> bool:
        """Whether there may be something."""
        return bool(self._kept.rows or self._late.rows)

    def cancel(self, tx: Transaction) -> None:
        """Cancel them, in a transaction that writes.

        Safe when a job is defined again at the same instant: its row is locked, and it is checked again whether the job
        is retired, before anything is cancelled.
        """
        kept = tx.send("lock_overdue_jobs", space=tx.namespace, now=tx.instant()).rows if self._kept.rows else ()
        late = tx.send_in("lock_definitions", "ids", [row.id for row in self._late.rows])
        retired = [row.id for answer in late for row in answer.rows if row.retired_at is not None]
        _cancel_waiting(tx, [row.id for row in kept] + retired)


def _cancel_waiting(tx: Transaction, ids: Sequence[int]) -> None:
    waiting = [
        row.id for answer in tx.send_in("pending_of_retired", "jobs", ids, space=tx.namespace) for row in answer.rows
    ]
    tx.send_in("cancel_waiting", "ids", waiting, now=tx.now)
    tx.send_in("clear_waiting_until", "ids", ids)


def retire_all(tx: Transaction, rows: Sequence[AnyRow], retire_after: timedelta) -> None:
    """Retire jobs: keep or cancel pending runs, give undecided times a verdict, begin an era without a trigger."""
    rows = tx.unreadable.keep_readable(rows, _with_revision, lambda row: f"job {row.name!r} cannot be retired, and")
    if not rows:
        return
    era_answers = tx.send_in("era_beginnings", "ids", [row.id for row in rows])
    eras = readable_eras(tx, rows)
    last_eras_since = last_eras(era_answers)
    pending_kept_until = tx.now + retire_after // _MICROSECOND if retire_after > NO_DELAY else None
    if pending_kept_until is None:
        _cancel_waiting(tx, [row.id for row in rows])
    range_rows: list[tuple[Any, ...]] = []
    job_rows: list[tuple[Any, ...]] = []
    era_rows: list[tuple[Any, ...]] = []
    for row in rows:
        watermark = row.watermark if is_sound(row.watermark) else tx.now
        # Where the clock was set back, the last era begins later than now; until then the one before it holds.
        since = max(tx.now, watermark, last_eras_since.get(row.id, watermark))
        undecided = undecided_until(eras[row.id], from_micros(watermark), from_micros(since))
        if undecided is not None:
            range_rows.append(verdict_row(tx, row.id, undecided))
            watermark = to_micros(undecided.last)
        revision = row.revision + 1 if is_sound(row.revision) and 0 < row.revision < LARGEST_COUNT else 1
        job_rows.append((tx.now, revision, since, watermark, pending_kept_until, row.id, row.revision))
        era_rows.append((row.id, since, revision, None, None))
    tx.send_rows("retire_jobs", job_rows, one_each=True)
    tx.send_rows("insert_verdicts", range_rows)
    tx.send_rows("insert_further_eras", era_rows)
