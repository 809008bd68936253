"""Find a job by its name."""

from __future__ import annotations

from collections.abc import Collection

from cronsensus.errors import UnknownJob
from cronsensus.insight.time_words import shorten
from cronsensus.model.job import JobView
from cronsensus.stores.base import Store


def require_job(store: Store, name: str, *, declared: Collection[str] = ()) -> JobView:
    """Return a job.

    Args:
        store: where it is.
        name: as it was typed.
        declared: further names to suggest: those in the application's code.

    Raises:
        UnknownJob: there is none; the message suggests a similar name.
        StoreCorrupt: its definition cannot be read.
    """
    view = store.job(name)
    if view is not None:
        return view
    from difflib import get_close_matches

    names = [*declared, *(view.spec.name for view in store.jobs(limit=1000))]
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "see the names: cronsensus jobs list"
    raise UnknownJob(f"there is no job {shorten(name, 60)!r} in namespace {store.namespace!r}; {hint}")
