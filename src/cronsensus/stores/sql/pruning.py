"""The verb ``prune``: delete old final occurrences with their attempts and logs, verdict ranges, and ended sessions.

Old rows are searched without the write lock: a final state has no exit, so what was final then is still final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.transaction import Transaction, pieces
from cronsensus.stores.unreadable import is_sound
from cronsensus.stores.values import REMEMBERED, Pruned
from cronsensus.timing.instants import LATEST_MICROS, to_micros

_MICROSECOND = timedelta(microseconds=1)
SESSIONS_KEPT = timedelta(days=1)
"""For how long ended sessions stay."""
BATCH_SIZE = 1000
"""Most rows that one transaction of a prune deletes from each table."""
MOST_BATCHES = 50
"""Batches of ended sessions and of old entries that one prune deletes, each in a transaction of its own."""


@dataclass(frozen=True, slots=True)
class OldRows:
    """The rows that a prune is to delete."""

    occurrences: Sequence[AnyRow] = ()
    ranges: Sequence[AnyRow] = ()
    sessions: list[str] = field(default_factory=list)
    trail: list[int] = field(default_factory=list)

    @property
    def has_more(self) -> bool:
        """Whether a search was cut short: there may be more sessions, or more entries of the trail."""
        return len(self.sessions) >= BATCH_SIZE or len(self.trail) >= BATCH_SIZE

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.occurrences or self.ranges or self.sessions or self.trail)


def bounds_of(tx: Transaction, before: int | None, least: int = 0) -> dict[str, Any]:
    """Return the bounds of a search: a moment, or each job's own ``keep``, but at least ``least`` microseconds.

    ``keep`` is bounded, too: a sum beyond the database's integers would fail, and nothing would be pruned at all.
    """
    return {"space": tx.namespace, "before": before, "now": tx.instant(), "least": least, "most": LATEST_MICROS}


class OldRowsSearch:
    """A search for old rows; its statements are sent when it is made, and their answers read when needed."""

    def __init__(self, tx: Transaction, before: datetime | None, limit: int) -> None:
        """Search for at most ``limit`` occurrences and ranges."""
        self._tx = tx
        self._limit = limit
        self._before = None if before is None else to_micros(before)
        [dependents] = tx.send("earliest_dependent", space=tx.namespace, never=LATEST_MICROS).rows
        bounds = {**bounds_of(tx, self._before), "waiting_since": dependents.created_at}
        if tx.dialect.seeks_between_groups:  # else it would read and sort all ended rows to find the first ones
            self._old, self._ranges = tx.send("jobs_with_old", **bounds), tx.send("jobs_with_old_ranges", **bounds)
        else:
            self._old = tx.send("old_occurrences", **bounds, size=limit)
            self._ranges = tx.send("old_ranges", **bounds, size=limit)
        self._rest = _SessionsAndTrail(tx)

    def read_over(self) -> OldRows:
        """Return the rows."""
        if self._tx.dialect.seeks_between_groups:
            old = self._of_jobs(self._old, "old_of_job", self._limit)
            ranges = self._of_jobs(self._ranges, "old_ranges_of_job", self._limit - len(old))
        else:
            old = self._old.rows
            ranges = self._ranges.rows[: self._limit - len(old)]
        return OldRows(old, ranges, self._rest.find_sessions(), self._rest.find_trail())

    def _of_jobs(self, jobs: Pending, query: str, limit: int) -> Sequence[AnyRow]:
        rows: list[AnyRow] = []
        for job in jobs.rows:
            if len(rows) >= limit:
                break
            watermark = {"passed": job.watermark} if query == "old_of_job" else {}
            values = {"before": self._before, "ended": job.ended, "needed_from": job.needed_from, **watermark}
            rows += self._tx.send(query, job=job.id, size=limit - len(rows), **values).rows
        return rows


class _SessionsAndTrail:
    """A search for old sessions and old entries of the trail."""

    def __init__(self, tx: Transaction) -> None:
        space: dict[str, Any] = {"space": tx.namespace, "size": BATCH_SIZE}
        self._tx = tx
        self._sessions = tx.send("old_sessions", **space, ended=tx.instant(-(SESSIONS_KEPT // _MICROSECOND)))
        # By number, which is nearly the order of time.
        self._trail = tx.send("oldest_trail", **space)

    def find_sessions(self) -> list[str]:
        return [row.id for row in self._sessions.rows]

    def find_trail(self) -> list[int]:
        rows, before = self._trail.rows, self._tx.now - REMEMBERED // _MICROSECOND
        return [row.id for row in rows if is_sound(row.at) and row.at < before]


def find_further(tx: Transaction) -> OldRows:
    """Return more old sessions and entries of the trail."""
    queries = _SessionsAndTrail(tx)
    return OldRows(sessions=queries.find_sessions(), trail=queries.find_trail())


def prune_over(tx: Transaction, bygone: OldRows) -> Pruned:
    """Delete old rows, and raise each job's horizon over them. It ends the transaction.

    Safe when two nodes prune at the same instant: deleting what is gone does nothing, and the UPDATE of a horizon only
    raises it. It happens in the same transaction, so no moment exists at which a deleted occurrence could be created
    again. Jobs are locked before their occurrences, in the order of ids, as ``acquire`` and ``step`` do it: none of
    them waits for what the other waits for.
    """
    horizons: dict[int, int] = {}
    for row in (*bygone.occurrences, *bygone.ranges):
        if is_sound(row.last):
            horizons[row.job_id] = max(row.last, horizons.get(row.job_id, row.last))
    tx.send_in("lock_pruned_jobs", "ids", sorted(horizons))
    tx.send_rows("raise_horizons", [(last, job) for job, last in sorted(horizons.items())])
    ids = [row.id for row in bygone.occurrences]
    tx.send_in("delete_logs", "ids", ids)
    tx.send_in("delete_runs", "ids", ids)
    deleted = tx.send_in("delete_final", "ids", ids)
    deleted += tx.send_in("delete_ranges", "ids", [row.id for row in bygone.ranges])
    tx.send_in("delete_sessions", "ids", bygone.sessions)
    tx.send_in("delete_trail", "ids", bygone.trail)
    tx.commit()
    return Pruned(
        sum(answer.count for answer in deleted), sum(row.needed for row in (*bygone.occurrences, *bygone.ranges))
    )


def delete_occurrences(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete occurrences whose rows the caller has locked, in whatever state, with their runs and logs."""
    tx.send_in("delete_logs", "ids", ids)
    tx.send_in("delete_runs", "ids", ids)
    for piece in pieces(ids, tx.dialect.most_parameters):
        tx.send("delete_occurrences", ids=list(piece), expect=len(piece))
