"""The verb that carries plans out: occurrences, verdicts, watermark and next due time in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from cronsensus.codec import write_payload
from cronsensus.errors import StoreUnavailable
from cronsensus.instants import to_micros
from cronsensus.model.occurrence import scheduled_key
from cronsensus.model.plan import Plan, VerdictRange
from cronsensus.model.states import Origin, Reason
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import NAMES_OF_DEFINITION, definition_of, specs_of
from cronsensus.stores.sql.occurrencerows import ACTIVE, PENDING, RUNNING, SERIAL, insert_absent, micros, new_row
from cronsensus.stores.sql.schema import along, jobs, occurrences, verdicts
from cronsensus.stores.sql.transaction import Transaction

_j, _o = jobs.c, occurrences.c

_JOBS_LOCKED = (
    select(_j.id, *NAMES_OF_DEFINITION, _j.watermark, _j.paused_at, _j.retired_at)
    .where(_j.id.in_(bindparam("ids", expanding=True)), func.coalesce(_j.namespace, "") == bindparam("space"))
    .order_by(_j.id)
    .with_for_update()
)
# Counted in a statement of its own, after the jobs are locked: what another node committed while this one waited is
# seen.
_ACTIVE = (
    select(_o.job_id, func.count().label("active"))
    .with_hint(*along("serial"))
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


def fire(tx: Transaction, plans: Sequence[Plan], ahead: int = 0) -> list[bool]:
    """Carry out each plan that still rests on what is there; ``True`` where this caller won.

    ``ahead``: microseconds by which a plan may come before its time.

    Safe when two nodes fire the same job at the same instant: the jobs' rows are locked (or the transaction has the one
    write lock) before they are compared, and the UPDATE that moves a watermark asks once more for the one that was
    seen. Below that lies the unique key of (job, nominal time).
    """
    won = [False] * len(plans)
    left = list(enumerate(plans))
    while left:  # once, unless a job has several plans: each of those must find what the one before did
        now: dict[int, tuple[int, Plan]] = {}
        later: list[tuple[int, Plan]] = []
        for place, plan in left:
            if now.setdefault(plan.job_id, (place, plan)) != (place, plan):
                later.append((place, plan))
        carried_out = _fire(tx, {job: plan for job, (_, plan) in now.items()}, ahead)
        for job, (place, _) in now.items():
            won[place] = job in carried_out
        left = later
    return won


def _fire(tx: Transaction, plans: Mapping[int, Plan], ahead: int) -> set[int]:
    """Carry out one plan each for some jobs; return the jobs of those that still held."""
    rows = tx.rows_in(_JOBS_LOCKED, "ids", sorted(plans), space=tx.namespace)
    active = {row.job_id: row.active for row in tx.rows_in(_ACTIVE, "ids", sorted(plans))}
    until = tx.now + ahead
    held = {row.id: row for row in rows if _still_holds(plans[row.id], row, active.get(row.id, 0), until)}
    specs = specs_of(tx, held)
    moved: list[dict[str, Any]] = []
    created: list[dict[str, Any]] = []
    decided: list[dict[str, Any]] = []
    for job, plan in plans.items():  # in the order given: it becomes the order of ids
        row = held.get(job)
        if row is None:
            continue
        spec = specs[job]
        if plan.cancel_previous:
            tx.change(_CANCEL_PENDING, job=job, now=tx.now)
            tx.change(_ASK_RUNNING, job=job)
        payload = write_payload(spec.args, spec.kwargs, what="arguments") if plan.occurrences else None
        created += [
            new_row(
                tx,
                job,
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
        decided += [verdict_row(tx, job, verdict) for verdict in plan.verdicts]
        moved.append(
            {
                "job": job,
                "seen": row.watermark,
                "of_revision": plan.revision,
                "decided": to_micros(plan.watermark),
                "next": micros(plan.next_due),
            }
        )
    if tx.change_many(_MOVE_WATERMARK, moved) != len(moved):
        raise StoreUnavailable("a watermark moved under a lock; nothing was written; please report this")
    insert_absent(tx, created)
    tx.change_many(INSERT_VERDICTS, decided)
    return set(held)


def _still_holds(plan: Plan, row: AnyRow, active: int, until: int) -> bool:
    """Whether all that the plan rests on is as it was when the plan was made, and whether its time has come."""
    seen = (to_micros(plan.watermark_seen), plan.revision, plan.active_seen)
    return (
        row.paused_at is None
        and row.retired_at is None
        and seen == (row.watermark, row.revision, active)
        and plan.definition in {"", definition_of(row)}
        and to_micros(plan.watermark) >= row.watermark
        and (plan.not_before is None or to_micros(plan.not_before) <= until)
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
