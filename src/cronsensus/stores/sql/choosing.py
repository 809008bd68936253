"""Which pending occurrences a node may take: in order, within what policies allow.

::

    for each priority that has work due, highest first:
        read due entries of the pending index, oldest first, a page at a time
        pass over what this node cannot run, what waits its turn, what is full; remember their jobs
        further pages leave those jobs out in the index itself, so a long queue of one of them costs little
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, literal_column, not_, or_, select, tuple_

from cronsensus.codec import read_payload
from cronsensus.errors import StoreCorrupt
from cronsensus.model.job import JobSpec
from cronsensus.model.states import Origin
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import NAMES_OF_DEFINITION, specs_of
from cronsensus.stores.sql.occurrencerows import (
    ACTIVE,
    LISTED_PENDING,
    LISTED_RUNNING,
    PENDING,
    RUNNING,
    SERIAL,
    instant,
)
from cronsensus.stores.sql.schema import along, jobs, occurrences, sessions
from cronsensus.stores.sql.sessions import ALIVE, OPEN, OVERDUE
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import MOST_COUNTED, READING_RAISES, instant_of, whole

_o, _j, _s = occurrences.c, jobs.c, sessions.c
MOST_PAGE = 500
ORIGINS = {origin.value: origin for origin in Origin}
Payload = tuple[tuple[Any, ...], dict[str, Any]]
MOST_LEFT_OUT = 200
"""Most jobs that a page is asked to leave out; beyond, they are passed over here."""

CLAIMED = (
    _o.id,
    _o.job_id,
    _o.serial,
    _o.key,
    _o.origin,
    _o.scheduled_for,
    _o.due_at,
    _o.attempt,
    _o.crashes,
    _o.failures,
    _o.payload,
)
NOT_EXPIRED = or_(_o.expires_at.is_(None), _o.expires_at >= bindparam("now"), _o.attempt > 0)

_JOBS = select(
    _j.id,
    *NAMES_OF_DEFINITION,
    _j.function,
    _j.concurrency,
    # The earliest waiting one of those that overlap rules, if none of them runs: the only one whose turn it can be.
    select(func.min(_o.id))
    .with_hint(*along("serial"))
    .where(_o.job_id == _j.id, SERIAL, ACTIVE, PENDING)
    .correlate(jobs)
    .scalar_subquery()
    .label("head"),
    # Not EXISTS: PostgreSQL might rather look up once which jobs are busy at all.
    select(literal_column("1"))
    .select_from(occurrences)
    .with_hint(*along("serial"))
    .where(_o.job_id == _j.id, SERIAL, ACTIVE, RUNNING)
    .limit(1)
    .correlate(jobs)
    .scalar_subquery()
    .label("busy"),
).where(_j.id.in_(bindparam("ids", expanding=True)))
# Two nodes that took different occurrences of one job at the same instant would each count without the other's.
_LIMITED_LOCKED = (
    select(_j.id).where(_j.id.in_(bindparam("ids", expanding=True))).order_by(_j.id).with_for_update(key_share=True)
)
_MORE_LIMITED_LOCKED = _LIMITED_LOCKED.with_for_update(key_share=True, skip_locked=True)
_RUNNING_NOW = (
    select(
        _o.job_id,
        _o.session,
        func.count().label("runs"),
        select(ALIVE)
        .where(_s.namespace == bindparam("space"), _s.id == _o.session)
        .correlate(occurrences)
        .scalar_subquery()
        .label("alive"),
    )
    .with_hint(*along("running"))
    .where(_o.namespace == bindparam("space"), LISTED_RUNNING, _o.job_id.in_(bindparam("ids", expanding=True)))
    .group_by(_o.job_id, _o.session)
)
# Whose lease ran out may be renewing it in this very moment, unless his row is locked.
_OVERDUE_LOCKED = (
    select(_s.id)
    .where(_s.namespace == bindparam("space"), _s.id.in_(bindparam("holders", expanding=True)), OPEN, OVERDUE)
    .order_by(_s.number)
    .with_for_update(skip_locked=True)
)


@cache
def _page(*, further: bool) -> Select[tuple[Any, ...]]:
    """Return the query for due entries at one priority: the first page, or a further one that leaves jobs out."""
    page = (
        select(*CLAIMED)
        .with_hint(*along("pending"))
        .where(
            _o.namespace == bindparam("space"),
            LISTED_PENDING,
            _o.priority == bindparam("level"),
            _o.due_at <= bindparam("until"),
            NOT_EXPIRED,
        )
        .order_by(_o.due_at, _o.id)
        .limit(bindparam("size"))
        .with_for_update(skip_locked=True)
    )
    if further:
        page = page.where(
            # Said twice, because MySQL seeks by a column and not by a pair.
            _o.due_at >= bindparam("after_due"),
            tuple_(_o.due_at, _o.id) > tuple_(bindparam("after_due"), bindparam("after_id")),
            _o.job_id.not_in(bindparam("full", expanding=True)),
            or_(
                not_(and_(SERIAL, _o.job_id.in_(bindparam("blocked", expanding=True)))),
                _o.id.in_(bindparam("heads", expanding=True)),
            ),
        )
    return page


@dataclass(slots=True)
class Choice:
    """What one claim has chosen so far, and what it learned about jobs on the way."""

    functions: AbstractSet[str]
    limit: int
    until: int
    """The latest due time that counts, microseconds."""
    chosen: list[AnyRow] = field(default_factory=list)
    jobs: dict[int, AnyRow] = field(default_factory=dict)
    specs: dict[int, JobSpec] = field(default_factory=dict)
    room: dict[int, int] = field(default_factory=dict)
    """How many more runs of a job its ``concurrency`` allows, where it sets one."""
    left_out: set[int] = field(default_factory=set)
    """Jobs that are full, or that this node cannot run."""
    counting: bool = False
    """Whether jobs with a limit are locked."""
    payloads: dict[int, Payload] = field(default_factory=dict)
    """The arguments of what was chosen."""
    blocked: dict[int, int] = field(default_factory=dict)
    """Jobs with occurrences that wait their turn, and the one whose turn it is (0: nobody's)."""

    @property
    def wanted(self) -> int:
        """How many more may be chosen."""
        return self.limit - len(self.chosen)

    def consider(self, row: AnyRow) -> None:
        """Choose an entry, or learn why not.

        Raises:
            Exception: it cannot be read.
        """
        job = self.jobs[row.job_id]
        if job.function not in self.functions:
            self.left_out.add(job.id)
        if job.id in self.left_out:
            return
        self.payloads[row.id] = read_claimed(row)
        if row.serial:
            if job.busy or job.head != row.id:
                self.blocked.setdefault(job.id, 0 if job.busy else job.head)
            elif self._take_room(job.id):
                self.blocked[job.id] = 0
                self.chosen.append(row)
        elif self._take_room(job.id):
            self.chosen.append(row)

    def _take_room(self, job: int) -> bool:
        left = self.room.get(job)
        if left is None:
            return True
        if left <= 0:
            self.left_out.add(job)
            return False
        self.room[job] = left - 1
        return True


def read_claimed(row: AnyRow) -> Payload:
    """Return the arguments of an entry, of which everything else was found to be as it must be to be started.

    Raises:
        Exception: something of it is not.
    """
    if not 0 <= row.attempt < MOST_COUNTED:
        raise ValueError(f"attempt {row.attempt!r:.60}")
    if row.origin not in ORIGINS:
        raise ValueError(f"origin {row.origin!r:.60}")
    whole(row.crashes), whole(row.failures), instant(row.scheduled_for), row.key.encode()
    instant_of(row.due_at)
    return read_payload(row.payload)


def choose_at(tx: Transaction, choice: Choice, level: int) -> None:
    """Choose among the entries of one priority, page by page."""
    here = {"space": tx.namespace, "level": level, "now": tx.now, "until": choice.until}
    size = min(choice.wanted, MOST_PAGE)
    page = tx.rows(_page(further=False), **here, size=size)
    while page:
        _learn(tx, choice, page)
        for row in page:
            try:
                choice.consider(row)
            except READING_RAISES as error:
                tx.unreadable.tell(f"run {row.id} of job {row.job_id} waits, cannot be run, and", error)
            if choice.wanted <= 0:
                return
        if len(page) < size:
            return
        size = min(2 * size + 32, MOST_PAGE)
        page = tx.rows(
            _page(further=True),
            **here,
            size=size,
            after_due=page[-1].due_at,
            after_id=page[-1].id,
            full=list(islice(choice.left_out, MOST_LEFT_OUT)),
            blocked=list(islice(choice.blocked, MOST_LEFT_OUT)),
            heads=list(islice(choice.blocked.values(), MOST_LEFT_OUT)),
        )


def _learn(tx: Transaction, choice: Choice, page: Sequence[AnyRow]) -> None:
    """Read of the jobs on a page what decides: function, turn, and room."""
    unknown = {row.job_id for row in page} - choice.jobs.keys()
    if not unknown:
        return
    found = tx.rows_in(_JOBS, "ids", unknown)
    choice.jobs.update((row.id, row) for row in found)
    able = [row for row in found if row.function in choice.functions]
    limited = {row.id: row.concurrency for row in able if type(row.concurrency) is int}
    if limited:
        _count(tx, choice, limited)
    try:
        choice.specs.update(specs_of(tx, {row.id: row for row in able}))
    except StoreCorrupt:
        _leave_out_unreadable(tx, choice, able)


def _count(tx: Transaction, choice: Choice, limited: Mapping[int, int]) -> None:
    """Read how much room is left in jobs with a limit: what live sessions run counts.

    Safe when two nodes claim at the same instant: the jobs are locked before the runs are counted, so one counts what
    the other has taken. This is the one place where a claim waits for others, and only for claims of the same job; who
    holds such locks already leaves out what is taken, or two could wait for each other.
    """
    ids = sorted(limited)
    if choice.counting:
        locked = {row.id for row in tx.rows_in(_MORE_LIMITED_LOCKED, "ids", ids)}
        choice.left_out.update(job for job in ids if job not in locked)
    else:
        tx.rows_in(_LIMITED_LOCKED, "ids", ids)
        choice.counting = True
    counted = tx.rows_in(_RUNNING_NOW, "ids", ids, space=tx.namespace, **tx.clocks)
    overdue = sorted({row.session for row in counted if not row.alive})
    dead = {row.id for row in tx.rows_in(_OVERDUE_LOCKED, "holders", overdue, space=tx.namespace, **tx.clocks)}
    choice.room.update(limited)
    for row in counted:
        if row.session not in dead:
            choice.room[row.job_id] -= row.runs


def _leave_out_unreadable(tx: Transaction, choice: Choice, able: Sequence[AnyRow]) -> None:
    """Leave out the jobs whose definition cannot be read, and name them, so that the others still run."""
    for row in able:
        try:
            choice.specs.update(specs_of(tx, {row.id: row}))
        except StoreCorrupt as error:
            choice.left_out.add(row.id)
            tx.unreadable.tell(f"work of job {row.id} waits that cannot be run, and the job", error)
