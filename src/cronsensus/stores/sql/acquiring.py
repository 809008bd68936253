"""The verb for hosts where another program keeps time: win one named occurrence now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cronsensus.codec import read_payload, write_payload
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import MOST_IN_FUTURE, Claim, Named, too_early, too_old
from cronsensus.model.states import Origin
from cronsensus.stores.sql.claim_query import ORIGINS, read_claimed
from cronsensus.stores.sql.claiming import expire, prolong
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import living, spec_of
from cronsensus.stores.sql.occurrence_rows import insert_absent, instant, new_row
from cronsensus.stores.sql.pruning import delete_occurrences
from cronsensus.stores.sql.sessions import not_alive
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import read_one

_MICROSECOND = timedelta(microseconds=1)


def acquire(
    tx: Transaction, session: str, job: str, wanted: Named, lease: timedelta, *, fingerprint: str | None
) -> Claim | None:
    """Win the occurrence, creating it if it is not there; ``None``: another session has or had it.

    The first trip locks the job and what stands under the key; the second one writes, locks the session last, and ends
    the transaction.

    Safe when two nodes want the same at the same instant: the job's row is locked, so only one of them creates the
    occurrence, or deletes what was kept long enough; below that lies the unique key of (job, key). What stands under
    the key is locked too, and the UPDATE takes it only while it is pending.

    Raises:
        LeaseLost: the session is not alive; nothing was written.
    """
    at = None if wanted.scheduled_for is None else to_micros(wanted.scheduled_for)
    of: dict[str, Any] = {"space": tx.namespace, "job": job}
    locked = tx.send("lock_job_for", **of, session=session, boot=tx.epoch, moment=tx.moment, now=tx.instant())
    existing = tx.send("lock_named", **of, key=wanted.key)
    ruled = None if at is None else tx.send("era_of", **of, time=at)
    if locked.row is not None and locked.row.holder is None:
        raise not_alive(session)
    row = living(job, locked.row)
    if wanted.scheduled_for is not None:
        refuse_pruned(job, row.horizon, wanted.scheduled_for)
        if wanted.scheduled_for - from_micros(tx.now) > MOST_IN_FUTURE:
            raise too_early(job, wanted.scheduled_for, from_micros(tx.now))
    if row.late:
        expire(tx)
        existing = tx.send("lock_named", **of, key=wanted.key)
    if ruled is not None and not _is_kept_elsewhere(ruled.row):
        return None
    spec, found = spec_of(tx, row), existing.row
    if found is not None and at is None and _is_over(found, spec, tx.now):
        delete_occurrences(tx, [found.id])
        found = None
    if found is not None and found.state != "pending":
        return None
    if found is not None:
        args, kwargs = read_one(found, read_claimed, f"run {found.id} of job {job!r}")
        due_at, origin = min(found.due_at, tx.now), ORIGINS[found.origin]
        if found.fingerprint is not None and found.attempt > 0:
            fingerprint = found.fingerprint
    elif at is not None and row.paused_at is not None:
        return None
    else:
        due_at, origin = tx.now, Origin.ENQUEUE if at is None else Origin.SCHEDULE
        payload = write_payload(spec.args, spec.kwargs, what="arguments")
        args, kwargs = read_payload(payload)
        new = new_row(tx, row.id, spec, wanted.key, origin, due_at=due_at, payload=payload, scheduled_for=at)
        insert_absent(tx, [new])
        if at is not None and spec.trigger is None:
            tx.send("pass_watermark", job=row.id, decided=at)
    prolong(tx, session, lease)
    answer = tx.take_tokens(1, read_by="named_run", job=row.id, key=wanted.key)
    tx.send(
        "start_named", job=row.id, key=wanted.key, holder=session, machine=row.holder, now=max(tx.by_now, due_at),
        due=due_at, fingerprint=fingerprint, expect=1,
    )  # fmt: skip
    tx.commit()
    return Claim(
        id=answer.row.id,
        spec=spec,
        key=wanted.key,
        origin=origin,
        scheduled_for=instant(at) if found is None else instant(found.scheduled_for),
        due_at=from_micros(due_at),
        attempt=1 if found is None else found.attempt + 1,
        token=answer.row.last,
        session=session,
        args=args,
        kwargs=kwargs,
        claimed_at=from_micros(tx.now),
        crashes=0 if found is None else found.crashes,
        failures=0 if found is None else found.failures,
        fingerprint=fingerprint,
        parent=None if found is None else found.parent,
        listed=None if found is None else found.listed,
        created_at=from_micros(tx.now if found is None else found.created_at),
        note=None if found is None else found.note,
    )


def _is_over(row: AnyRow, spec: JobSpec, now: int) -> bool:
    """Whether an occurrence ended longer ago than its job keeps it."""
    return row.finished_at is not None and row.finished_at < now - spec.policies.keep // _MICROSECOND


def _is_kept_elsewhere(era: AnyRow | None) -> bool:
    """Whether another program keeps the job's time then: no trigger ruled; before it was defined, as at first."""
    return era is not None and era.trigger is None


def refuse_pruned(job: str, horizon: int | None, scheduled_for: datetime) -> None:
    """Raise if what is known of a nominal time may have been deleted."""
    if horizon is not None and to_micros(scheduled_for) <= horizon:
        raise too_old(job, scheduled_for, from_micros(horizon))
