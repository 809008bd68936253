"""Silence for a job, for a while: a lock without a session, which ends by itself, whoever looks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.model.job import INTERNAL
from cronsensus.model.session import check_lock
from cronsensus.payload.codec import clean
from cronsensus.stores.base import Store

_LOCK = INTERNAL + "mute:"
_MOST = 10_000
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Muted:
    """A job of which nobody is told, by whom and why, and for how long still."""

    job: str
    by: str
    reason: str
    left: timedelta


def mute_job(store: Store, job: str, span: timedelta, *, by: str, why: str) -> datetime:
    """Tell nobody of a job for a while, from now on; return until when."""
    holder = clean(f"{by}\n{why}")[:_LONGEST]
    check_lock(_LOCK + job, holder, span)  # before the mute that there is ends
    store.break_lock(_LOCK + job, by=by, why=why)
    store.lock(_LOCK + job, holder, ttl=span)
    return store.now() + span


def unmute_job(store: Store, job: str, *, by: str, why: str) -> bool:
    """Tell of a job again; ``False``: it was not muted."""
    return bool(store.break_lock(_LOCK + job, by=by, why=why))


def list_muted(store: Store) -> list[Muted]:
    """Return the jobs of which nobody is told."""
    found = [one for one in store.locks(limit=_MOST) if one.name.startswith(_LOCK)]
    holders = [one.holder.partition("\n") for one in found]
    return [
        Muted(one.name.removeprefix(_LOCK), by, why, one.expires_in)
        for one, (by, _, why) in zip(found, holders, strict=True)
    ]
