"""Find jobs that a release dropped: no running release declares them, and nobody has retired them on purpose.

Both is in the trail: ``define_jobs`` writes which jobs it retired, and ``Store.retire`` that it was on purpose.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice, takewhile

from cronsensus.model.job import JobView, is_internal
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_trail_entry

_MOST_ACTS = 2_000
"""Newest entries of the trail that are read."""


def find_lost_jobs(store: Store, since: datetime) -> list[JobView]:
    """Return the jobs that a release dropped since a moment of the store's clock, and that are still gone, by name."""
    acts = takewhile(lambda act: act.at >= since, islice(every_trail_entry(store), _MOST_ACTS))
    names = {act.target for act in acts if act.action == "define" and act.details.get("did") == "retired"}
    views = (read_lost_job(store, name) for name in sorted(names) if not is_internal(name))
    return [view for view in views if view is not None]


def read_lost_job(store: Store, name: str) -> JobView | None:
    """Return a job that a release dropped; ``None``: it is declared again, or was retired on purpose."""
    view = store.job(name)
    return None if view is None or view.retired_at is None or is_meant(store, name) else view


def is_meant(store: Store, name: str) -> bool:
    """Whether somebody retired a job by name since it was last defined: ``remove_job``, or ``scheduler.retired``."""
    for act in islice(every_trail_entry(store, name), _MOST_ACTS):
        if act.action == "retire":
            return True
        if act.action == "define" and act.details.get("did") != "retired":
            return False
    return False
