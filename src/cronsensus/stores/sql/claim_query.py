"""Select the pending occurrences that a node may claim: in order, within the policies.

::

    for each level (priority and class) that has work due, highest first:
        read due entries of the pending index, oldest first, a page at a time
        skip entries that this node cannot run, that wait their turn, or whose job is full; remember their jobs
        further pages leave those jobs out in the index itself, so a long queue of such a job costs little

If classes are ignored, the levels of a priority are read side by side, and merged by due time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice
from typing import Any

from cronsensus.errors import StoreCorrupt
from cronsensus.model.claim_order import priority_of
from cronsensus.model.job import JobSpec
from cronsensus.model.states import Origin
from cronsensus.model.step import may_be_reserved
from cronsensus.payload.codec import read_call
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import specs_of
from cronsensus.stores.sql.occurrence_rows import instant
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import LARGEST_COUNT, READING_RAISES, instant_of, whole_number

MOST_PAGE_ROWS = 500
ORIGINS = {origin.value: origin for origin in Origin}
Payload = tuple[tuple[Any, ...], dict[str, Any], Mapping[str, str] | None]
"""Arguments by position and by name, and headers."""
MOST_LEFT_OUT_JOBS = 200
"""Most jobs that the statement of a page leaves out; further ones are skipped here."""

_FIRST = -(2**63)


@dataclass(slots=True)
class Selection:
    """The entries that a claim has selected so far, and what it has read about their jobs."""

    functions: AbstractSet[str]
    limit: int
    ahead: int = 0
    """How long after now an entry may be due, in microseconds."""
    reserve: int = 0
    """How many more entries than ``limit`` may be selected, to wait on their node for a free slot."""
    oldest: bool = False
    """Whether classes are ignored, see ``model.claim_order``."""
    chosen: list[AnyRow] = field(default_factory=list)
    jobs: dict[int, AnyRow] = field(default_factory=dict)
    specs: dict[int, JobSpec] = field(default_factory=dict)
    runs_left: dict[int, int] = field(default_factory=dict)
    """How many more runs of a job its ``concurrency`` allows, if it sets one."""
    left_out: set[int] = field(default_factory=set)
    """Jobs at their ``concurrency``, and jobs that this node cannot run."""
    counting: bool = False
    """Whether the rows of jobs with a limit are locked."""
    payloads: dict[int, Payload] = field(default_factory=dict)
    """The arguments of the selected entries."""
    stopped: bool = False
    """Whether the next entry cannot be reserved. Then no later entry is reserved, or it would be overtaken."""
    blocked: dict[int, int] = field(default_factory=dict)
    """Jobs with occurrences that wait their turn, and the id whose turn it is (0: one is running)."""

    @property
    def wanted_count(self) -> int:
        """How many more entries may be selected."""
        return 0 if self.stopped else self.limit + self.reserve - len(self.chosen)

    def consider_entry(self, row: AnyRow) -> None:
        """Select an entry, or record why not.

        Raises:
            Exception: the entry cannot be read.
        """
        job = self.jobs[row.job_id]
        if job.function not in self.functions:
            self.left_out.add(row.job_id)
        if row.job_id in self.left_out:
            return
        payload = read_claimed(row)
        if len(self.chosen) >= self.limit and not self._may_be_reserved(row):
            # An entry that cannot run now anyway does not stop the others.
            self.stopped = not row.serial or (not row.busy and row.head == row.id)
            return
        self.payloads[row.id] = payload
        if row.serial:
            if row.busy or row.head != row.id:
                self.blocked.setdefault(row.job_id, 0 if row.busy else row.head)
            elif self._has_room_for(row.job_id):
                self.blocked[row.job_id] = 0
                self.chosen.append(row)
        elif self._has_room_for(row.job_id):
            self.chosen.append(row)

    def _may_be_reserved(self, row: AnyRow) -> bool:
        policies, serial = self.specs[row.job_id].policies, bool(row.serial)
        return may_be_reserved(policies, attempt=row.attempt, failures=row.failures, serial=serial)

    def _has_room_for(self, job: int) -> bool:
        runs_left = self.runs_left.get(job)
        if runs_left is None:
            return True
        if runs_left <= 0:
            self.left_out.add(job)
            return False
        self.runs_left[job] = runs_left - 1
        return True


def read_claimed(row: AnyRow) -> Payload:
    """Return arguments and headers of an entry, after checking every other column that its start needs.

    Raises:
        Exception: a value is not valid.
    """
    if not 0 <= row.attempt < LARGEST_COUNT:
        raise ValueError(f"attempt {row.attempt!r:.60}")
    if row.origin not in ORIGINS:
        raise ValueError(f"origin {row.origin!r:.60}")
    whole_number(row.crashes), whole_number(row.failures), instant(row.scheduled_for), row.key.encode()
    instant_of(row.due_at), instant_of(row.created_at)
    return read_call(row.payload)


def first_page(tx: Transaction, selection: Selection, level: int | None = None) -> Pending:
    """Read the first entries at a level; ``None``: the highest level that has work due."""
    if level is not None:
        return _ask_further(tx, selection, level, _first_size(selection))
    return tx.send(
        "candidates",
        space=tx.namespace,
        now=tx.instant(),
        until=tx.instant(selection.ahead),
        size=_first_size(selection),
    )


def _first_size(selection: Selection) -> int:
    return min(selection.wanted_count, MOST_PAGE_ROWS)


def choose_entries(tx: Transaction, selection: Selection, page: Sequence[AnyRow], levels: Sequence[int]) -> None:
    """Select from the first page, from the pages after it, and from lower levels.

    ``levels``: those that have work due, highest first.
    """
    first = page[0].level if page else levels[0] if levels else 0
    # By position: a damaged level cannot be compared.
    lower = [first, *levels[levels.index(first) + 1 :]] if first in levels else [first, *levels]
    size = _first_size(selection)
    for priority in _group_levels(lower) if selection.oldest else [[level] for level in lower]:
        if selection.wanted_count > 0:
            pages = [_read_entries(tx, selection, level, page if level == first else None, size) for level in priority]
            _choose_from(tx, selection, pages[0] if len(pages) == 1 else merge(*pages, key=_age_of))
            size = _first_size(selection)


def _group_levels(levels: Sequence[int]) -> list[list[int]]:
    """Return the levels of each priority; a damaged level stands alone."""
    return [
        list(levels_of_priority)
        for _, levels_of_priority in groupby(
            levels, key=lambda level: priority_of(level) if type(level) is int else level
        )
    ]


def _age_of(row: AnyRow) -> tuple[int, int]:
    """Return the sort key for merging; an entry with a damaged due time is skipped at any position."""
    return (row.due_at if type(row.due_at) is int else _FIRST, row.id)


def _choose_from(tx: Transaction, selection: Selection, rows: Iterable[AnyRow]) -> None:
    """Select from entries in order, until there are enough."""
    for row in rows:
        try:
            selection.consider_entry(row)
        except READING_RAISES as error:
            tx.unreadable.log_unreadable(f"run {row.id} of job {row.job_id} waits, cannot be run, and", error)
        if selection.wanted_count <= 0:
            return


def _read_entries(
    tx: Transaction, selection: Selection, level: int, page: Sequence[AnyRow] | None, size: int
) -> Iterator[AnyRow]:
    """Yield the entries of a level, page by page; ``page``: the first, of at most ``size``, if it was read."""
    if page is None:
        page = first_page(tx, selection, level).rows
    while page:
        _learn_jobs(tx, selection, page)
        yield from page
        if len(page) < size:
            return
        size = min(2 * size + 32, MOST_PAGE_ROWS)
        page = _ask_further(tx, selection, level, size, (page[-1].due_at, page[-1].id)).rows


def _ask_further(
    tx: Transaction, selection: Selection, level: int, size: int, after: tuple[int, int] = (_FIRST, _FIRST)
) -> Pending:
    """Read a page of a level, without the jobs of which no entry can be claimed."""
    return tx.send(
        "further_candidates",
        space=tx.namespace,
        level=level,
        now=tx.instant(),
        until=tx.instant(selection.ahead),
        size=size,
        after_due=after[0],
        after_id=after[1],
        full=list(islice(selection.left_out, MOST_LEFT_OUT_JOBS)),
        blocked=list(islice(selection.blocked, MOST_LEFT_OUT_JOBS)),
        heads=list(islice(selection.blocked.values(), MOST_LEFT_OUT_JOBS)),
    )


def _learn_jobs(tx: Transaction, selection: Selection, page: Sequence[AnyRow]) -> None:
    """Read the jobs of a page that are new, and count the free places of those with a limit.

    Safe when two nodes claim at the same instant: the jobs are locked before the runs are counted, so each counts what
    the other has claimed. This is the only place where a claim waits for other claims, and only for those of the same
    job. A claim that already holds such locks skips locked rows, or two claims could wait for each other.
    """
    new = {row.job_id: row for row in page if row.job is not None and row.job_id not in selection.jobs}
    if not new:
        return
    selection.jobs.update(new)
    able = {job: row for job, row in new.items() if row.function in selection.functions}
    limited = {job: row.concurrency for job, row in sorted(able.items()) if type(row.concurrency) is int}
    lock = "lock_more_limited" if selection.counting else "lock_limited"
    selection.counting = selection.counting or bool(limited)
    locked = tx.send_in(lock, "ids", limited)
    running = tx.send_in("count_running", "ids", limited, space=tx.namespace, boot=tx.epoch, moment=tx.moment)
    try:
        selection.specs.update(specs_of(tx, able))
    except StoreCorrupt:
        _leave_out_unreadable(tx, selection, able)
    if limited:
        selection.left_out.update(limited.keys() - {row.id for answer in locked for row in answer.rows})
        count_runs_left(tx, selection, limited, [row for answer in running for row in answer.rows])


def count_runs_left(
    tx: Transaction, selection: Selection, limited: Mapping[int, int], running: Sequence[AnyRow]
) -> None:
    """Compute how many more runs locked jobs may have: runs of live sessions count."""
    overdue = sorted({row.session for row in running if not row.alive})
    clock_values = {"space": tx.namespace, "boot": tx.epoch, "moment": tx.moment}
    dead = {
        row.id
        for answer in tx.send_in("lock_overdue_sessions", "holders", overdue, **clock_values)
        for row in answer.rows
    }
    selection.runs_left.update(limited)
    for row in running:
        if row.session not in dead:
            selection.runs_left[row.job_id] -= row.runs


def _leave_out_unreadable(tx: Transaction, selection: Selection, able: Mapping[int, AnyRow]) -> None:
    """Leave out the jobs whose definition cannot be read, and log them, so that the others still run."""
    for job, row in able.items():
        try:
            selection.specs.update(specs_of(tx, {job: row}))
        except StoreCorrupt as error:
            selection.left_out.add(job)
            tx.unreadable.log_unreadable(f"work of job {job} waits that cannot be run, and the job", error)
