"""The page of the queue: how many runs wait, since when, of which jobs, and how many ended lately."""

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
"""How far back ended runs are counted."""
MOST_SHOWN = 50
"""Rows of a page."""
_MOST_READ = 200
"""Most pending runs that are read for a page: the items of a batch share a row."""
_MOST_ENDED = 600
_RAN_STATES = (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueue:
    """The pending runs of one job, among those that were read.

    Attributes:
        due: how many of them could run now.
        since: when the first of these was due.
        ended: how many of its runs ended within ``SPAN``.
    """

    job: str
    waiting: int
    due: int
    since: datetime | None
    ended: int


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row of the list: a pending run, or the items of a batch.

    Attributes:
        first: the run, or the first item.
        items: how many items of the batch were read; 0 for a run.
    """

    first: Occurrence
    items: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What the page shows.

    Attributes:
        waiting: how many runs are pending.
        capped: counting stopped at its limit, so there are more.
        oldest: when the first run that could run now was due, among those that were read.
        read: how many pending runs were read.
        ended: how many runs ended within ``SPAN``.
        ended_capped: there are more.
        next_after: the id after which the next page begins; ``None``: this is the last.
    """

    now: datetime
    waiting: int
    capped: bool
    running: int
    oldest: datetime | None
    jobs: tuple[JobQueue, ...]
    read: int
    ended: int
    ended_capped: bool
    rows: tuple[QueueRow, ...]
    next_after: int | None


def read_queue_page(store: Store, after: int | None = None) -> Queue:
    """Read the queue, the oldest runs first; ``after``: the id after which the list begins."""
    now, work = store.now(), count_work(store)
    read_runs = store.occurrences(
        OccurrenceFilter(states=(State.PENDING,)), after=after, limit=_MOST_READ, newest_first=False
    )
    pending = [run for run in read_runs if not is_internal(run.job)]
    ended_runs = store.ran_since(now - SPAN, limit=_MOST_ENDED)
    ended = [run.job for run in ended_runs if run.state in _RAN_STATES and not is_internal(run.job)]
    due = [run.due_at for run in pending if run.due_at <= now]
    rows, last_shown = _fold_items(pending)
    return Queue(
        now=now,
        waiting=work.waiting,
        capped=work.capped,
        running=work.running,
        oldest=min(due, default=None),
        jobs=tuple(_by_job(pending, Counter(ended), now)),
        read=len(pending),
        ended=len(ended),
        ended_capped=len(ended_runs) >= _MOST_ENDED,
        rows=rows,
        next_after=last_shown.id
        if last_shown is not None
        else read_runs[-1].id
        if len(read_runs) == _MOST_READ
        else None,
    )


def _fold_items(pending: Sequence[Occurrence]) -> tuple[tuple[QueueRow, ...], Occurrence | None]:
    """Return a row for each run and each batch. If not all fit on the page, also return the last run that did."""
    items = Counter(run.parent for run in pending if run.parent is not None)
    rows: list[QueueRow] = []
    batches: set[int] = set()
    last_shown: Occurrence | None = None
    for run in pending:
        if run.parent is None or run.parent not in batches:
            if len(rows) == MOST_SHOWN:
                return tuple(rows), last_shown
            rows.append(QueueRow(run, items[run.parent] if run.parent is not None else 0))
            if run.parent is not None:
                batches.add(run.parent)
        last_shown = run
    return tuple(rows), None


def _by_job(pending: Iterable[Occurrence], ended: Counter[str], now: datetime) -> list[JobQueue]:
    """Return the queue of each job; the job that has waited longest comes first."""
    waiting: dict[str, list[Occurrence]] = {}
    for run in pending:
        waiting.setdefault(run.job, []).append(run)
    queues = []
    for job, runs in waiting.items():
        due = [run.due_at for run in runs if run.due_at <= now]
        queues.append(
            JobQueue(job=job, waiting=len(runs), due=len(due), since=min(due, default=None), ended=ended[job])
        )
    return sorted(queues, key=lambda queue: (queue.since is None, queue.since or now, queue.job))
