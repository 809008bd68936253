"""The verb that carries plans out: occurrences, verdicts, watermark and next due time in one step. Floor 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from cronsensus.errors import StoreUnavailable
from cronsensus.model.instants import to_micros
from cronsensus.model.occurrence import scheduled_key
from cronsensus.model.plan import Plan, VerdictRange
from cronsensus.model.states import Origin, Reason
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import specs_of
from cronsensus.stores.sql.occurrencerows import (
    ACTIVE,
    PENDING,
    RUNNING,
    SERIAL,
    insert_absent,
    micros,
    new_row,
    write_payload,
)
from cronsensus.stores.sql.schema import jobs, occurrences, verdicts
from cronsensus.stores.sql.transaction import Transaction

_j, _o = jobs.c, occurrences.c

_JOBS_LOCKED = (
    select(_j.id, _j.revision, _j.watermark, _j.paused_at, _j.retired_at)
    .where(_j.id.in_(bindparam("ids", expanding=True)), _j.namespace == bindparam("space"))
    .order_by(_j.id)
    .with_for_update()
)
# Counted in a statement of its own, after the jobs are locked: what another node committed while this one waited is
# seen.
_ACTIVE = (
    select(_o.job_id, func.count().label("active"))
    .where(_o.job_id.in_(bindparam("ids", expanding=True)), SERIAL, ACTIVE)
    .group_by(_o.job_id)
)
_MOVE_WATERMARK = (
    update(jobs)
    .where(_j.id == bindparam("job"), _j.watermark == bindparam("seen"), _j.revision == bindparam("of_revision"))
    .values(watermark=bindparam("decided"), next_due=bindparam("next"), wake_at=bindparam("next"))
)
INSERT_VERDICTS = insert(verdicts)
_CANCEL_PENDING = (
    update(occurrences)
    .where(_o.job_id == bindparam("job"), SERIAL, ACTIVE, PENDING)
    .values(state="cancelled", reason=Reason.REPLACED, finished_at=bindparam("now"))
)
_ASK_RUNNING = (
    update(occurrences)
    .where(_o.job_id == bindparam("job"), SERIAL, ACTIVE, RUNNING, _o.cancel_reason.is_(None))
    .values(cancel_reason=Reason.REPLACED)
)


@dataclass(slots=True)
class _Job:
    """A job as this transaction sees it, moved along by the plans that were carried out."""

    row: AnyRow
    watermark: int
    active: int


def fire(tx: Transaction, plans: Sequence[Plan]) -> list[bool]:
    """Carry out each plan that still rests on what is there; ``True`` where this caller won.

    Safe when two nodes fire the same job at the same instant: the jobs' rows are locked (or the transaction has the one
    write lock) before they are compared, and the UPDATE that moves a watermark asks once more for the one that was
    seen. Below that lies the unique key of (job, nominal time).
    """
    ids = {plan.job_id for plan in plans}
    rows = tx.rows_in(_JOBS_LOCKED, "ids", sorted(ids), space=tx.namespace)
    active = {row.job_id: row.active for row in tx.rows_in(_ACTIVE, "ids", sorted(ids))}
    found = {row.id: _Job(row, row.watermark, active.get(row.id, 0)) for row in rows}
    specs = specs_of(tx, {row.id: row.revision for row in rows})
    won: list[bool] = []
    moved: list[dict[str, Any]] = []
    created: list[dict[str, Any]] = []
    decided: list[dict[str, Any]] = []
    for plan in plans:
        job = found.get(plan.job_id)
        ok = job is not None and _still_holds(plan, job)
        won.append(ok)
        if job is None or not ok:
            continue
        if plan.cancel_previous:
            # What this call itself created before for the job is among the earlier ones.
            insert_absent(tx, created)
            created.clear()
            tx.change(_CANCEL_PENDING, job=plan.job_id, now=tx.now)
            tx.change(_ASK_RUNNING, job=plan.job_id)
        spec = specs[plan.job_id]
        payload = write_payload(spec.args, spec.kwargs, what="arguments") if plan.occurrences else None
        created += [
            new_row(
                tx,
                plan.job_id,
                spec,
                scheduled_key(planned.scheduled_for),
                Origin.SCHEDULE,
                due_at=to_micros(planned.due_at),
                payload=payload,
                scheduled_for=to_micros(planned.scheduled_for),
                expires_at=micros(planned.expires_at),
            )
            for planned in plan.occurrences
        ]
        decided += [verdict_row(tx, plan.job_id, verdict) for verdict in plan.verdicts]
        watermark = to_micros(plan.watermark)
        moved.append(
            {
                "job": plan.job_id,
                "seen": job.watermark,
                "of_revision": plan.revision,
                "decided": watermark,
                "next": micros(plan.next_due),
            }
        )
        job.watermark = watermark
        if spec.policies.overlap != "allow":
            job.active += len(plan.occurrences)
    if tx.change_many(_MOVE_WATERMARK, moved) != len(moved):
        raise StoreUnavailable("a watermark moved under a lock; nothing was written; please report this")
    insert_absent(tx, created)
    tx.change_many(INSERT_VERDICTS, decided)
    return won


def _still_holds(plan: Plan, job: _Job) -> bool:
    """Whether everything that the plan rests on is as it was when the plan was made."""
    row = job.row
    seen = (to_micros(plan.watermark_seen), plan.revision, plan.active_seen)
    return (
        row.paused_at is None
        and row.retired_at is None
        and seen == (job.watermark, row.revision, job.active)
        and to_micros(plan.watermark) >= job.watermark
    )


def verdict_row(tx: Transaction, job: int, verdict: VerdictRange) -> dict[str, Any]:
    """Return a range as the values of a row."""
    return {
        "job_id": job,
        "first": to_micros(verdict.first),
        "last": to_micros(verdict.last),
        "state": verdict.state.value,
        "reason": verdict.reason,
        "count": verdict.count,
        "decided_at": tx.now,
    }
