"""Verbs on named locks: mutual exclusion with a lease and a token. Floor 3.

Tokens come from the store's one counter, so they grow with every grant of a name, also after its row was deleted.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, and_, bindparam, delete, exists, or_, select, update

from cronsensus.model.session import LockGrant
from cronsensus.stores.sql.schema import locks, sessions
from cronsensus.stores.sql.sessions import OPEN, require_alive
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
_GRANTED = and_(_NAMED, _l.token == bindparam("held"))
_FIND_HELD = select(_l.token).where(_NAMED, HELD)
_LOCK_ROW = select(_l.token, HELD.label("held")).where(_NAMED).with_for_update(of=locks)
_DELETE = delete(locks).where(_NAMED)
_EXTEND = update(locks).where(_GRANTED, HELD).values(lease_until=bindparam("until"))
_UNLOCK = delete(locks).where(_GRANTED, HELD)


def is_held(tx: Transaction, name: str) -> bool:
    """Whether somebody holds the lock; a look, for callers who ask often."""
    return tx.row(_FIND_HELD, space=tx.namespace, lock=name, **tx.clocks) is not None


def lock(tx: Transaction, name: str, holder: str, ttl: timedelta, session: str | None) -> LockGrant | None:
    """Take the lock if it is free or overdue.

    Safe when two want it at the same instant: (namespace, name) is the primary key, so one INSERT goes in; an overdue
    row is locked before it is replaced.

    Raises:
        LeaseLost: ``session`` is not alive.
    """
    if session is not None:
        require_alive(tx, session)
    row = tx.row(_LOCK_ROW, space=tx.namespace, lock=name, **tx.clocks)
    if row is not None:
        if row.held:
            return None
        tx.change(_DELETE, space=tx.namespace, lock=name)
    grant = LockGrant(name=name, holder=holder, token=tx.next_token())
    new = {
        "namespace": tx.namespace,
        "name": name,
        "holder": holder,
        "session": session,
        "token": grant.token,
        "acquired_at": tx.now,
        "lease_until": tx.lease_now + ttl // _MICROSECOND,
        "epoch": tx.epoch,
    }
    absent = tx.dialect.insert_absent(locks, ("namespace", "name"))
    return grant if tx.change_many(absent, [new]) == 1 else None


def extend(tx: Transaction, grant: LockGrant, ttl: timedelta) -> bool:
    """Extend a lock. Safe: one UPDATE whose condition is that it is still held under this token."""
    until = tx.lease_now + ttl // _MICROSECOND
    held = {"space": tx.namespace, "lock": grant.name, "held": grant.token}
    return tx.change(_EXTEND, **held, until=until, **tx.clocks) == 1


def unlock(tx: Transaction, grant: LockGrant) -> bool:
    """Free a lock. Safe: one DELETE whose condition is that it is still held under this token."""
    return tx.change(_UNLOCK, space=tx.namespace, lock=grant.name, held=grant.token, **tx.clocks) == 1
