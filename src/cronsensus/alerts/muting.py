"""Mute a job for a while: by a lock without a session, which ends by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.model.job import INTERNAL
from cronsensus.model.session import check_lock
from cronsensus.payload.codec import clean
from cronsensus.stores.base import Store

_LOCK_PREFIX = INTERNAL + "mute:"
_MOST_LOCKS = 10_000
_LONGEST_HOLDER = 300


@dataclass(frozen=True, slots=True)
class Muted:
    """A muted job: by whom and why, and for how long still."""

    job: str
    by: str
    reason: str
    left: timedelta


def mute_job(store: Store, job: str, span: timedelta, *, by: str, why: str) -> datetime:
    """Send no alerts about a job for a while, from now on; return until when."""
    holder = clean(f"{by}\n{why}")[:_LONGEST_HOLDER]
    check_lock(_LOCK_PREFIX + job, holder, span)  # before the present mute ends
    store.break_lock(_LOCK_PREFIX + job, by=by, why=why)
    store.lock(_LOCK_PREFIX + job, holder, ttl=span)
    return store.now() + span


def unmute_job(store: Store, job: str, *, by: str, why: str) -> bool:
    """Send alerts about a job again; ``False``: it was not muted."""
    return bool(store.break_lock(_LOCK_PREFIX + job, by=by, why=why))


def list_muted(store: Store) -> list[Muted]:
    """Return the muted jobs."""
    locks = [lock for lock in store.locks(limit=_MOST_LOCKS) if lock.name.startswith(_LOCK_PREFIX)]
    holders = [mute.holder.partition("\n") for mute in locks]
    return [
        Muted(mute.name.removeprefix(_LOCK_PREFIX), by, why, mute.expires_in)
        for mute, (by, _, why) in zip(locks, holders, strict=True)
    ]
