"""The latest occurrences of a job, and its last success. Items of batches do not count: their batch does."""

from __future__ import annotations

from collections.abc import Collection

from cronsensus.model.glance import Glance, Past
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

_PAST = 200
"""Batches among which the last success is searched."""


def last_success(store: Store, job: str) -> Occurrence | Glance | None:
    """Return the newest occurrence of a job that succeeded, as far as the ledger reaches."""
    done = store.occurrences(OccurrenceFilter(job=job, states=(State.SUCCEEDED,)), limit=1)
    if not done or done[0].parent is None:
        return done[0] if done else None
    past = store.last_of([job], limit=_PAST).get(job)
    return None if past is None else next((glance for glance in past.glances if glance.state is State.SUCCEEDED), None)


def newest_whole(store: Store, job: str, *, limit: int, states: Collection[State] = ()) -> list[Occurrence]:
    """Return the newest occurrences of a job that are no items; ``states``: only those in these states."""
    occurrences = store.occurrences(OccurrenceFilter(job=job, states=tuple(states)), limit=limit)
    if all(occurrence.parent is None for occurrence in occurrences):
        return occurrences
    past = store.last_of([job], limit=_PAST).get(job, Past())
    numbers = [glance.id for glance in past.glances if not states or glance.state in states][:limit]
    return [occurrence for number in numbers if (occurrence := store.occurrence(number)) is not None]
