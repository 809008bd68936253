"""The verb for hosts where another program keeps time: win one named occurrence now."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import bindparam, or_, select, update

from cronsensus.codec import write_payload
from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import MOST_IN_FUTURE, Claim, Named, too_early, too_old
from cronsensus.model.states import Origin
from cronsensus.stores.sql.choosing import CLAIMED, Choice, read_claimed
from cronsensus.stores.sql.claiming import expire_if_any, start
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import find_locked, living, spec_of
from cronsensus.stores.sql.occurrencerows import PENDING, Keys, insert_absent, new_row
from cronsensus.stores.sql.pruning import delete_occurrences
from cronsensus.stores.sql.schema import eras, jobs, occurrences
from cronsensus.stores.sql.sessions import require_alive
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import read_one

_o = occurrences.c
_MICROSECOND = timedelta(microseconds=1)
_STANDING = (
    select(*CLAIMED, _o.state, _o.finished_at, _o.fingerprint)
    .where(_o.job_id == bindparam("job"), _o.key == bindparam("name"))
    .with_for_update()
)
_DUE_NOW = update(occurrences).where(_o.id == bindparam("occurrence"), PENDING).values(due_at=bindparam("now"))
_TELL_APART = (
    update(occurrences).where(_o.id == bindparam("occurrence"), PENDING).values(fingerprint=bindparam("told_apart_by"))
)
_ERAS = select(eras.c.trigger).where(eras.c.job_id == bindparam("job"))
_FIRST_ERA = _ERAS.order_by(eras.c.id).limit(1)
_ERA_OF = _ERAS.where(eras.c.since < bindparam("time")).order_by(eras.c.since.desc(), eras.c.id.desc()).limit(1)
_MOVE_WATERMARK = (
    update(jobs)
    .where(
        jobs.c.id == bindparam("job"),
        jobs.c.watermark < bindparam("decided"),
        # What an earlier trigger still owes is decided first, or it would never be.
        or_(jobs.c.next_due.is_(None), jobs.c.next_due > bindparam("decided")),
    )
    .values(watermark=bindparam("decided"))
)


def acquire(
    tx: Transaction, session: str, job: str, wanted: Named, lease: timedelta, *, fingerprint: str | None
) -> Claim | None:
    """Win the occurrence, creating it if it is not there; ``None``: somebody else has or had it.

    Safe when two nodes want the same at the same instant: the unique key of (job, key) lets one INSERT in, and the
    UPDATE in ``start`` takes the row only while it is pending. The job's row is locked, so only one of them deletes
    what was kept long enough.
    """
    holder = require_alive(tx, session)
    row = living(job, find_locked(tx, job))
    scheduled_for = wanted.scheduled_for
    at = None if scheduled_for is None else to_micros(scheduled_for)
    if scheduled_for is not None:
        refuse_pruned(job, row.horizon, scheduled_for)
        if scheduled_for - from_micros(tx.now) > MOST_IN_FUTURE:
            raise too_early(job, scheduled_for, from_micros(tx.now))
    expire_if_any(tx)
    if at is not None and not _is_kept_elsewhere(tx, row.id, at):
        return None
    spec = spec_of(tx, row)
    created = False
    if at is None or row.paused_at is None:
        origin = Origin.ENQUEUE if at is None else Origin.SCHEDULE
        payload = write_payload(spec.args, spec.kwargs, what="arguments")
        new = new_row(
            tx, row.id, spec, wanted.key, origin,
            due_at=tx.now, payload=payload, scheduled_for=at, fingerprint=fingerprint,
        )  # fmt: skip
        before = Keys(tx, [(row.id, wanted.key)])
        insert_absent(tx, [new])
        created = not before.found()
    standing = tx.row(_STANDING, job=row.id, name=wanted.key)
    if at is None and standing is not None and _is_over(standing, spec, tx.now):
        delete_occurrences(tx, [standing.id])
        insert_absent(tx, [new])
        standing = tx.row(_STANDING, job=row.id, name=wanted.key)
    if standing is None or standing.state != "pending":
        return None
    if standing.due_at > tx.now:
        tx.change(_DUE_NOW, occurrence=standing.id, now=tx.now)
        standing = tx.row(_STANDING, job=row.id, name=wanted.key) or standing
    if standing.fingerprint is not None and standing.attempt > 0:
        fingerprint = standing.fingerprint
    elif standing.fingerprint != fingerprint:
        tx.change(_TELL_APART, occurrence=standing.id, told_apart_by=fingerprint)
    if created and at is not None and spec.trigger is None:
        tx.change(_MOVE_WATERMARK, job=row.id, decided=at)
    arguments = read_one(standing, read_claimed, f"run {standing.id} of job {job!r}")
    chosen = Choice(frozenset(), 1, chosen=[standing], specs={row.id: spec}, payloads={standing.id: arguments})
    taken = start(tx, chosen, session, holder.node, lease)
    return replace(taken.claims()[0], fingerprint=fingerprint)


def _is_over(row: AnyRow, spec: JobSpec, now: int) -> bool:
    """Whether an occurrence ended longer ago than its job keeps it."""
    return row.finished_at is not None and row.finished_at < now - spec.policies.keep // _MICROSECOND


def _is_kept_elsewhere(tx: Transaction, job: int, time: int) -> bool:
    """Whether another program keeps the job's time then: it had no trigger; before it was defined, as at first.

    The job's row is locked, so no trigger comes to hold in between.
    """
    era = tx.row(_ERA_OF, job=job, time=time) or tx.row(_FIRST_ERA, job=job)
    return era is not None and era.trigger is None


def refuse_pruned(job: str, horizon: int | None, scheduled_for: datetime) -> None:
    """Raise if what is known of a nominal time may have been deleted."""
    if horizon is not None and to_micros(scheduled_for) <= horizon:
        raise too_old(job, scheduled_for, from_micros(horizon))
