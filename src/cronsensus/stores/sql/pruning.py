"""The verb that forgets: final occurrences with their runs and logs, verdict ranges, and sessions that ended.

What may go is looked for without the write lock: a final state has no exit, so what was final then is final still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Select,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    update,
)

from cronsensus.instants import LATEST_MICROS, to_micros
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.schema import along, jobs, logs, occurrences, runs, sessions, trail, verdicts
from cronsensus.stores.sql.transaction import Transaction, pieces
from cronsensus.stores.unreadable import sound
from cronsensus.stores.values import REMEMBERED

_o, _j, _v, _s, _t = occurrences.c, jobs.c, verdicts.c, sessions.c, trail.c
_MICROSECOND = timedelta(microseconds=1)
SESSIONS_KEPT = timedelta(days=1)
"""For how long ended sessions stay."""
AT_ONCE = 1000
MOST_BATCHES = 50
"""Batches of ended sessions and of old entries that one prune deletes, each in a transaction of its own."""

# Hidden in a function, so that jobs are walked by id: an index would give them in another order, and all that is old
# would have to be sorted to find the first thousand.
_HERE = func.coalesce(_j.namespace, "") == bindparam("space")
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)


def _old(before: object) -> Select[tuple[int, int, int | None]]:
    # What lies above the watermark stays: its key is what keeps a later fire from creating it again.
    return (
        select(_o.id, _o.job_id, _o.scheduled_for.label("last"))
        .join_from(jobs, occurrences, _o.job_id == _j.id)
        .where(
            _HERE,
            _o.finished_at.is_not(None),
            _o.finished_at < before,
            or_(_o.scheduled_for.is_(None), _o.scheduled_for <= _j.watermark),
        )
        .order_by(_j.id, _o.finished_at, _o.id)
        .limit(bindparam("limit"))
    )


def _old_ranges(before: object) -> Select[tuple[int, int, int]]:
    return (
        select(_v.id, _v.job_id, _v.last)
        .join_from(jobs, verdicts, _v.job_id == _j.id)
        .where(_HERE, _v.last < before)
        .order_by(_j.id, _v.last, _v.id)
        .limit(bindparam("limit"))
    )


# In bounds, because a database does not take a sum that leaves its integers, and then nothing is pruned at all.
_KEEP: ColumnElement[int] = case((_j.keep < 0, 0), (_j.keep > LATEST_MICROS, LATEST_MICROS), else_=_j.keep)
_KEPT: ColumnElement[int] = bindparam("now", type_=BigInteger) - _KEEP
_BEFORE: BindParameter[int] = bindparam("before", type_=BigInteger)


def _jobs_with_old(job: ColumnElement[int], ended: ColumnElement[Any], before: object) -> Select[tuple[int, int, int]]:
    """Return the query for jobs of which something ended before; one seek in the index for each job."""
    earliest = select(job, func.min(ended).label("ended")).where(ended.is_not(None)).group_by(job)
    first = (earliest.with_hint(*along("final")) if ended is _o.finished_at else earliest).subquery("first")
    return (
        select(_j.id, _KEEP.label("keep"), _j.watermark)
        .join_from(first, jobs, _j.id == first.c.job_id)
        .where(_HERE, first.c.ended < before)
        .order_by(_j.id)
    )


_OLD_OF_JOB = (
    select(_o.id, _o.job_id, _o.scheduled_for.label("last"))
    .with_hint(*along("final"))
    .where(
        _o.job_id == bindparam("job"),
        _o.finished_at.is_not(None),
        _o.finished_at < bindparam("before"),
        or_(_o.scheduled_for.is_(None), _o.scheduled_for <= bindparam("watermark")),
    )
    .order_by(_o.finished_at, _o.id)
    .limit(bindparam("limit"))
)
_RANGES_OF_JOB = (
    select(_v.id, _v.job_id, _v.last)
    .where(_v.job_id == bindparam("job"), _v.last < bindparam("before"))
    .order_by(_v.last, _v.id)
    .limit(bindparam("limit"))
)
_OLD_SESSIONS = (
    select(_s.id)
    .where(_s.namespace == bindparam("space"), _s.ended_at.is_not(None), _s.ended_at < bindparam("before"))
    .limit(AT_ONCE)
)
# The oldest by number, which is the order of the index; they are as good as the oldest by time.
_OLDEST_TRAIL = select(_t.id, _t.at).where(_t.namespace == bindparam("space")).order_by(_t.id).limit(AT_ONCE)


class Questions(NamedTuple):
    """What is asked to find what is over, of one table: before each job's own ``keep``, or before a moment.

    The last three ask for the same job by job.
    """

    kept: Select[Any]
    before: Select[Any]
    jobs_kept: Select[Any]
    jobs_before: Select[Any]
    of_job: Select[Any]


_OCCURRENCES, _RANGES = (
    Questions(old(_KEPT), old(_BEFORE), _jobs_with_old(job, ended, _KEPT), _jobs_with_old(job, ended, _BEFORE), of_job)
    for old, job, ended, of_job in (
        (_old, _o.job_id, _o.finished_at, _OLD_OF_JOB),
        (_old_ranges, _v.job_id, _v.last, _RANGES_OF_JOB),
    )
)
_DELETE_LOGS = delete(logs).where(logs.c.occurrence_id.in_(_IDS))
_DELETE_RUNS = (
    delete(runs)
    .where(runs.c.occurrence_id.in_(_IDS))
    # Oracle's MySQL, with statistics of a table that was small, would rather read and lock all of them.
    .prefix_with("/*+ INDEX(cronsensus_runs cronsensus_runs_of_occurrence) */", dialect="mysql")
)
_DELETE_OCCURRENCES = delete(occurrences).where(_o.id.in_(_IDS), _o.finished_at.is_not(None))
_DELETE_RANGES = delete(verdicts).where(_v.id.in_(_IDS))
_DELETE_SESSIONS = delete(sessions).where(_s.id.in_(_IDS), _s.ended_at.is_not(None))
_DELETE_TRAIL = delete(trail).where(_t.id.in_(_IDS))
_PRUNED: BindParameter[int] = bindparam("pruned", type_=BigInteger)
_RAISE_HORIZON = (
    update(jobs)
    .where(_j.id == bindparam("job"), func.coalesce(_j.horizon, _PRUNED - 1) < _PRUNED)
    .values(horizon=_PRUNED)
)


@dataclass(frozen=True, slots=True)
class Over:
    """What a prune is to delete."""

    occurrences: Sequence[AnyRow] = ()
    ranges: Sequence[AnyRow] = ()
    sessions: list[str] = field(default_factory=list)
    trail: list[int] = field(default_factory=list)

    @property
    def more(self) -> bool:
        """Whether there are so many sessions, or entries of the trail, that there may be more of them."""
        return len(self.sessions) >= AT_ONCE or len(self.trail) >= AT_ONCE

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.occurrences or self.ranges or self.sessions or self.trail)


def find(tx: Transaction, before: datetime | None, limit: int) -> Over:
    """Return what ended long enough ago, at most ``limit`` occurrences and ranges."""
    bound = {"now": tx.now} if before is None else {"before": to_micros(before)}
    look = _look_by_job if tx.dialect.groups_by_seeking else _look
    old = look(tx, _OCCURRENCES, bound, limit)
    ranges = look(tx, _RANGES, bound, limit - len(old)) if len(old) < limit else ()
    ended = tx.rows(_OLD_SESSIONS, space=tx.namespace, before=tx.now - SESSIONS_KEPT // _MICROSECOND)
    return Over(old, ranges, [row.id for row in ended], _old_trail(tx))


def find_further(tx: Transaction) -> Over:
    """Return more sessions and entries of the trail that are over."""
    ended = tx.rows(_OLD_SESSIONS, space=tx.namespace, before=tx.now - SESSIONS_KEPT // _MICROSECOND)
    return Over(sessions=[row.id for row in ended], trail=_old_trail(tx))


def _old_trail(tx: Transaction) -> list[int]:
    before = tx.now - REMEMBERED // _MICROSECOND
    return [row.id for row in tx.rows(_OLDEST_TRAIL, space=tx.namespace) if sound(row.at) and row.at < before]


def _look(tx: Transaction, questions: Questions, bound: Mapping[str, int], limit: int) -> Sequence[AnyRow]:
    question = questions.before if "before" in bound else questions.kept
    return tx.rows(question, space=tx.namespace, limit=limit, **bound)


def _look_by_job(tx: Transaction, questions: Questions, bound: Mapping[str, int], limit: int) -> Sequence[AnyRow]:
    """Look job by job: MySQL would walk over all that ever ended, and sort it, to find the first of it."""
    question = questions.jobs_before if "before" in bound else questions.jobs_kept
    found: list[AnyRow] = []
    for job in tx.rows(question, space=tx.namespace, **bound):
        before = bound["before"] if "before" in bound else bound["now"] - job.keep
        more = {"watermark": job.watermark} if questions is _OCCURRENCES else {}
        found += tx.rows(questions.of_job, job=job.id, before=before, limit=limit - len(found), **more)
        if len(found) >= limit:
            break
    return found


def prune(tx: Transaction, over: Over) -> int:
    """Delete, and raise each job's horizon over what is deleted.

    Safe when two nodes prune at the same instant: deleting what is gone does nothing, and the UPDATE of a horizon only
    raises it. It happens in the same transaction, so no moment exists at which a deleted occurrence could be created
    again. Jobs are locked before their occurrences, in the order of ids, as ``acquire`` and ``fire`` do it: none of
    them waits for what the other waits for.
    """
    horizons: dict[int, int] = {}
    for row in (*over.occurrences, *over.ranges):
        if sound(row.last):
            horizons[row.job_id] = max(row.last, horizons.get(row.job_id, row.last))
    tx.change_many(_RAISE_HORIZON, [{"job": job, "pruned": last} for job, last in sorted(horizons.items())])
    ids = [row.id for row in over.occurrences]
    tx.change_in(_DELETE_LOGS, "ids", ids)
    tx.change_in(_DELETE_RUNS, "ids", ids)
    deleted = tx.change_in(_DELETE_OCCURRENCES, "ids", ids)
    deleted += tx.change_in(_DELETE_RANGES, "ids", [row.id for row in over.ranges])
    tx.change_in(_DELETE_SESSIONS, "ids", over.sessions)
    tx.change_in(_DELETE_TRAIL, "ids", over.trail)
    return deleted


def delete_occurrences(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete occurrences whose rows the caller has locked, in whatever state, with their runs and logs."""
    tx.send_in("delete_logs", "ids", ids)
    tx.send_in("delete_runs", "ids", ids)
    for piece in pieces(ids, tx.dialect.most_parameters):
        tx.send("delete_occurrences", ids=list(piece), expect=len(piece))
