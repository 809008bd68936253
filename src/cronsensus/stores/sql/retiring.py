"""The verb that stops a job for good, keeping its watermark and its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, select, update

from cronsensus.errors import StoreUnavailable
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.states import Reason
from cronsensus.planning import undecided_until
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.firing import verdict_row
from cronsensus.stores.sql.jobrows import INSERT_ERAS, era_row, find_locked, last_eras, readable_eras
from cronsensus.stores.sql.occurrencerows import LISTED_PENDING, OF_JOBS
from cronsensus.stores.sql.schema import jobs, occurrences
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import MOST_COUNTED, sound, whole
from cronsensus.stores.values import AT_ONCE

_j, _o = jobs.c, occurrences.c
_MICROSECOND = timedelta(microseconds=1)

_RETIRE = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.revision == bindparam("of_revision"), _j.retired_at.is_(None))
    .values(
        retired_at=bindparam("now"),
        revision=bindparam("new"),
        defined_at=bindparam("since"),
        watermark=bindparam("decided"),
        next_due=None,
        wake_at=None,
        waiting_until=bindparam("until"),
    )
)
_OVERDUE = (
    select(_j.id)
    .where(_j.namespace == bindparam("space"), _j.waiting_until.is_not(None), _j.waiting_until <= bindparam("now"))
    .order_by(_j.id)
)
_OVERDUE_LOCKED = _OVERDUE.with_for_update()
_WAITS_NO_MORE = update(jobs).where(_j.id.in_(bindparam("ids", expanding=True))).values(waiting_until=None)
_CANCEL_PENDING = (
    update(occurrences)
    .where(_o.namespace == bindparam("space"), LISTED_PENDING, OF_JOBS)
    .values(state="cancelled", reason=Reason.RETIRED, finished_at=bindparam("now"))
)


def retire(tx: Transaction, job: str, *, by: str, why: str) -> bool:
    """Stop a job for good. Safe: the row is locked when it is read, and the UPDATE asks for its revision."""
    row = find_locked(tx, job)
    if row is None or (row.retired_at is not None and row.waiting_until is None):
        return False
    if row.retired_at is None:
        retire_all(tx, [row], AT_ONCE)
    else:
        _cancel_waiting(tx, [row.id])
    record(tx, by, "retire", job, why)
    return True


def _numbered(row: AnyRow) -> AnyRow:
    """Return a row whose revision is a number, so that an UPDATE may ask for it."""
    whole(row.revision)
    return row


def has_overdue(tx: Transaction) -> bool:
    """Whether there is a retired job whose waiting work was kept long enough."""
    return bool(tx.rows(_OVERDUE, space=tx.namespace, now=tx.now))


def cancel_overdue(tx: Transaction) -> None:
    """Cancel what was kept of retired jobs for long enough.

    Safe when a job is defined again at the same instant: its row is locked, and the time is asked again, before
    anything is cancelled.
    """
    _cancel_waiting(tx, [row.id for row in tx.rows(_OVERDUE_LOCKED, space=tx.namespace, now=tx.now)])


def _cancel_waiting(tx: Transaction, ids: Sequence[int]) -> None:
    tx.change_in(_CANCEL_PENDING, "ids", ids, space=tx.namespace, now=tx.now)
    tx.change_in(_WAITS_NO_MORE, "ids", ids)


def retire_all(tx: Transaction, rows: Sequence[AnyRow], retire_after: timedelta) -> None:
    """Retire jobs: keep or cancel what waits, write down what was not decided, and begin an era without a trigger."""
    rows = tx.unreadable.readable(rows, _numbered, lambda row: f"job {row.name!r} cannot be retired, and")
    if not rows:
        return
    until = tx.now + retire_after // _MICROSECOND if retire_after > AT_ONCE else None
    if until is None:
        _cancel_waiting(tx, [row.id for row in rows])
    known = readable_eras(tx, rows)
    began = last_eras(tx, rows)
    ranges: list[tuple[Any, ...]] = []
    changes: list[dict[str, Any]] = []
    new_eras: list[dict[str, Any]] = []
    for row in rows:
        watermark = row.watermark if sound(row.watermark) else tx.now
        # Where the clock was set back, the last era begins later than now; until then the one before it holds.
        since = max(tx.now, watermark, began.get(row.id, watermark))
        undecided = undecided_until(known[row.id], from_micros(watermark), from_micros(since))
        if undecided is not None:
            ranges.append(verdict_row(tx, row.id, undecided))
            watermark = to_micros(undecided.last)
        revision = row.revision + 1 if sound(row.revision) and 0 < row.revision < MOST_COUNTED else 1
        changes.append(
            {
                "job": row.id,
                "of_revision": row.revision,
                "now": tx.now,
                "decided": watermark,
                "since": since,
                "new": revision,
                "until": until,
            }
        )
        new_eras.append(era_row(row.id, since, revision, None))
    if tx.change_many(_RETIRE, changes) != len(changes):
        raise StoreUnavailable("a job changed under a lock; nothing was written; please report this")
    tx.send_rows("insert_verdicts", ranges)
    tx.change_many(INSERT_ERAS, new_eras)
