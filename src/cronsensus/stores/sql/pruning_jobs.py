"""What ``prune`` forgets of jobs: old eras and pauses, retired jobs, releases, locks.

It is looked for without a lock, and looked at again under one: a retired job may be defined in that moment, and a
release may come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)

from cronsensus.instants import LATEST_MICROS, to_micros
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.schema import eras, jobs, locks, occurrences, pauses, releases, sessions, verdicts
from cronsensus.stores.sql.sessions import one_at_a_time
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import sound
from cronsensus.stores.values import HISTORY_KEPT, REMEMBERED

_j, _e, _p, _r, _s = jobs.c, eras.c, pauses.c, releases.c, sessions.c
_MICROSECOND = timedelta(microseconds=1)
_DAY, _YEAR = HISTORY_KEPT // _MICROSECOND, REMEMBERED // _MICROSECOND
AT_ONCE = 1000

_SPACE: BindParameter[str] = bindparam("space")
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_BEFORE: BindParameter[int] = bindparam("before", type_=BigInteger)
# In bounds, because a database does not take a sum that leaves its integers.
_KEPT: ColumnElement[int] = bindparam("now", type_=BigInteger) - case(
    (_j.keep < _DAY, _DAY), (_j.keep > LATEST_MICROS, LATEST_MICROS), else_=_j.keep
)


def _owes_nothing_until(time: ColumnElement[Any]) -> ColumnElement[bool]:
    return or_(_j.next_due.is_(None), time <= _j.watermark, time < _j.next_due)


def _with_old_eras(before: ColumnElement[int]) -> Select[tuple[int]]:
    """Return the query for living jobs with an era that another one has replaced by then; two seeks for each."""
    ours = eras.alias("ours")
    first = select(func.min(ours.c.since)).where(ours.c.job_id == _j.id).correlate(jobs).scalar_subquery()
    last = (
        select(func.max(_e.since))
        .where(_e.job_id == _j.id, _e.since < before, _owes_nothing_until(_e.since))
        .correlate(jobs)
        .scalar_subquery()
    )
    return (
        select(_j.id)
        .with_hint(jobs, "FORCE INDEX (cronsensus_jobs_redefined)", "mysql")
        .where(_j.namespace == _SPACE, _j.revision > literal_column("1"), _j.retired_at.is_(None), first < last)
        .order_by(_j.id)
        .limit(AT_ONCE)
    )


def _old_pauses(before: ColumnElement[int]) -> Select[tuple[int]]:
    return (
        select(_p.id)
        .prefix_with("STRAIGHT_JOIN", dialect="mysql")  # from the pauses, of which there are few, to their jobs
        .join_from(pauses, jobs, _p.job_id == _j.id)
        .where(_j.namespace == _SPACE, _j.retired_at.is_(None))
        .where(_p.end.is_not(None), _p.end < before, _owes_nothing_until(_p.end))
        .order_by(_p.id)
        .limit(AT_ONCE)
    )


_OLD_ERAS = {"kept": _with_old_eras(_KEPT), "before": _with_old_eras(_BEFORE)}
_OLD_PAUSES = {"kept": _old_pauses(_KEPT), "before": _old_pauses(_BEFORE)}
_RETIRED = (
    select(_j.id)
    .with_hint(jobs, "FORCE INDEX (cronsensus_jobs_retired)", "mysql")
    .where(_j.namespace == _SPACE, _j.retired_at.is_not(None), _j.retired_at < _BEFORE, _j.waiting_until.is_(None))
    .where(~exists().where(occurrences.c.job_id == _j.id), ~exists().where(verdicts.c.job_id == _j.id))
    .order_by(_j.id)
    .limit(AT_ONCE)
)
_RETIRED_LOCKED = (
    select(_j.id)
    .where(_j.id.in_(_IDS), _j.retired_at.is_not(None), _j.retired_at < _BEFORE, _j.waiting_until.is_(None))
    .order_by(_j.id)
    .with_for_update()
)
_KEPT_BACK = (
    select(occurrences.c.job_id).where(occurrences.c.job_id.in_(_IDS)).distinct(),
    select(verdicts.c.job_id).where(verdicts.c.job_id.in_(_IDS)).distinct(),
)
_in_space = releases.alias("others")
# The oldest one is the row that ``one_at_a_time`` locks, so it stays.
_REPLACED = (
    select(_r.id, _r.release)
    .where(
        _r.namespace == _SPACE,
        _r.id > select(func.min(_in_space.c.id)).where(_in_space.c.namespace == _SPACE).scalar_subquery(),
        _r.id
        < select(func.max(_in_space.c.id))
        .where(_in_space.c.namespace == _SPACE, _in_space.c.first_seen_at < _BEFORE)
        .scalar_subquery(),
    )
    .order_by(_r.id)
    .limit(AT_ONCE)
)
_OPEN = select(_s.release).where(_s.namespace == _SPACE, _s.ended_at.is_(None)).distinct()
_JOBS_LOCKED = (
    select(_j.id, _j.keep, _j.watermark, _j.next_due, _j.horizon)
    .where(_j.id.in_(_IDS), _j.retired_at.is_(None))
    .order_by(_j.id)
    .with_for_update()
)
_ERAS = select(_e.job_id, _e.since).where(_e.job_id.in_(_IDS))
_MOVED = bindparam("moved", type_=BigInteger)
_RAISE = (
    update(jobs)
    .where(_j.id == bindparam("job"))
    .values(
        watermark=case((_j.watermark < _MOVED, _MOVED), else_=_j.watermark),
        horizon=case((and_(_j.horizon.is_not(None), _j.horizon > _MOVED), _j.horizon), else_=_MOVED),
    )
)
_DELETE_ERAS = delete(eras).where(_e.job_id == bindparam("job"), _e.since < bindparam("moved"))
_DELETE_PAUSES = delete(pauses).where(_p.id.in_(_IDS))
_DELETE_JOBS = (
    delete(eras).where(_e.job_id.in_(_IDS)),
    delete(pauses).where(_p.job_id.in_(_IDS)),
    delete(jobs).where(_j.id.in_(_IDS)),
)
_l = locks.c
# Where the lease ran out, or was counted by a clock of another boot, no process can extend it or give it back.
_RAN_OUT = and_(
    _l.namespace == _SPACE,
    _l.session.is_(None),
    or_(_l.epoch != bindparam("boot"), _l.lease_until <= bindparam("lease_now", type_=BigInteger)),
)
_SOME_RAN_OUT = select(_l.name).where(_RAN_OUT).limit(1)
_DELETE_LOCKS = delete(locks).where(_RAN_OUT)
_DELETE_RELEASES = delete(releases).where(_r.id.in_(_IDS))


@dataclass(frozen=True, slots=True)
class Bygone:
    """What may be forgotten, by id; of the eras the ids of their jobs, of the locks whether there are any."""

    with_old_eras: list[int] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    locks: bool = False

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to forget."""
        return not (self.with_old_eras or self.pauses or self.retired or self.releases or self.locks)

    @property
    def more(self) -> bool:
        """Whether there is so much of something that there may be more of it."""
        return max(map(len, (self.with_old_eras, self.pauses, self.retired, self.releases))) >= AT_ONCE


def find(tx: Transaction, before: datetime | None) -> Bygone:
    """Return what may be forgotten."""
    bound = {"now": tx.now} if before is None else {"before": min(to_micros(before), tx.now - _DAY)}
    which = "kept" if before is None else "before"
    replaced = tx.rows(_REPLACED, space=tx.namespace, before=tx.now - _YEAR)
    if replaced:
        living = _living_releases(tx)
        replaced = [row for row in replaced if row.release not in living]
    return Bygone(
        [row.id for row in tx.rows(_OLD_ERAS[which], space=tx.namespace, **bound)],
        [row.id for row in tx.rows(_OLD_PAUSES[which], space=tx.namespace, **bound)],
        [row.id for row in tx.rows(_RETIRED, space=tx.namespace, before=tx.now - _YEAR)],
        [row.id for row in replaced],
        bool(tx.rows(_SOME_RAN_OUT, space=tx.namespace, **tx.clocks)),
    )


def forget_history(tx: Transaction, bygone: Bygone, before: datetime | None) -> None:
    """Delete eras and pauses, and raise horizon and watermark over the eras.

    Safe when a job is fired or defined at the same instant: its row is locked, and what it owes is asked again. A
    pause that owed nothing owes nothing later: the watermark only rises, and a new definition begins after it.
    """
    tx.change_in(_DELETE_PAUSES, "ids", bygone.pauses)
    if not bygone.with_old_eras:
        return
    found = {row.id: row for row in tx.rows_in(_JOBS_LOCKED, "ids", bygone.with_old_eras)}
    cuts: dict[int, int] = {}
    firsts: dict[int, int] = {}
    for era in tx.rows_in(_ERAS, "ids", sorted(found)):
        if not sound(era.since):
            continue
        firsts[era.job_id] = min(era.since, firsts.get(era.job_id, era.since))
        if _rules_alone(found[era.job_id], era.since, tx.now, before):
            cuts[era.job_id] = max(era.since, cuts.get(era.job_id, era.since))
    moved = [{"job": job, "moved": cut} for job, cut in sorted(cuts.items()) if firsts[job] < cut]
    tx.change_many(_RAISE, moved)
    tx.change_many(_DELETE_ERAS, moved)


def _rules_alone(job: AnyRow, since: int, now: int, before: datetime | None) -> bool:
    """Whether an era began long enough ago, and what came before it owes nothing."""
    if not (sound(job.keep) and sound(job.watermark) and (job.next_due is None or sound(job.next_due))):
        return False
    kept = now - max(job.keep, _DAY) if before is None else min(to_micros(before), now - _DAY)
    return since < kept and (job.next_due is None or since <= job.watermark or since < job.next_due)


def forget_retired(tx: Transaction, ids: list[int]) -> None:
    """Delete retired jobs of which nothing is left.

    Safe when one is defined at the same instant: its row is locked, and asked again whether it is retired.
    """
    locked = {row.id for row in tx.rows_in(_RETIRED_LOCKED, "ids", ids, before=tx.now - _YEAR)}
    for statement in _KEPT_BACK:
        locked -= {row.job_id for row in tx.rows_in(statement, "ids", sorted(locked))}
    for delete_them in _DELETE_JOBS:
        tx.change_in(delete_them, "ids", sorted(locked))


def forget_locks(tx: Transaction) -> None:
    """Delete locks without a session that ran out. Safe: a next holder makes the row anew, and none extends it."""
    tx.change(_DELETE_LOCKS, space=tx.namespace, **tx.clocks)


def forget_releases(tx: Transaction) -> None:
    """Delete releases that were replaced long ago, but for the oldest and those that live.

    Safe when a session of one begins at the same instant: it begins before or after this, see ``one_at_a_time``.
    """
    one_at_a_time(tx)
    living = _living_releases(tx)
    replaced = tx.rows(_REPLACED, space=tx.namespace, before=tx.now - _YEAR)
    tx.change_in(_DELETE_RELEASES, "ids", [row.id for row in replaced if row.release not in living])


def _living_releases(tx: Transaction) -> set[str]:
    return {row.release for row in tx.rows(_OPEN, space=tx.namespace)}
