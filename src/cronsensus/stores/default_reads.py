"""The reads that a store need not implement: each has a default in terms of the reads that every store has.

A default reads page after page until it has everything, so it is right, but slow if there is much. A store that
overrides it saves the pages: a single statement along an index, and an answer of a single moment. The most useful
override is ``_children``, which nodes call whenever an item of a batch ends; then ``_last_of`` and ``_ran_since``,
which pages and metrics call again and again.

Others may write between two pages. If a caller would draw a wrong conclusion from that, the default describes how it
prevents it. A row that cannot be read is left out here, so for ``_job`` and ``_occurrence`` it does not exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Any, TypeVar

from cronsensus.model.batch import Children
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobSpec, JobView
from cronsensus.model.ledger import Counts, LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.parking import Sleeper
from cronsensus.model.session import SessionView
from cronsensus.model.states import UNWELL, State
from cronsensus.stores.values import LOOKED_THROUGH

T = TypeVar("T")

PAGE = 200
_ALIVE = frozenset({"alive", "draining"})
_COUNTED = (State.PENDING, State.RUNNING, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SKIPPED)
"""The states of items that ``Children`` counts."""


class DefaultReads(ABC):
    """The reads that follow from four others, which are abstract here."""

    @abstractmethod
    def _jobs(self, after: str, limit: int, *, retired: bool) -> list[JobView]: ...
    @abstractmethod
    def _occurrences(
        self, where: OccurrenceFilter, after: int | None, limit: int, *, newest_first: bool
    ) -> list[Occurrence]: ...
    @abstractmethod
    def _ranges(
        self, name: str, *, since: datetime | None, until: datetime | None, after: int, limit: int
    ) -> list[LedgerRange]: ...
    @abstractmethod
    def _sessions(self, limit: int, *, ended: bool) -> list[SessionView]: ...

    # --- jobs ------------------------------------------------------------------------------------------------------

    def _job(self, name: str) -> JobView | None:
        # Names come in the order of code points, so this begins shortly before the requested name.
        for view in _read_jobs(self, after=name[:-1], retired=True):
            if view.spec.name >= name:
                return view if view.spec.name == name else None
        return None

    def _edges(self, after: str, limit: int) -> list[JobSpec]:
        specs = (view.spec for view in _read_jobs(self, after=after))
        return list(islice((spec for spec in specs if spec.after is not None), limit))

    # --- occurrences -----------------------------------------------------------------------------------------------

    def _occurrence(self, number: int) -> Occurrence | None:
        page = self._occurrences(OccurrenceFilter(), number - 1, 1, newest_first=False)
        return page[0] if page and page[0].id == number else None

    def _pending_of(self, names: Sequence[str]) -> dict[str, int]:
        counted = {
            name: sum(1 for _ in _read_occurrences(self, OccurrenceFilter(job=name, states=(State.PENDING,))))
            for name in names
        }
        return {name: count for name, count in counted.items() if count}

    def _children(self, numbers: Sequence[int], limit: int) -> dict[int, Children]:
        return {number: _count_items(self, number, limit) for number in numbers}

    def _parked(self, after: int, limit: int) -> list[Sleeper]:
        pending = _read_occurrences(self, OccurrenceFilter(states=(State.PENDING,)), after=max(after, 0))
        parked = (
            Sleeper(
                occurrence.id, occurrence.job, occurrence.parked_on, occurrence.scheduled_for, occurrence.created_at
            )
            for occurrence in pending
            if occurrence.parked_on is not None
        )
        return list(islice(parked, limit))

    def _ran_since(self, since: datetime, limit: int) -> list[Glance]:
        running = list(_read_occurrences(self, OccurrenceFilter(states=(State.RUNNING,))))
        newest = islice(_read_occurrences(self, OccurrenceFilter(), newest_first=True), LOOKED_THROUGH)
        ended = islice(
            (
                occurrence
                for occurrence in newest
                if occurrence.finished_at is not None and occurrence.finished_at >= since
            ),
            limit,
        )
        # An occurrence that ended between the two reads is in both; the later read counts.
        by_id = {occurrence.id: occurrence for occurrence in (*running, *ended)}
        return [glance_of(by_id[number]) for number in sorted(by_id, reverse=True)[:limit]]

    def _ended_badly(self, since: datetime, after: int, limit: int) -> list[Occurrence]:
        def position(occurrence: Occurrence) -> tuple[datetime, int]:
            return occurrence.finished_at or since, occurrence.id

        def read() -> list[Occurrence]:
            ended = _read_occurrences(self, OccurrenceFilter(states=tuple(sorted(UNWELL))))
            return nsmallest(
                limit, (occurrence for occurrence in ended if position(occurrence) > (since, after)), key=position
            )

        return _read_without_gaps(read, position)

    # --- the ledger, and counts of everything ----------------------------------------------------------------------

    def _last_of(self, names: Sequence[str], limit: int) -> dict[str, Past]:
        return {name: _read_past(self, name, limit) for name in names if self._job(name) is not None}

    def _decided(self, after: int, limit: int) -> list[LedgerRange]:
        def position(occurrence: LedgerRange) -> int:
            return occurrence.id

        def read() -> list[LedgerRange]:
            # No job has more than `limit` among the first `limit` of all.
            of_jobs = (islice(_read_ranges(self, name, after), limit) for name in _read_names(self))
            return nsmallest(limit, (occurrence for ranges in of_jobs for occurrence in ranges), key=position)

        if after >= 0:
            return _read_without_gaps(read, position)
        everything = (occurrence for name in _read_names(self) for occurrence in _read_ranges(self, name, 0))
        last = max(everything, key=position, default=None)
        return [] if last is None else [last]

    def _counts(self, limit: int) -> Counts:
        paused = [view.paused_at is not None for view in _read_jobs(self)]
        return Counts(
            jobs=min(limit, len(paused)),
            paused=min(limit, sum(paused)),
            pending=_count_occurrences(self, State.PENDING, limit),
            running=_count_occurrences(self, State.RUNNING, limit),
            sessions=_count_living_sessions(self, limit),
            limit=limit,
        )


# --- pages ------------------------------------------------------------------------------------------------------------


def read_pages(
    read: Callable[[Any], Sequence[T]],
    after: Any,
    *,
    page: int = PAGE,
    position: Callable[[Any], Any] = lambda row: row.id,
) -> Iterator[T]:
    """Yield what ``read`` returns, page after page of ``page`` rows, each after the position of the last row."""
    while True:
        rows = read(after)
        yield from rows
        if len(rows) < page:
            return
        after = position(rows[-1])


def _read_without_gaps(read: Callable[[], list[T]], position: Callable[[T], Any]) -> list[T]:
    """Return a page without gaps up to its last row, although ``read`` takes several reads.

    The first pass may contain a late row while an earlier one is missing, and the caller would go on after it. So a
    second pass reads everything up to the same row. A page that became shorter (by a prune) would look like the last
    page, so it is read anew.
    """
    while first := read():
        last = position(first[-1])
        second = [row for row in read() if position(row) <= last]
        if len(second) >= len(first):
            return second
    return []


def _read_jobs(store: DefaultReads, *, after: str = "", retired: bool = False) -> Iterator[JobView]:
    def read(last: str) -> list[JobView]:
        return store._jobs(last, PAGE, retired=retired)  # noqa: SLF001 - a part of the store

    return read_pages(read, after, page=PAGE, position=lambda view: view.spec.name)


def _read_names(store: DefaultReads) -> Iterator[str]:
    return (view.spec.name for view in _read_jobs(store, retired=True))


def _read_occurrences(
    store: DefaultReads, where: OccurrenceFilter, *, after: int | None = None, newest_first: bool = False
) -> Iterator[Occurrence]:
    def read(last: int | None) -> list[Occurrence]:
        return store._occurrences(where, last, PAGE, newest_first=newest_first)  # noqa: SLF001 - a part of the store

    return read_pages(read, after, page=PAGE)


def _read_ranges(store: DefaultReads, name: str, after: int) -> Iterator[LedgerRange]:
    def read(last: int) -> list[LedgerRange]:
        return store._ranges(name, since=None, until=None, after=last, limit=PAGE)  # noqa: SLF001 - a part of the store

    return read_pages(read, after, page=PAGE)


# --- single reads -----------------------------------------------------------------------------------------------------


def _read_past(store: DefaultReads, name: str, limit: int) -> Past:
    newest = _read_occurrences(store, OccurrenceFilter(job=name), newest_first=True)
    glances = (glance_of(occurrence) for occurrence in newest if occurrence.parent is None)
    ranges = deque(_read_ranges(store, name, 0), maxlen=limit)
    return Past(tuple(islice(glances, limit)), tuple(reversed(ranges)))


def _count_items(store: DefaultReads, batch: int, limit: int) -> Children:
    """Count the items of a batch by state, in a single pass by id.

    The batch is read first: if its list is complete then, all its items exist. Each is counted in the state that it has
    when its page is read, so an item that changes meanwhile is counted exactly once.
    """
    row = store._occurrence(batch)  # noqa: SLF001 - a part of the store
    counts, last = dict.fromkeys(_COUNTED, 0), None
    while states := tuple(state for state, count in counts.items() if count < limit):
        where = OccurrenceFilter(parent=batch, states=states)
        page = store._occurrences(where, last, PAGE, newest_first=False)  # noqa: SLF001 - a part of the store
        for occurrence in page:
            counts[occurrence.state] = min(limit, counts[occurrence.state] + 1)
        if len(page) < PAGE:
            break
        last = page[-1].id
    return Children(
        state=None if row is None else row.state,
        listed=None if row is None else row.listed,
        **{state.value: count for state, count in counts.items()},
    )


def _count_occurrences(store: DefaultReads, state: State, limit: int) -> int:
    return sum(1 for _ in islice(_read_occurrences(store, OccurrenceFilter(states=(state,))), limit))


def _count_living_sessions(store: DefaultReads, limit: int) -> int:
    """Count up to ``limit`` living sessions, past any number of overdue ones: this read has no pages."""
    size = limit
    while True:
        sessions = store._sessions(size, ended=False)  # noqa: SLF001 - a part of the store
        alive = sum(session.state in _ALIVE for session in sessions)
        if alive >= limit or len(sessions) < size:
            return min(alive, limit)
        size *= 2


def glance_of(occurrence: Occurrence) -> Glance:
    """Return an occurrence in the form for lists."""
    return Glance(
        id=occurrence.id,
        job=occurrence.job,
        state=occurrence.state,
        scheduled_for=occurrence.scheduled_for,
        due_at=occurrence.due_at,
        crashes=occurrence.crashes,
        failures=occurrence.failures,
        node=occurrence.node,
        reason=occurrence.reason,
        created_at=occurrence.created_at,
        started_at=occurrence.started_at,
        finished_at=occurrence.finished_at,
        parent=occurrence.parent,
        listed=occurrence.listed,
    )
