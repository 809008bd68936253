"""Verbs on named locks: mutual exclusion with a lease and a token.

Tokens come from the store's one counter, so they grow with every grant of a name, also after its row was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cronsensus.model.session import LockGrant
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sessions import not_alive, require_alive
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """A request for a place of a lock."""

    name: str
    holder: str
    ttl: timedelta
    session: str | None
    limit: int


def is_taken(tx: Transaction, request: PlaceRequest) -> bool:
    """Whether all places are held; a cheap read for callers that poll.

    Raises:
        LeaseLost: the session is not alive.
    """
    lock_values = {"space": tx.namespace, "lock": request.name, "boot": tx.epoch, "moment": tx.moment}
    [holders] = tx.send("look_at_lock", **lock_values, session=request.session or "").rows
    if request.session is not None and not holders.alive:
        raise not_alive(request.session)
    return bool(holders.held >= _room_of(request, [holders.most]))


def take_lock(tx: Transaction, request: PlaceRequest) -> LockGrant | None:
    """Take the first place that is free or overdue, if no more hold the lock than it and they allow.

    A grant ends the transaction.

    Safe when several want it at the same instant: each inserts place 0, of which (namespace, name, place) as the
    primary key lets only one do so, and locks the places; the others wait there. Only then does it read the
    holders. The token is taken last, when no other transaction can get a place before this one has ended.

    Raises:
        LeaseLost: the session is not alive.
    """
    if request.session is not None:
        require_alive(tx, request.session)
    lock_values: dict[str, Any] = {"space": tx.namespace, "lock": request.name}
    _insert_place(tx, request, 0)
    rows = {row.place: row for row in _read_places(tx, request.name).rows}
    limits_of_held = {place: row.most for place, row in rows.items() if not _is_overdue(tx, request.name, row)}
    if len(limits_of_held) >= _room_of(request, limits_of_held.values()):
        if 0 not in limits_of_held and rows[0].token == 0:
            tx.send("delete_place", **lock_values, place=0)
        return None
    place = next(place for place in range(request.limit) if place not in limits_of_held)
    if place not in rows:
        _insert_place(tx, request, place)
    last = tx.take_tokens(1)
    tx.send(
        "grant_place", **lock_values, place=place, seen_token=rows[place].token if place in rows else 0,
        holder=request.holder, session=request.session, now=tx.now, until=_end_of_lock(tx, request.ttl),
        most=request.limit, boot=tx.epoch, expect=1,
    )  # fmt: skip
    tx.commit()
    return LockGrant(
        name=request.name, holder=request.holder, token=last.rows[0].last, place=place, session=request.session
    )


def _read_places(tx: Transaction, name: str) -> Pending:
    return tx.send("lock_places", space=tx.namespace, lock=name, boot=tx.epoch, moment=tx.moment)


def _room_of(request: PlaceRequest, limits_of_holders: Iterable[int | None]) -> int:
    """Return how many may hold the lock, by the caller's limit and those of its holders."""
    return min([request.limit, *(holder_limit for holder_limit in limits_of_holders if holder_limit is not None)])


def _insert_place(tx: Transaction, request: PlaceRequest, place: int) -> None:
    row = (place, request.holder, tx.epoch)
    tx.send_rows("insert_place", [row], space=tx.namespace, lock=request.name)


def _is_overdue(tx: Transaction, name: str, row: AnyRow) -> bool:
    """Whether the holder of a locked row has lost it.

    If it is overdue because its session's lease ran out, that session is locked too and read once more: it may be
    renewing its lease at this moment.
    """
    if not row.held and row.session is not None:
        tx.send("lock_session", session=row.session, space=tx.namespace)
        return not any(place_row.held for place_row in _read_places(tx, name).rows if place_row.place == row.place)
    return not row.held


def _end_of_lock(tx: Transaction, ttl: timedelta) -> int:
    return tx.lease_now + ttl // _MICROSECOND


def extend_lock(tx: Transaction, grant: LockGrant, ttl: timedelta) -> bool:
    """Extend a lock. Safe: one UPDATE whose condition is that it is still held under this token, by this holder."""
    until = tx.moment + ttl // _MICROSECOND
    return tx.send("extend_lock", **_values_of_grant(tx, grant), until=until).count == 1


def free_lock(tx: Transaction, grant: LockGrant) -> bool:
    """Free a lock. Safe: one DELETE whose condition is that it is still held under this token, by this holder."""
    return tx.send("free_lock", **_values_of_grant(tx, grant)).count == 1


def break_lock(tx: Transaction, name: str, *, by: str, why: str) -> list[LockGrant]:
    """Free all places of a lock.

    Safe when a holder renews or frees its place, or another takes one, at the same instant: the rows are locked first,
    and only what was read under the lock goes. A place that is taken meanwhile is a new holder's, and stays.
    """
    held = [
        LockGrant(name=name, holder=row.holder, token=row.token, place=row.place, session=row.session)
        for row in _read_places(tx, name).rows
        if row.held
    ]
    for grant in held:
        tx.send("delete_place", space=tx.namespace, lock=name, place=grant.place)
    if held:
        record(tx, by, "break", name, why)
    return held


def _values_of_grant(tx: Transaction, grant: LockGrant) -> dict[str, Any]:
    return {
        "space": tx.namespace,
        "lock": grant.name,
        "place": grant.place,
        "token": grant.token,
        "holder": grant.holder,
        "session": grant.session or "",
        "boot": tx.epoch,
        "moment": tx.moment,
    }
