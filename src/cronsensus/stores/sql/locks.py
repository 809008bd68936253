"""Verbs on named locks: mutual exclusion with a lease and a token.

Tokens come from the store's one counter, so they grow with every grant of a name, also after its row was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, exists, func, or_, select, update

from cronsensus.model.session import LockGrant
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.schema import locks, sessions
from cronsensus.stores.sql.sessions import ALIVE, MINE, OPEN, not_alive, require_alive
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction

_l, _s = locks.c, sessions.c
_MICROSECOND = timedelta(microseconds=1)

_OWNER_ALIVE = (
    exists()
    .where(
        _s.namespace == _l.namespace,
        _s.id == _l.session,
        OPEN,
        _s.epoch == bindparam("boot"),
        _s.lease_until > bindparam("lease_now"),
    )
    .correlate(locks)
)
HELD: ColumnElement[bool] = and_(
    _l.epoch == bindparam("boot"), _l.lease_until > bindparam("lease_now"), or_(_l.session.is_(None), _OWNER_ALIVE)
)
"""Not overdue, and its session, if it has one, alive. Wants ``tx.clocks``."""

_NAMED = and_(_l.namespace == bindparam("space"), _l.name == bindparam("lock"))
_PLACE = and_(_NAMED, _l.place == bindparam("at"))
_GRANTED = and_(
    _PLACE,
    _l.token == bindparam("held"),
    _l.holder == bindparam("by"),
    func.coalesce(_l.session, "") == bindparam("of_session"),
)
"""A token alone may have been given twice, by a server whose clock lags behind that of the one that it replaced."""
_LOOK = select(
    select(func.count()).where(_NAMED, HELD).scalar_subquery().label("held"),
    select(func.min(_l.most)).where(_NAMED, HELD).scalar_subquery().label("most"),
    exists().where(MINE, ALIVE).label("alive"),
)
_PLACES = (
    select(_l.place, _l.session, _l.most, HELD.label("held")).where(_NAMED).order_by(_l.place).with_for_update(of=locks)
)
_HOLDERS = (
    select(_l.place, _l.holder, _l.token, _l.session, HELD.label("held"))
    .where(_NAMED)
    .order_by(_l.place)
    .with_for_update(of=locks)
)
_ONE_PLACE = select(_l.session, HELD.label("held")).where(_PLACE).with_for_update(of=locks)
_LOCK_OWNER = select(_s.id).where(_s.namespace == bindparam("space"), _s.id == bindparam("owner")).with_for_update()
_GRANT = (
    update(locks)
    .where(_PLACE)
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("holder", "session", "token", "acquired_at", "lease_until", "most", "epoch")
        }
    )
)
_EXTEND = update(locks).where(_GRANTED, HELD).values(lease_until=bindparam("until"))
_UNLOCK = delete(locks).where(_GRANTED, HELD)
_LEAVE = delete(locks).where(_PLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Who wants a place of which lock, and for how long."""

    name: str
    holder: str
    ttl: timedelta
    session: str | None
    limit: int


def is_taken(tx: Transaction, wanted: Wanted) -> bool:
    """Whether all places are held; a look, for callers who ask often.

    Raises:
        LeaseLost: the session is not alive.
    """
    session = wanted.session or ""
    seen = tx.rows(_LOOK, space=tx.namespace, lock=wanted.name, session=session, **tx.clocks)[0]
    if wanted.session is not None and not seen.alive:
        raise not_alive(wanted.session)
    return bool(seen.held >= _room(wanted, [seen.most]))


def lock(tx: Transaction, wanted: Wanted) -> LockGrant | None:
    """Take the first place that is free or overdue, if no more hold the lock than it and they allow.

    Safe when several want it at the same instant: each locks the row of place 0 first, or inserts it, of which
    (namespace, name, place) as the primary key lets only one do so; the others wait there. Only then does it read who
    holds the lock. The token is taken last, when nobody else can get a place before this transaction has ended.

    Raises:
        LeaseLost: the session is not alive.
    """
    if wanted.session is not None:
        require_alive(tx, wanted.session)
    rows, first = _places(tx, wanted), False
    while 0 not in rows:
        first = _insert(tx, wanted, 0)
        rows = _places(tx, wanted)
    if first:
        del rows[0]
    held = {place: row.most for place, row in rows.items() if not _is_overdue(tx, wanted.name, place, row)}
    if len(held) >= _room(wanted, held.values()):
        if first:
            tx.change(_LEAVE, space=tx.namespace, lock=wanted.name, at=0)
        return None
    place = next(place for place in range(wanted.limit) if place not in held)
    if first or place in rows or _insert(tx, wanted, place):  # where place 0 is new, it is this caller's, and the first
        return _grant(tx, wanted, place)
    return None


def _places(tx: Transaction, wanted: Wanted) -> dict[int, AnyRow]:
    rows = tx.rows(_PLACES, space=tx.namespace, lock=wanted.name, **tx.clocks)
    return {row.place: row for row in rows}


def _room(wanted: Wanted, of_holders: Iterable[int | None]) -> int:
    """Return how many may hold the lock, by the caller's limit and those of its holders."""
    return min([wanted.limit, *(most for most in of_holders if most is not None)])


def _insert(tx: Transaction, wanted: Wanted, place: int) -> bool:
    row = {"namespace": tx.namespace, "name": wanted.name, "place": place, **_holding(tx, wanted, 0)}
    return tx.change_many(tx.dialect.insert_absent(locks, ("namespace", "name", "place")), [row]) == 1


def _is_overdue(tx: Transaction, name: str, place: int, row: AnyRow) -> bool:
    """Whether a locked row is held by nobody.

    If it is overdue because its session's lease ran out, that session is locked too and looked at once more: it may be
    renewing its lease in this very moment.
    """
    if not row.held and row.session is not None:
        tx.row(_LOCK_OWNER, space=tx.namespace, owner=row.session)
        again = tx.row(_ONE_PLACE, space=tx.namespace, lock=name, at=place, **tx.clocks)
        return again is not None and not again.held
    return not row.held


def _grant(tx: Transaction, wanted: Wanted, place: int) -> LockGrant:
    token = tx.next_token()
    new = {f"new_{column}": value for column, value in _holding(tx, wanted, token).items()}
    tx.change(_GRANT, space=tx.namespace, lock=wanted.name, at=place, **new)
    return LockGrant(name=wanted.name, holder=wanted.holder, token=token, place=place, session=wanted.session)


def _holding(tx: Transaction, wanted: Wanted, token: int) -> dict[str, Any]:
    """Return what a row says of its holder."""
    return {
        "holder": wanted.holder,
        "session": wanted.session,
        "token": token,
        "acquired_at": tx.now,
        "lease_until": tx.lease_now + wanted.ttl // _MICROSECOND,
        "most": wanted.limit,
        "epoch": tx.epoch,
    }


def extend(tx: Transaction, grant: LockGrant, ttl: timedelta) -> bool:
    """Extend a lock. Safe: one UPDATE whose condition is that it is still held under this token, by this holder."""
    until = tx.lease_now + ttl // _MICROSECOND
    return tx.change(_EXTEND, **_granted(tx, grant), until=until, **tx.clocks) == 1


def unlock(tx: Transaction, grant: LockGrant) -> bool:
    """Free a lock. Safe: one DELETE whose condition is that it is still held under this token, by this holder."""
    return tx.change(_UNLOCK, **_granted(tx, grant), **tx.clocks) == 1


def break_lock(tx: Transaction, name: str, *, by: str, why: str) -> list[LockGrant]:
    """Free all places of a lock.

    Safe when a holder renews or frees its place, or another takes one, at the same instant: the rows are locked first,
    and only what was read under the lock goes. A place that is taken meanwhile is a new holder's, and stays.
    """
    rows = tx.rows(_HOLDERS, space=tx.namespace, lock=name, **tx.clocks)
    held = [
        LockGrant(name=name, holder=row.holder, token=row.token, place=row.place, session=row.session)
        for row in rows
        if row.held
    ]
    for grant in held:
        tx.change(_LEAVE, space=tx.namespace, lock=name, at=grant.place)
    if held:
        record(tx, by, "break", name, why)
    return held


def _granted(tx: Transaction, grant: LockGrant) -> dict[str, Any]:
    return {
        "space": tx.namespace,
        "lock": grant.name,
        "at": grant.place,
        "held": grant.token,
        "by": grant.holder,
        "of_session": grant.session or "",
    }
