"""What waits to be run: how much, since when, of which jobs, and how much is done meanwhile."""

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
"""For which it is said how much was done."""
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
    """A run that waits; or the first item of a batch that does, and how many of its items were read."""

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
    """Return what waits, the oldest first; ``after``: the number of the run behind which the list begins."""
    now, work = store.now(), count_work(store)
    read = store.occurrences(OccurrenceFilter(states=(State.PENDING,)), after=after, limit=_READ, newest_first=False)
    found = [one for one in read if not is_internal(one.job)]
    ran = store.ran_since(now - SPAN, limit=_MOST_ENDED)
    ended = [one.job for one in ran if one.state in _RAN and not is_internal(one.job)]
    due = [one.due_at for one in found if one.due_at <= now]
    shown, last = _fold_items(found)
    return Queue(
        now=now,
        waiting=work.waiting,
        capped=work.capped,
        running=work.running,
        oldest=min(due, default=None),
        jobs=tuple(_by_job(found, Counter(ended), now)),
        read=len(found),
        ended=len(ended),
        ended_capped=len(ran) >= _MOST_ENDED,
        rows=shown,
        more=last.id if last is not None else read[-1].id if len(read) == _READ else None,
    )


def _fold_items(found: Sequence[Occurrence]) -> tuple[tuple[Line, ...], Occurrence | None]:
    """Return a line for each run and each batch; and the last run of them, if there are more than are shown."""
    items = Counter(one.parent for one in found if one.parent is not None)
    lines: list[Line] = []
    batches: set[int] = set()
    last: Occurrence | None = None
    for one in found:
        if one.parent is None or one.parent not in batches:
            if len(lines) == SHOWN:
                return tuple(lines), last
            lines.append(Line(one, items[one.parent] if one.parent is not None else 0))
            batches |= set() if one.parent is None else {one.parent}
        last = one
    return tuple(lines), None


def _by_job(found: Iterable[Occurrence], ended: Counter[str], now: datetime) -> list[JobWaits]:
    """Return a line for each job: first what has waited longest."""
    waiting: dict[str, list[Occurrence]] = {}
    for one in found:
        waiting.setdefault(one.job, []).append(one)
    lines = []
    for job, some in waiting.items():
        due = [one.due_at for one in some if one.due_at <= now]
        lines.append(JobWaits(job=job, waiting=len(some), due=len(due), since=min(due, default=None), ended=ended[job]))
    return sorted(lines, key=lambda line: (line.since is None, line.since or now, line.job))
