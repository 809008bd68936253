"""The part of ``prune`` that deletes old eras and pauses, retired jobs, releases and locks.

Old rows are searched without a lock, and checked again under one: a retired job may be defined in that moment, and a
release may come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.pruning import bounds_of
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sessions import one_at_a_time
from cronsensus.stores.sql.transaction import Transaction, pieces
from cronsensus.stores.unreadable import is_sound
from cronsensus.stores.values import HISTORY_KEPT, REMEMBERED
from cronsensus.timing.instants import to_micros

_MICROSECOND = timedelta(microseconds=1)
_DAY, _YEAR = HISTORY_KEPT // _MICROSECOND, REMEMBERED // _MICROSECOND
BATCH_SIZE = 1000
"""Most jobs, pauses or releases that one transaction of a prune works on."""


@dataclass(frozen=True, slots=True)
class OldHistory:
    """The ids of what may be deleted; ``with_old_eras``: of jobs; ``locks``: whether there are any."""

    with_old_eras: list[int] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    locks: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.with_old_eras or self.pauses or self.retired or self.releases or self.locks)

    @property
    def has_more(self) -> bool:
        """Whether a search was cut short, so that there may be more."""
        return max(map(len, (self.with_old_eras, self.pauses, self.retired, self.releases))) >= BATCH_SIZE


class OldHistorySearch:
    """A search for what may be deleted; its statements are sent when it is made, and their answers read when needed."""

    def __init__(self, tx: Transaction, before: datetime | None) -> None:
        """Send the searches."""
        bounds = bounds_of(tx, None if before is None else min(to_micros(before), tx.now - _DAY), _DAY)
        long_ago: dict[str, Any] = {"space": tx.namespace, "ended": tx.instant(-_YEAR), "size": BATCH_SIZE}
        self._eras = tx.send("jobs_with_old_eras", **bounds, size=BATCH_SIZE)
        self._pauses = tx.send("old_pauses", **bounds, size=BATCH_SIZE)
        self._retired = tx.send("long_retired", **long_ago)
        self._releases = tx.send("replaced_releases", **long_ago)
        self._locks = tx.send("any_lock_ran_out", space=tx.namespace, boot=tx.epoch, moment=tx.moment)

    def read_bygone(self) -> OldHistory:
        """Return what was found."""
        return OldHistory(
            _ids_of(self._eras),
            _ids_of(self._pauses),
            _ids_of(self._retired),
            _ids_of(self._releases),
            bool(self._locks.rows),
        )


def _ids_of(pending: Pending) -> list[int]:
    return [row.id for row in pending.rows]


def forget_history(tx: Transaction, bygone: OldHistory, before: datetime | None) -> None:
    """Delete eras and pauses, and raise horizon and watermark over the eras.

    Safe when a job is fired or defined at the same instant: its row is locked, and its undecided times are checked
    again. A pause without undecided times has none later: the watermark only rises, and a new definition begins
    after it.
    """
    job_answers = tx.send_in("lock_with_eras", "ids", bygone.with_old_eras)
    era_answers = tx.send_in("era_beginnings", "ids", bygone.with_old_eras)
    tx.send_in("delete_pauses", "ids", bygone.pauses)
    jobs = {row.id: row for answer in job_answers for row in answer.rows}
    first_kept_eras: dict[int, int] = {}
    first_eras: dict[int, int] = {}
    for era in [row for answer in era_answers for row in answer.rows]:
        if not is_sound(era.since) or era.job_id not in jobs:
            continue
        first_eras[era.job_id] = min(era.since, first_eras.get(era.job_id, era.since))
        if _rules_alone(jobs[era.job_id], era.since, tx.now, before):
            first_kept_eras[era.job_id] = max(era.since, first_kept_eras.get(era.job_id, era.since))
    to_cut = [(cut, job) for job, cut in sorted(first_kept_eras.items()) if first_eras[job] < cut]
    tx.send_rows("raise_over_deleted_eras", to_cut, one_each=True)
    for cut, job in to_cut:
        tx.send("delete_eras_before", job=job, moved=cut)


def _rules_alone(job: AnyRow, since: int, now: int, before: datetime | None) -> bool:
    """Whether an era began long enough ago, and no earlier time is undecided."""
    if not (is_sound(job.keep) and is_sound(job.watermark) and (job.next_due is None or is_sound(job.next_due))):
        return False
    keep_bound = now - max(job.keep, _DAY) if before is None else min(to_micros(before), now - _DAY)
    return since < keep_bound and (job.next_due is None or since <= job.watermark or since < job.next_due)


def forget_retired(tx: Transaction, ids: list[int]) -> None:
    """Delete retired jobs that have no other rows.

    Safe when one is defined at the same instant: its row is locked, and checked again.
    """
    locked = tx.send_in("lock_long_retired", "ids", ids, ended=tx.instant(-_YEAR))
    with_rows = tx.send_in("jobs_with_rows", "ids", ids)
    deletable = {row.id for answer in locked for row in answer.rows} - {
        row.job_id for answer in with_rows for row in answer.rows
    }
    for piece in pieces(sorted(deletable), tx.dialect.most_parameters):
        tx.send("delete_eras", ids=list(piece))
        tx.send("delete_pauses_of", ids=list(piece))
        tx.send("delete_jobs", ids=list(piece), expect=len(piece))


def forget_locks(tx: Transaction) -> None:
    """Delete locks without a session that ran out. Safe: a next holder inserts the row anew, and nobody extends it."""
    tx.send("delete_locks", space=tx.namespace, boot=tx.epoch, moment=tx.moment)


def forget_releases(tx: Transaction) -> None:
    """Delete releases that were replaced long ago, except the oldest and those with live sessions.

    Safe when a session of one begins at the same instant: it begins before or after this, see ``one_at_a_time``.
    """
    one_at_a_time(tx)
    replaced = tx.send("replaced_releases", space=tx.namespace, ended=tx.instant(-_YEAR), size=BATCH_SIZE)
    tx.send_in("delete_releases", "ids", _ids_of(replaced))
