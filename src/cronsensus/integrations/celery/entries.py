"""The options of a beat's entry that are ours, and not of Celery."""

from __future__ import annotations

from typing import Any

from cronsensus.integrations.celery.naming import OPTIONS


def is_taken_out(entry: Any) -> bool:
    """Whether each beat is to send an entry."""
    return bool((entry.options or {}).get("once") is False)


def options_of_celery(entry: Any) -> dict[str, Any]:
    """Return the options of an entry without ours."""
    return {name: value for name, value in (entry.options or {}).items() if name not in OPTIONS}


def without_marks(entry: Any) -> Any:
    """Return an entry that has Celery's options alone; the same one, if it has no others."""
    options = options_of_celery(entry)
    return entry if len(options) == len(entry.options or {}) else with_options(entry, options)


def with_options(entry: Any, options: dict[str, Any]) -> Any:
    """Return an entry with other options."""
    # Not by copy(): entries of redbeat and of django-celery-beat have a __reduce__ that cannot be called.
    changed = object.__new__(type(entry))
    changed.__dict__.update(entry.__dict__)
    changed.options = options
    return changed
