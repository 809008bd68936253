"""When did a job succeed last? An item of a batch is no success of its job: the batch is."""

from __future__ import annotations

from cronsensus.model.glance import Glance
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

_PAST = 200
"""Batches among which the last that succeeded is looked for."""


def last_success(store: Store, job: str) -> Occurrence | Glance | None:
    """Return the newest occurrence of a job that succeeded, as far as the ledger reaches."""
    done = store.occurrences(OccurrenceFilter(job=job, states=(State.SUCCEEDED,)), limit=1)
    if not done or done[0].parent is None:
        return done[0] if done else None
    past = store.last_of([job], limit=_PAST).get(job)
    return None if past is None else next((one for one in past.glances if one.state is State.SUCCEEDED), None)
