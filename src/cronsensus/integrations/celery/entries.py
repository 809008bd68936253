"""The entries of a beat: which job each is in the store, and the mark that takes one out."""

from __future__ import annotations

from typing import Any

from cronsensus.model.job import BEAT, name_kept_job


def job_name(entry: str) -> str:
    """Return the name of an entry's job in the store."""
    return name_kept_job(BEAT, entry)


def is_taken_out(entry: Any) -> bool:
    """Whether each beat is to send an entry."""
    return bool((entry.options or {}).get("once") is False)


def without_mark(entry: Any) -> Any:
    """Return an entry whose options are all of Celery."""
    options = dict(entry.options or {})
    return entry if options.pop("once", None) is None else with_options(entry, options)


def with_options(entry: Any, options: dict[str, Any]) -> Any:
    """Return an entry with other options."""
    # Not by copy(): entries of redbeat and of django-celery-beat have a __reduce__ that cannot be called.
    changed = object.__new__(type(entry))
    changed.__dict__.update(entry.__dict__)
    changed.options = options
    return changed
