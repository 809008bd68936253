"""Carry out plans: write their occurrences, verdicts, watermark and next due time in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cronsensus.model.occurrence import scheduled_key
from cronsensus.model.plan import Plan, VerdictRange
from cronsensus.model.states import Origin
from cronsensus.payload.codec import write_payload
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import definition_of, specs_of
from cronsensus.stores.sql.occurrence_rows import New, insert_absent, micros, new_row
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import to_micros

_NONE: Mapping[int, int] = MappingProxyType({})


class LockedJobs:
    """The jobs of plans, locked, and how many occurrences of each are active: what plans are compared with.

    The statements are sent when this is made, and the answers read when needed.
    """

    def __init__(self, tx: Transaction, jobs: Iterable[int]) -> None:
        """Send the statements; the count comes after the lock, so it sees what was committed while that waited."""
        ids = sorted(set(jobs))
        self._locked = tx.send_in("lock_jobs", "ids", ids, space=tx.namespace)
        self._counted = tx.send_in("count_active", "ids", ids)

    def read_rows(self) -> tuple[dict[int, AnyRow], dict[int, int]]:
        """Return the rows of jobs and the counts, by id."""
        rows = {row.id: row for answer in self._locked for row in answer.rows}
        return rows, {row.job_id: row.active for answer in self._counted for row in answer.rows}


def carry_out(
    tx: Transaction, plans: Sequence[Plan], locked: LockedJobs, ahead: int = 0, ended: Mapping[int, int] = _NONE
) -> list[bool]:
    """Carry out each plan whose job has not changed since; return which plans were carried out.

    ``ahead``: microseconds by which a plan may come before its time. ``ended``: how many runs of a job this transaction
    has ended since they were counted.

    Safe when two nodes fire the same job at the same instant: the jobs' rows are locked (or the transaction has the one
    write lock) before they are compared, and the UPDATE that moves a watermark compares it once more. Below that lies
    the unique key of (job, nominal time).
    """
    won = [False] * len(plans)
    remaining = list(enumerate(plans))
    while remaining:  # once, unless a job has several plans: each of those must find what the one before did
        current: dict[int, tuple[int, Plan]] = {}
        next_round: list[tuple[int, Plan]] = []
        for place, plan in remaining:
            if current.setdefault(plan.job_id, (place, plan)) != (place, plan):
                next_round.append((place, plan))
        rows, counts = locked.read_rows()
        active = {job: counts.get(job, 0) - ended.get(job, 0) for job in rows}
        carried_out = _fire_some(tx, {job: plan for job, (_, plan) in current.items()}, rows, active, ahead)
        for job, (place, _) in current.items():
            won[place] = job in carried_out
        remaining = next_round
        if remaining:
            locked, ended = LockedJobs(tx, (plan.job_id for _, plan in remaining)), _NONE
    return won


def _fire_some(
    tx: Transaction, plans: Mapping[int, Plan], rows: Mapping[int, AnyRow], active: Mapping[int, int], ahead: int
) -> set[int]:
    """Carry out one plan for each job; return the jobs whose plan was carried out."""
    until = tx.now + ahead
    current_jobs = {
        job: rows[job]
        for job, plan in plans.items()
        if job in rows and _is_plan_current(plan, rows[job], active[job], until)
    }
    specs = specs_of(tx, current_jobs)
    watermark_rows: list[tuple[Any, ...]] = []
    created: list[New] = []
    verdict_rows: list[tuple[Any, ...]] = []
    for job, row in current_jobs.items():  # in the order given: it becomes the order of ids
        plan, spec = plans[job], specs[job]
        if plan.cancel_previous:
            tx.send("cancel_pending", job=job, now=tx.now)
            tx.send("ask_running", job=job)
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
                parked_on=planned.parked_on,
            )
            for planned in plan.occurrences
        ]
        verdict_rows += [verdict_row(tx, job, verdict) for verdict in plan.verdicts]
        watermark_rows.append((to_micros(plan.watermark), micros(plan.next_due), job, row.watermark, plan.revision))
    tx.send_rows("move_watermarks", watermark_rows, one_each=True)
    insert_absent(tx, created)
    tx.send_rows("insert_verdicts", verdict_rows)
    return set(current_jobs)


def _is_plan_current(plan: Plan, row: AnyRow, active: int, until: int) -> bool:
    """Whether nothing has changed since the plan was made, and its time has come."""
    seen = (to_micros(plan.watermark_seen), plan.revision, plan.active_seen)
    return (
        row.paused_at is None
        and row.retired_at is None
        and seen == (row.watermark, row.revision, active)
        and plan.definition in {"", definition_of(row)}
        and to_micros(plan.watermark) >= row.watermark
        and (plan.not_before is None or to_micros(plan.not_before) <= until)
    )


def verdict_row(tx: Transaction, job: int, verdict: VerdictRange) -> tuple[Any, ...]:
    """Return a range as the values of a row."""
    first, last = to_micros(verdict.first), to_micros(verdict.last)
    return (job, first, last, verdict.state.value, verdict.reason, verdict.count, tx.now)
