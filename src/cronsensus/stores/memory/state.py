"""The state of a memory store: rows, sorted indexes, and the few ways in which a row changes.

The verbs decide; these methods only keep rows and indexes consistent. Nothing here takes the lock: callers hold it.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from cronsensus.model.claim_order import level_when_woken
from cronsensus.model.job import Era, JobSpec, Stretch
from cronsensus.model.ledger import Identity, LedgerRange, TrailEntry
from cronsensus.model.occurrence import LogLine, RunEnd, RunError, RunView
from cronsensus.model.session import SessionSpec
from cronsensus.model.states import ACTIVE, SERIAL_ORIGINS, Origin, Reason, State, require_transition
from cronsensus.payload.codec import clean
from cronsensus.planning import next_nominal
from cronsensus.process.interrupts import Condition
from cronsensus.stores.clock_watch import ClockWatch
from cronsensus.timing.clock import Clock
from cronsensus.timing.instants import LATEST, to_micros

Key = TypeVar("Key", bound=Any)


class Sorted(Generic[Key]):
    """Keys in order, without repeats. Finding is O(log n); adding moves pointers, which is cheap up to a million."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def add(self, key: Key) -> None:
        """Add a key that is not there yet."""
        insort(self._keys, key)

    def discard(self, key: Key) -> None:
        """Remove a key, if it is there."""
        index = bisect_left(self._keys, key)
        if index < len(self._keys) and self._keys[index] == key:
            del self._keys[index]

    def first(self) -> Key | None:
        """Return the least key."""
        return self._keys[0] if self._keys else None

    def keys_after(self, bound: Key) -> Iterator[Key]:
        """Return the keys above ``bound``, ascending."""
        return (self._keys[index] for index in range(bisect_right(self._keys, bound), len(self._keys)))

    def keys_before(self, bound: Key) -> Iterator[Key]:
        """Return the keys below ``bound``, descending."""
        return (self._keys[index] for index in range(bisect_left(self._keys, bound) - 1, -1, -1))


@dataclass(slots=True, eq=False)
class JobRow:
    """A job, with the indexes that lead to its occurrences. ``payload``: the arguments of a scheduled occurrence."""

    id: int
    spec: JobSpec
    digest: str
    payload: str
    revision: int
    watermark: datetime
    eras: list[Era]
    created_at: datetime
    next_due: datetime | None = None
    horizon: datetime | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_why: str | None = None
    retired_at: datetime | None = None
    waiting_until: datetime | None = None
    pauses: list[Stretch] = field(default_factory=list)
    ranges: list[LedgerRange] = field(default_factory=list)
    keys: dict[str, OccurrenceRow] = field(default_factory=dict)
    nominal: dict[datetime, list[OccurrenceRow]] = field(default_factory=dict)
    ids: Sorted[int] = field(default_factory=Sorted)
    pending: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    serial: Sorted[int] = field(default_factory=Sorted)
    """Active occurrences of the origins to which the overlap policy applies, in order of creation."""
    final: Sorted[tuple[datetime, int]] = field(default_factory=Sorted)

    @property
    def fires(self) -> bool:
        """Whether the job is neither paused nor retired."""
        return self.paused_at is None and self.retired_at is None

    @property
    def active(self) -> int:
        """How many occurrences subject to the overlap policy are pending or running."""
        return 0 if self.spec.policies.overlap == "allow" else len(self.serial)

    def eras_after_watermark(self) -> tuple[Era, ...]:
        """Return the eras that still apply: the era at the watermark, and all after it."""
        first = max((index for index, era in enumerate(self.eras) if era.since <= self.watermark), default=0)
        return tuple(self.eras[first:])


@dataclass(slots=True, eq=False)
class OccurrenceRow:
    """An occurrence with its runs and log lines. ``payload`` is the JSON text of [args, kwargs]."""

    id: int
    job: JobRow
    key: str
    origin: Origin
    scheduled_for: datetime | None
    due_at: datetime
    expires_at: datetime | None
    priority: int
    level: int
    payload: str
    created_at: datetime
    retry_of: int | None = None
    retried_as: int | None = None
    state: State = State.PENDING
    attempt: int = 0
    crashes: int = 0
    failures: int = 0
    token: int = 0
    session: str | None = None
    node: str | None = None
    reason: str | None = None
    result: str | None = None
    error: RunError | None = None
    progress: tuple[float, float] | None = None
    cancel: str | None = None
    """Why it was asked to stop; ``None``: it was not."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    fingerprint: str | None = None
    parent: int | None = None
    listed: int | None = None
    parked_on: str | None = None
    """The kind of thing that a parked occurrence waits for; it stays when the occurrence is closed."""
    note: str | None = None
    """The note of its last snoozed attempt for the next one."""
    reserved: bool = False
    """Whether it was claimed to wait on its node for a free slot, and is not known to have started."""
    runs: list[RunView] = field(default_factory=list)
    lines: list[tuple[int, int, LogLine]] = field(default_factory=list)

    @property
    def is_parked(self) -> bool:
        """Whether it is parked: without a due time, until it is woken."""
        return self.state is State.PENDING and self.parked_on is not None

    def run_under(self, token: int) -> RunView | None:
        """Return the run that held ``token``."""
        return next((run for run in self.runs if run.token == token), None)


@dataclass(slots=True, eq=False)
class SessionRow:
    """A session. ``until`` is the end of its lease on the monotonic clock; ``number``: in the order of opening."""

    spec: SessionSpec
    until: float
    started_at: datetime
    renewed_at: datetime
    draining: bool = False
    beats: int = 0
    ended_at: datetime | None = None
    ended_as: str = ""
    ended_why: str | None = None
    running: Sorted[int] = field(default_factory=Sorted)
    locks: set[tuple[str, int]] = field(default_factory=set)
    number: int = 0


@dataclass(slots=True, eq=False)
class LockRow:
    """A held place of a lock. ``until`` is on the monotonic clock; ``most``: the limit that its holder passed."""

    name: str
    place: int
    holder: str
    session: str | None
    token: int
    acquired_at: datetime
    until: float
    most: int


class Release(NamedTuple):
    """When a release became known; releases compare in that order."""

    place: int
    known_since: datetime


class World:
    """The contents of a URL: a lock, a clock, a counter of each kind, and the namespaces."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.changed = Condition(threading.RLock())
        self.spaces: dict[str, Space] = {}
        self.counters: dict[str, int] = {}

    def next_number(self, what: str) -> int:
        """Return the next number of a kind, counting from 1."""
        number = self.counters[what] = self.counters.get(what, 0) + 1
        return number

    def next_token(self) -> int:
        """Return the next fencing token: greater than the last, and not below the clock, as on every store."""
        last = self.counters["token"] = max(self.counters.get("token", 0) + 1, to_micros(self.clock.now()))
        return last

    def space_of(self, namespace: str) -> Space:
        """Return a namespace, empty at first."""
        return self.spaces.setdefault(namespace, Space(self))


class Space:
    """A namespace: rows by name and id, and the indexes that make looking and claiming cheap."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.handles: weakref.WeakSet[Any] = weakref.WeakSet()
        self.jobs: dict[str, JobRow] = {}
        self.jobs_by_id: dict[int, JobRow] = {}
        self.names: Sorted[str] = Sorted()
        self.due: Sorted[tuple[datetime, int]] = Sorted()
        self.occurrences: dict[int, OccurrenceRow] = {}
        self.ids: Sorted[int] = Sorted()
        self.pending: dict[int, Sorted[tuple[datetime, int]]] = {}
        """Pending occurrences by level, as (due, id): highest level first, this is the order of claims."""
        self.expiring: Sorted[tuple[datetime, int]] = Sorted()
        """Pending occurrences that never started and have an expiry, as (expiry, id)."""
        self.running: set[int] = set()
        self.children: dict[int, Counter[State]] = {}
        """How many items of each batch are in each state."""
        self.items: dict[int, Sorted[int]] = {}
        """The items of each batch, by id."""
        self.parked: Sorted[int] = Sorted()
        """The parked occurrences, by id."""
        self.sessions: dict[str, SessionRow] = {}
        self.open: dict[str, SessionRow] = {}
        """Sessions that have not been ended, alive or overdue."""
        self.open_nodes: dict[str, SessionRow] = {}
        """The open sessions of nodes."""
        self.releases: dict[str, Release] = {}
        self.locks: dict[tuple[str, int], LockRow] = {}
        self.wait_queues: dict[str, dict[Any, None]] = {}
        """For each lock the ``MemoryQueues`` that wait for it, in the order of joining."""
        self.trail: list[TrailEntry] = []
        self.identity = Identity(uuid.uuid4().hex, world.clock.now())
        self.clock_watch = ClockWatch()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def add_job(self, job: JobRow) -> None:
        """Add a new job."""
        self.jobs[job.spec.name] = self.jobs_by_id[job.id] = job
        self.names.add(job.spec.name)
        self.schedule_job(job)

    def forget_job(self, job: JobRow) -> None:
        """Delete a retired job that has no occurrences."""
        del self.jobs[job.spec.name], self.jobs_by_id[job.id]
        self.names.discard(job.spec.name)

    def know_release(self, name: str, now: datetime) -> Release:
        """Return a release; a new one is recorded."""
        if name not in self.releases:
            self.releases[name] = Release(self.world.next_number("release"), now)
        return self.releases[name]

    def schedule_job(self, job: JobRow) -> None:
        """Compute a job's next due time anew, and index it if the job fires."""
        self.set_due(job, None if job.retired_at else next_nominal(job.eras_after_watermark(), job.watermark))

    def set_due(self, job: JobRow, next_due: datetime | None) -> None:
        """Set a job's next due time, and index it if the job fires."""
        if job.next_due is not None:
            self.due.discard((job.next_due, job.id))
        job.next_due = next_due
        self.index_due(job)

    def index_due(self, job: JobRow) -> None:
        """Index a job's next due time if the job fires, or remove it."""
        if job.next_due is not None:
            self.due.discard((job.next_due, job.id))
            if job.fires:
                self.due.add((job.next_due, job.id))

    # --- occurrences --------------------------------------------------------------------------------------------------

    def insert_row(self, row: OccurrenceRow) -> OccurrenceRow:
        """Add a new pending occurrence."""
        job = row.job
        self.occurrences[row.id] = job.keys[row.key] = row
        self.ids.add(row.id)
        job.ids.add(row.id)
        if row.scheduled_for is not None:
            job.nominal.setdefault(row.scheduled_for, []).append(row)
        if row.parent is not None:
            self.items.setdefault(row.parent, Sorted()).add(row.id)
        self._index_row(row)
        return row

    def unused_key(self, job: JobRow) -> str:
        """Return a key that no occurrence of the job has: a UUID in form, but counted, so simulations repeat."""
        while True:
            key = str(uuid.UUID(int=0x7 << 76 | 0b10 << 62 | self.world.next_number("key")))
            if key not in job.keys:
                return key

    def start_run(self, row: OccurrenceRow, session: SessionRow, at: datetime) -> None:
        """Start a pending occurrence for ``session``, under a new token."""
        self._leave_state(row, State.RUNNING)
        row.state = State.RUNNING
        row.attempt += 1
        row.token = self.world.next_token()
        row.session, row.node = session.spec.id, session.spec.node
        row.started_at, row.progress = at, None
        row.reason = row.error = row.parked_on = None
        row.runs.append(
            RunView(
                occurrence=row.id,
                job=row.job.spec.name,
                key=row.key,
                scheduled_for=row.scheduled_for,
                attempt=row.attempt,
                token=row.token,
                session=session.spec.id,
                node=session.spec.node,
                started_at=at,
                finished_at=None,
                end=None,
            )
        )
        self._index_row(row)

    def start_reserved(self, row: OccurrenceRow, at: datetime) -> None:
        """Record the start of an attempt that was reserved and not known to have started."""
        if row.reserved and row.started_at is not None:
            row.reserved, row.started_at = False, max(at, row.started_at)
            row.runs[-1] = replace(row.runs[-1], started_at=row.started_at)

    def end_run(
        self,
        row: OccurrenceRow,
        end: RunEnd,
        now: datetime,
        *,
        reason: str | None = None,
        error: RunError | None = None,
    ) -> None:
        """Complete the record of the running attempt."""
        row.runs[-1] = replace(row.runs[-1], end=end, finished_at=now, reason=reason, error=error)

    def requeue_run(self, row: OccurrenceRow, due_at: datetime) -> None:
        """Make a running occurrence pending again."""
        self._leave_state(row, State.PENDING)
        row.state, row.due_at = State.PENDING, due_at
        row.session = row.node = row.progress = row.started_at = None
        row.reserved = False
        self._index_row(row)

    def park_run(self, row: OccurrenceRow, on: str) -> None:
        """Make a running occurrence pending again, without a due time until it is woken."""
        row.parked_on = on
        self.requeue_run(row, LATEST)

    def wake_run(self, row: OccurrenceRow, due_at: datetime) -> None:
        """Make a parked occurrence due at a time; a batch is then claimed first."""
        self._unindex_row(row)
        row.parked_on = None
        row.due_at, row.level = due_at, level_when_woken(row.level, row.listed)
        self._index_row(row)

    def close_run(self, row: OccurrenceRow, state: State, now: datetime, *, reason: str | None) -> None:
        """Give an occurrence its final state."""
        self._leave_state(row, state)
        row.state, row.finished_at, row.reason, row.reserved = state, now, reason, False
        self._index_row(row)

    def cancel_waiting(self, job: JobRow, now: datetime) -> None:
        """Cancel the pending occurrences of a retired job."""
        for occurrence in sorted(job.pending):
            self.close_run(self.occurrences[occurrence], State.CANCELLED, now, reason=Reason.RETIRED)
        job.waiting_until = None

    def delete_run(self, row: OccurrenceRow) -> None:
        """Delete an occurrence."""
        job = row.job
        self._unindex_row(row)
        if row.parent is not None:
            self.items[row.parent].discard(row.id)
            if not self.items[row.parent]:
                del self.items[row.parent], self.children[row.parent]
        del self.occurrences[row.id]
        del job.keys[row.key]
        self.ids.discard(row.id)
        job.ids.discard(row.id)
        if row.scheduled_for is not None:
            job.nominal[row.scheduled_for].remove(row)
            if not job.nominal[row.scheduled_for]:
                del job.nominal[row.scheduled_for]

    def expire_late(self, now: datetime) -> None:
        """Give the verdict missed(late) to occurrences that never started and are past their expiry."""
        while (first := self.expiring.first()) is not None and first[0] < now:
            self.close_run(self.occurrences[first[1]], State.MISSED, now, reason=Reason.LATE)

    def _leave_state(self, row: OccurrenceRow, new: State) -> None:
        require_transition(row.state, new, what=f"occurrence {row.id} of {row.job.spec.name!r}")
        self._unindex_row(row)

    def _index_row(self, row: OccurrenceRow) -> None:
        job = row.job
        if row.parent is not None:
            self.children.setdefault(row.parent, Counter())[row.state] += 1
        if row.origin in SERIAL_ORIGINS and row.state in ACTIVE:
            job.serial.add(row.id)
        if row.state is State.PENDING:
            job.pending.add(row.id)
            self.pending.setdefault(row.level, Sorted()).add((row.due_at, row.id))
            if row.expires_at is not None and row.attempt == 0:
                self.expiring.add((row.expires_at, row.id))
            if row.is_parked:
                self.parked.add(row.id)
        elif row.state is State.RUNNING:
            job.running.add(row.id)
            self.running.add(row.id)
            if row.session is not None:
                self.sessions[row.session].running.add(row.id)
        elif row.finished_at is not None:
            job.final.add((row.finished_at, row.id))

    def _unindex_row(self, row: OccurrenceRow) -> None:
        job = row.job
        if row.parent is not None:
            self.children[row.parent][row.state] -= 1
        job.serial.discard(row.id)
        if row.state is State.PENDING:
            job.pending.discard(row.id)
            waiting = self.pending[row.level]
            waiting.discard((row.due_at, row.id))
            if not waiting:
                del self.pending[row.level]
            if row.expires_at is not None:
                self.expiring.discard((row.expires_at, row.id))
            if row.is_parked:
                self.parked.discard(row.id)
        elif row.state is State.RUNNING:
            job.running.discard(row.id)
            self.running.discard(row.id)
            if row.session is not None:
                self.sessions[row.session].running.discard(row.id)
        elif row.finished_at is not None:
            job.final.discard((row.finished_at, row.id))

    # --- wait queues of locks -----------------------------------------------------------------------------------------

    def wake_next(self, name: str) -> None:
        """Notify the first waiter in a lock's queue, and remove it from the queue."""
        waiting = self.wait_queues.get(name)
        if waiting:
            first = next(iter(waiting))
            self.leave_queue(first, name)
            first.notified.append(name)
            self.world.changed.notify_all()

    def leave_queue(self, waiter: Any, name: str) -> None:
        """Remove a ``MemoryQueues`` from a lock's queue."""
        waiting = self.wait_queues.get(name, {})
        waiting.pop(waiter, None)
        if not waiting:
            self.wait_queues.pop(name, None)

    # --- the audit trail ----------------------------------------------------------------------------------------------

    def record_in_trail(self, at: datetime, by: str, action: str, target: str, why: str, **details: Any) -> None:
        """Record an act in the trail, with its operator, target and reason."""
        self.trail.append(
            TrailEntry(self.world.next_number("trail"), at, clean(by), action, target, clean(why), details)
        )
