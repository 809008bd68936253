"""A copy of a job for its executor, with another grace."""

from __future__ import annotations

from typing import Any

UNCHANGED: Any = object()


def view_of(job: Any, *, waited: float = 0.0, grace: float | None = UNCHANGED) -> Any:
    """Return a copy of a job for one submission. The job itself stays the scheduler's.

    Args:
        job: APScheduler's.
        waited: seconds that passed since the scheduler named the time; its grace counts from then on.
        grace: in place of the job's own, in seconds; ``None``: never too late.
    """
    view = object.__new__(type(job))
    for name in type(job).__slots__:
        if name != "__weakref__" and hasattr(job, name):
            object.__setattr__(view, name, getattr(job, name))
    if grace is not UNCHANGED:
        view.misfire_grace_time = grace
    elif view.misfire_grace_time is not None:
        view.misfire_grace_time += waited
    return view
