"""The verb that stops a job for good, keeping its watermark and its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from cronsensus.planning import undecided_until
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.firing import verdict_row
from cronsensus.stores.sql.job_rows import find_locked, last_eras, readable_eras
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import LARGEST_COUNT, is_sound, whole_number
from cronsensus.stores.values import NO_DELAY
from cronsensus.timing.instants import from_micros, to_micros

_MICROSECOND = timedelta(microseconds=1)


def retire_job(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop a job for good. Safe: the row is locked when it is read, and the UPDATE asks for its revision."""
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
    """Return a row whose revision is a number, so that an UPDATE may ask for it."""
    whole_number(row.revision)
    return row


def ask_overdue(tx: Transaction) -> Pending:
    """Ask for retired jobs whose waiting work was kept long enough."""
    return tx.send("overdue_jobs", space=tx.namespace, now=tx.instant())


def cancel_overdue(tx: Transaction) -> None:
    """Cancel what was kept of retired jobs for long enough.

    Safe when a job is defined again at the same instant: its row is locked, and the time is asked again, before
    anything is cancelled.
    """
    _cancel_waiting(tx, [row.id for row in tx.send("lock_overdue_jobs", space=tx.namespace, now=tx.instant()).rows])


def _cancel_waiting(tx: Transaction, ids: Sequence[int]) -> None:
    tx.send_in("cancel_waiting", "ids", ids, space=tx.namespace, now=tx.now)
    tx.send_in("wait_no_more", "ids", ids)


def retire_all(tx: Transaction, rows: Sequence[AnyRow], retire_after: timedelta) -> None:
    """Retire jobs: keep or cancel what waits, write down what was not decided, and begin an era without a trigger."""
    rows = tx.unreadable.keep_readable(rows, _with_revision, lambda row: f"job {row.name!r} cannot be retired, and")
    if not rows:
        return
    asked = tx.send_in("beginnings", "ids", [row.id for row in rows])
    known = readable_eras(tx, rows)
    began = last_eras(asked)
    until = tx.now + retire_after // _MICROSECOND if retire_after > NO_DELAY else None
    if until is None:
        _cancel_waiting(tx, [row.id for row in rows])
    ranges: list[tuple[Any, ...]] = []
    changes: list[tuple[Any, ...]] = []
    new_eras: list[tuple[Any, ...]] = []
    for row in rows:
        watermark = row.watermark if is_sound(row.watermark) else tx.now
        # Where the clock was set back, the last era begins later than now; until then the one before it holds.
        since = max(tx.now, watermark, began.get(row.id, watermark))
        undecided = undecided_until(known[row.id], from_micros(watermark), from_micros(since))
        if undecided is not None:
            ranges.append(verdict_row(tx, row.id, undecided))
            watermark = to_micros(undecided.last)
        revision = row.revision + 1 if is_sound(row.revision) and 0 < row.revision < LARGEST_COUNT else 1
        changes.append((tx.now, revision, since, watermark, until, row.id, row.revision))
        new_eras.append((row.id, since, revision, None, None))
    tx.send_rows("retire_jobs", changes, one_each=True)
    tx.send_rows("insert_verdicts", ranges)
    tx.send_rows("insert_further_eras", new_eras)
