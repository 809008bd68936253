"""The verb that takes work: what ``choosing`` chose becomes running, each under a new token.

Nothing here waits for another node's rows: entries that somebody else is taking are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, literal_column, null, select, update

from cronsensus.errors import StoreUnavailable
from cronsensus.instants import from_micros
from cronsensus.model.occurrence import Claim
from cronsensus.model.states import Reason
from cronsensus.stores.sql.choosing import ORIGINS, Choice, choose_at
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.looking import LEVELS, due_at
from cronsensus.stores.sql.occurrencerows import PENDING, STILL_PENDING, instant
from cronsensus.stores.sql.schema import along, occurrences, sessions
from cronsensus.stores.sql.sessions import ALIVE, MINE, not_alive, set_lease
from cronsensus.stores.sql.transaction import Transaction

_o, _s = occurrences.c, sessions.c
MOST_EXPIRED = 1000
"""Most occurrences that one claim closes as missed(late); the rest is passed over until the next."""

_EXPIRED = (
    select(_o.id)
    .with_hint(*along("expiring"))
    .where(
        _o.namespace == bindparam("space"),
        PENDING,
        _o.attempt == literal_column("0"),
        _o.expires_at.is_not(None),
        _o.expires_at < bindparam("now"),
    )
)
_ANY_EXPIRED = _EXPIRED.limit(1)
_EXPIRED_LOCKED = _EXPIRED.order_by(_o.expires_at).limit(MOST_EXPIRED).with_for_update(skip_locked=True)
_CLOSE_EXPIRED = (
    update(occurrences)
    .where(_o.id == bindparam("occurrence"), STILL_PENDING)
    .values(state="missed", reason=Reason.LATE, finished_at=bindparam("now"))
)
# One row for each priority that has work due, highest first, or a single one without; none if the session is not alive.
_OPENING = {
    grouping: (
        select(_s.node, _s.lease_until, _EXPIRED.exists().label("late"), levels.c.priority)
        .select_from(sessions.outerjoin(levels, and_(levels.c.priority.is_not(None), due_at(levels))))
        .where(MINE, ALIVE)
        .order_by(levels.c.priority.desc())
        .with_for_update(of=sessions)
    )
    for grouping, levels in LEVELS.items()
}
_START = (
    update(occurrences)
    .where(_o.id == bindparam("occurrence"), STILL_PENDING)
    .values(
        state=literal_column("'running'"),
        attempt=_o.attempt + literal_column("1"),
        token=bindparam("given"),
        session=bindparam("holder"),
        node=bindparam("on"),
        started_at=bindparam("begins"),
        reason=null(),
        error=null(),
        progress_done=null(),
        progress_total=null(),
    )
)


@dataclass(frozen=True, slots=True)
class Taken:
    """Occurrences that were made running, in order, each under its token.

    Attributes:
        now: the store's clock then; never later than it was, where what was taken may have to wait for its due time.
    """

    choice: Choice
    tokens: Sequence[int]
    session: str
    now: int

    def claims(self) -> list[Claim]:
        """Return the claims; done after the transaction, which others wait for."""
        now = from_micros(self.now)
        return [self._claim(row, token, now) for row, token in zip(self.choice.chosen, self.tokens, strict=True)]

    def _claim(self, row: AnyRow, token: int, now: datetime) -> Claim:
        args, kwargs = self.choice.payloads[row.id]
        return Claim(
            id=row.id,
            spec=self.choice.specs[row.job_id],
            key=row.key,
            origin=ORIGINS[row.origin],
            scheduled_for=instant(row.scheduled_for),
            due_at=from_micros(row.due_at),
            attempt=row.attempt + 1,
            token=token,
            session=self.session,
            args=args,
            kwargs=kwargs,
            claimed_at=now,
            crashes=row.crashes,
            failures=row.failures,
        )


def claim(
    tx: Transaction, session: str, limit: int, functions: Collection[str], lease: timedelta, *, ahead: int = 0
) -> Taken | None:
    """Take up to ``limit`` pending occurrences of ``functions`` for ``session``, due now or within ``ahead`` (µs).

    Safe when two nodes claim at the same instant: an entry is taken by the UPDATE that asks once more for ``pending``,
    on rows that this transaction has locked. Safe when the session is ended at the same instant: the first SELECT locks
    its row (or the transaction has the one write lock), so the reclaim sees what was claimed, or this raises.

    Raises:
        LeaseLost: the session is not alive.
    """
    found, locked_at = tx.lock_rows(
        _OPENING[tx.dialect.groups_by_seeking], session=session, space=tx.namespace, now=tx.now + ahead, **tx.clocks
    )
    if not found or found[0].lease_until <= locked_at:
        raise not_alive(session)
    if found[0].late:
        expire(tx)
    choice = Choice(
        functions if isinstance(functions, AbstractSet) else frozenset(functions), limit, until=tx.now + ahead
    )
    for level in found:
        if level.priority is not None and choice.wanted > 0:
            choose_at(tx, choice, level.priority)
    if not choice.chosen:
        return None
    taken = start(tx, choice, session, found[0].node)
    set_lease(tx, session, lease)
    return taken


def expire_if_any(tx: Transaction) -> None:
    """Do what ``expire`` does if there is anything to do, and else lock nothing.

    InnoDB also locks what lies next to the range that it was asked for: entries of running occurrences. A transaction
    that goes on to wait for such a row would deadlock with the one that is recording its end.
    """
    if tx.row(_ANY_EXPIRED, space=tx.namespace, now=tx.now) is not None:
        expire(tx)


def expire(tx: Transaction) -> None:
    """Give the verdict missed(late) to what never started and is past its expiry."""
    late = [{"occurrence": row.id, "now": tx.now} for row in tx.rows(_EXPIRED_LOCKED, space=tx.namespace, now=tx.now)]
    tx.change_many(_CLOSE_EXPIRED, late)


def start(tx: Transaction, choice: Choice, session: str, node: str) -> Taken:
    """Make pending occurrences running for ``session``, each under a new token; no attempt starts before it is due."""
    rows = choice.chosen
    tokens = tx.next_tokens(len(rows))
    # The end of the attempt before may have been written since this transaction began.
    now = tx.by_now
    started = tx.change_tuples(
        _START,
        ("given", "holder", "on", "begins", "occurrence"),
        [(token, session, node, max(now, row.due_at), row.id) for row, token in zip(rows, tokens, strict=True)],
    )
    if started != len(rows):
        raise StoreUnavailable("a claimed row changed under a lock; nothing was written; please report this")
    return Taken(choice, tokens, session, tx.now)
