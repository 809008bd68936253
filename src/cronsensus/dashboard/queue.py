"""The queue: how many runs wait, since when, of which jobs, and how many ended lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.dashboard.numbers import count_work
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

SPAN = timedelta(minutes=10)
"""The time for which ended runs are counted."""
SHOWN = 50
_READ = 200
_MOST_ENDED = 600
_RAN = (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWaits:
    """One job's part of what was read: ``due``, how many could run now; ``since``: when the first of them was due."""

    job: str
    waiting: int
    due: int
    since: datetime | None
    ended: int


@dataclass(frozen=True, slots=True)
class Line:
    """A pending run; or the first pending item of a batch, and how many of its items were read."""

    first: Occurrence
    items: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What the page shows.

    Attributes:
        waiting: how many runs wait; ``capped``: there are more.
        oldest: when the first was due of those that could run now, among what was read.
        read: how many were read, the oldest by number.
        ended: how many ran and ended within ``SPAN``; ``ended_capped``: there are more.
        more: the number after which the next page begins.
    """

    now: datetime
    waiting: int
    capped: bool
    running: int
    oldest: datetime | None
    jobs: tuple[JobWaits, ...]
    read: int
    ended: int
    ended_capped: bool
    rows: tuple[Line, ...]
    more: int | None


def queue_page(store: Store, after: int | None = None) -> Queue:
    """Return the pending runs, the oldest first; ``after``: the id after which the list begins."""
    now, work = store.now(), count_work(store)
    read = store.occurrences(OccurrenceFilter(states=(State.PENDING,)), after=after, limit=_READ, newest_first=False)
    pending = [run for run in read if not is_internal(run.job)]
    ran = store.ran_since(now - SPAN, limit=_MOST_ENDED)
    ended = [run.job for run in ran if run.state in _RAN and not is_internal(run.job)]
    due = [run.due_at for run in pending if run.due_at <= now]
    shown, last = _fold_items(pending)
    return Queue(
        now=now,
        waiting=work.waiting,
        capped=work.capped,
        running=work.running,
        oldest=min(due, default=None),
        jobs=tuple(_by_job(pending, Counter(ended), now)),
        read=len(pending),
        ended=len(ended),
        ended_capped=len(ran) >= _MOST_ENDED,
        rows=shown,
        more=last.id if last is not None else read[-1].id if len(read) == _READ else None,
    )


def _fold_items(pending: Sequence[Occurrence]) -> tuple[tuple[Line, ...], Occurrence | None]:
    """Return a line for each run and each batch; and the last run on them, if there are more."""
    items = Counter(run.parent for run in pending if run.parent is not None)
    lines: list[Line] = []
    batches: set[int] = set()
    last: Occurrence | None = None
    for run in pending:
        if run.parent is None or run.parent not in batches:
            if len(lines) == SHOWN:
                return tuple(lines), last
            lines.append(Line(run, items[run.parent] if run.parent is not None else 0))
            batches |= set() if run.parent is None else {run.parent}
        last = run
    return tuple(lines), None


def _by_job(pending: Iterable[Occurrence], ended: Counter[str], now: datetime) -> list[JobWaits]:
    """Return a line for each job: first what has waited longest."""
    waiting: dict[str, list[Occurrence]] = {}
    for run in pending:
        waiting.setdefault(run.job, []).append(run)
    lines = []
    for job, runs in waiting.items():
        due = [run.due_at for run in runs if run.due_at <= now]
        lines.append(JobWaits(job=job, waiting=len(runs), due=len(due), since=min(due, default=None), ended=ended[job]))
    return sorted(lines, key=lambda line: (line.since is None, line.since or now, line.job))
