"""The verb that takes work: due pending occurrences, in order, within what policies allow. Floor 3.

::

    for each priority that has work due, highest first:
        read due entries of the pending index, oldest first, a page at a time
        pass over what this node cannot run, what waits its turn, what is full; remember their jobs
        further pages leave those jobs out in the index itself, so a long queue of one of them costs little

Nothing here waits for another node's rows: entries that somebody else is taking are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import Select, and_, bindparam, exists, func, literal_column, not_, null, or_, select, tuple_, update

from cronsensus.errors import StoreCorrupt, StoreUnavailable
from cronsensus.model.instants import from_micros
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim
from cronsensus.model.states import Origin, Reason
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.jobrows import specs_of
from cronsensus.stores.sql.looking import DUE_AT_LEVEL, LEVELS
from cronsensus.stores.sql.occurrencerows import ACTIVE, PENDING, RUNNING, SERIAL, instant, read_payload
from cronsensus.stores.sql.schema import jobs, occurrences, sessions
from cronsensus.stores.sql.sessions import ALIVE, MINE, not_alive, set_lease
from cronsensus.stores.sql.transaction import Transaction

_log = logging.getLogger("cronsensus.stores")
_o, _j, _s = occurrences.c, jobs.c, sessions.c
MOST_EXPIRED = 1000
"""Most occurrences that one claim closes as missed(late); the rest is passed over until the next."""
MOST_PAGE = 500
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

_EXPIRED = select(_o.id).where(
    _o.namespace == bindparam("space"),
    PENDING,
    _o.attempt == literal_column("0"),
    _o.expires_at.is_not(None),
    _o.expires_at < bindparam("now"),
)
_EXPIRED_LOCKED = _EXPIRED.order_by(_o.expires_at).limit(MOST_EXPIRED).with_for_update(skip_locked=True)
_CLOSE_EXPIRED = (
    update(occurrences)
    .where(_o.id == bindparam("occurrence"), PENDING)
    .values(state="missed", reason=Reason.LATE, finished_at=bindparam("now"))
)
# One row for each priority that has work due, highest first, or a single one without; none if the session is not alive.
_OPENING = (
    select(_s.node, _EXPIRED.exists().label("late"), LEVELS.c.priority)
    .select_from(sessions.outerjoin(LEVELS, and_(LEVELS.c.priority.is_not(None), DUE_AT_LEVEL)))
    .where(MINE, ALIVE)
    .order_by(LEVELS.c.priority.desc())
    .with_for_update(of=sessions)
)
_JOBS = select(
    _j.id,
    _j.revision,
    _j.function,
    _j.concurrency,
    # The earliest waiting one of those that overlap rules, if none of them runs: the only one whose turn it can be.
    select(func.min(_o.id))
    .where(_o.job_id == _j.id, SERIAL, ACTIVE, PENDING)
    .correlate(jobs)
    .scalar_subquery()
    .label("head"),
    exists().where(_o.job_id == _j.id, SERIAL, ACTIVE, RUNNING).correlate(jobs).label("busy"),
).where(_j.id.in_(bindparam("ids", expanding=True)))
_RUNNING_NOW = (
    select(_o.job_id, func.count().label("runs"))
    .join_from(sessions, occurrences, and_(_o.session == _s.id, RUNNING))
    .where(_s.namespace == bindparam("space"), ALIVE, _o.job_id.in_(bindparam("ids", expanding=True)))
    .group_by(_o.job_id)
)
_START = (
    update(occurrences)
    .where(_o.id == bindparam("occurrence"), PENDING)
    .values(
        state=literal_column("'running'"),
        attempt=_o.attempt + literal_column("1"),
        token=bindparam("given"),
        session=bindparam("holder"),
        node=bindparam("on"),
        started_at=bindparam("now"),
        reason=null(),
        error=null(),
        progress_done=null(),
        progress_total=null(),
    )
)


@cache
def _page(*, further: bool) -> Select[tuple[Any, ...]]:
    """Return the query for due entries at one priority: the first page, or a further one that leaves jobs out."""
    page = (
        select(*CLAIMED)
        .where(
            _o.namespace == bindparam("space"),
            PENDING,
            _o.priority == bindparam("level"),
            _o.due_at <= bindparam("now"),
            NOT_EXPIRED,
        )
        .order_by(_o.due_at, _o.id)
        .limit(bindparam("size"))
        .with_for_update(skip_locked=True)
    )
    if further:
        page = page.where(
            tuple_(_o.due_at, _o.id) > tuple_(bindparam("after_due"), bindparam("after_id")),
            _o.job_id.not_in(bindparam("full", expanding=True)),
            or_(
                not_(and_(SERIAL, _o.job_id.in_(bindparam("blocked", expanding=True)))),
                _o.id.in_(bindparam("heads", expanding=True)),
            ),
        )
    return page


@dataclass(slots=True)
class _Choice:
    """What one claim has chosen so far, and what it learned about jobs on the way."""

    functions: AbstractSet[str]
    limit: int
    chosen: list[AnyRow] = field(default_factory=list)
    jobs: dict[int, AnyRow] = field(default_factory=dict)
    specs: dict[int, JobSpec] = field(default_factory=dict)
    room: dict[int, int] = field(default_factory=dict)
    """How many more runs of a job its ``concurrency`` allows, where it sets one."""
    left_out: set[int] = field(default_factory=set)
    """Jobs that are full, or that this node cannot run."""
    blocked: dict[int, int] = field(default_factory=dict)
    """Jobs with occurrences that wait their turn, and the one whose turn it is (0: nobody's)."""

    @property
    def wanted(self) -> int:
        return self.limit - len(self.chosen)

    def consider(self, row: AnyRow) -> None:
        """Choose an entry, or learn why not."""
        job = self.jobs[row.job_id]
        if job.function not in self.functions:
            self.left_out.add(job.id)
        if job.id in self.left_out:
            return
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


@dataclass(frozen=True, slots=True)
class Taken:
    """Occurrences that were made running, in order, each under its token."""

    rows: Sequence[AnyRow]
    tokens: Sequence[int]
    specs: Mapping[int, JobSpec]
    session: str
    now: int

    def claims(self) -> list[Claim]:
        """Return the claims; done after the transaction, which others wait for."""
        now = from_micros(self.now)
        return [
            _claim(row, token, self.session, self.specs[row.job_id], now)
            for row, token in zip(self.rows, self.tokens, strict=True)
        ]


def claim(tx: Transaction, session: str, limit: int, functions: Collection[str], lease: timedelta) -> Taken | None:
    """Take up to ``limit`` due pending occurrences of ``functions`` for ``session``.

    Safe when two nodes claim at the same instant: an entry is taken by the UPDATE that asks once more for ``pending``,
    on rows that this transaction has locked. Safe when the session is ended at the same instant: the first SELECT locks
    its row (or the transaction has the one write lock), so the reclaim sees what was claimed, or this raises.

    Raises:
        LeaseLost: the session is not alive.
    """
    found = tx.rows(_OPENING, session=session, space=tx.namespace, now=tx.now, **tx.clocks)
    if not found:
        raise not_alive(session)
    if found[0].late:
        expire(tx)
    choice = _Choice(functions if isinstance(functions, AbstractSet) else frozenset(functions), limit)
    for level in found:
        if level.priority is not None and choice.wanted > 0:
            _choose_at(tx, choice, level.priority)
    if not choice.chosen:
        return None
    taken = start(tx, choice.chosen, choice.specs, session, found[0].node)
    set_lease(tx, session, lease)
    return taken


def expire(tx: Transaction) -> None:
    """Give the verdict missed(late) to what never started and is past its expiry."""
    late = [{"occurrence": row.id, "now": tx.now} for row in tx.rows(_EXPIRED_LOCKED, space=tx.namespace, now=tx.now)]
    tx.change_many(_CLOSE_EXPIRED, late)


def _choose_at(tx: Transaction, choice: _Choice, level: int) -> None:
    """Choose among the entries of one priority, page by page."""
    here = {"space": tx.namespace, "level": level, "now": tx.now}
    size = min(choice.wanted, MOST_PAGE)
    page = tx.rows(_page(further=False), **here, size=size)
    while page:
        _learn(tx, choice, page)
        for row in page:
            choice.consider(row)
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


def _learn(tx: Transaction, choice: _Choice, page: Sequence[AnyRow]) -> None:
    """Read of the jobs on a page what decides: function, turn, and room."""
    unknown = {row.job_id for row in page} - choice.jobs.keys()
    if not unknown:
        return
    found = tx.rows_in(_JOBS, "ids", unknown)
    choice.jobs.update((row.id, row) for row in found)
    able = [row for row in found if row.function in choice.functions]
    limited = {row.id: row.concurrency for row in able if row.concurrency is not None}
    if limited:
        counted = tx.rows_in(_RUNNING_NOW, "ids", limited, space=tx.namespace, **tx.clocks)
        runs = {row.job_id: row.runs for row in counted}
        choice.room.update((job, most - runs.get(job, 0)) for job, most in limited.items())
    try:
        choice.specs.update(specs_of(tx, {row.id: row.revision for row in able}))
    except StoreCorrupt:
        _leave_out_unreadable(tx, choice, able)


def _leave_out_unreadable(tx: Transaction, choice: _Choice, able: Sequence[AnyRow]) -> None:
    """Leave out the jobs whose definition cannot be read, and name them, so that the others still run."""
    for row in able:
        try:
            choice.specs.update(specs_of(tx, {row.id: row.revision}))
        except StoreCorrupt as error:
            choice.left_out.add(row.id)
            _log.error("work waits that cannot be run: %s", error)


def start(tx: Transaction, rows: Sequence[AnyRow], specs: Mapping[int, JobSpec], session: str, node: str) -> Taken:
    """Make pending occurrences running for ``session``, each under a new token."""
    tokens = tx.dialect.next_tokens(tx.connection, len(rows))
    started = tx.change_many(
        _START,
        [
            {"occurrence": row.id, "given": token, "holder": session, "on": node, "now": tx.now}
            for row, token in zip(rows, tokens, strict=True)
        ],
    )
    if started != len(rows):
        raise StoreUnavailable("a claimed row changed under a lock; nothing was written; please report this")
    return Taken(rows, tokens, specs, session, tx.now)


def _claim(row: AnyRow, token: int, session: str, spec: JobSpec, now: datetime) -> Claim:
    args, kwargs = read_payload(row.payload)
    return Claim(
        id=row.id,
        spec=spec,
        key=row.key,
        origin=Origin(row.origin),
        scheduled_for=instant(row.scheduled_for),
        due_at=from_micros(row.due_at),
        attempt=row.attempt + 1,
        token=token,
        session=session,
        args=args,
        kwargs=kwargs,
        claimed_at=now,
        crashes=row.crashes,
        failures=row.failures,
    )
