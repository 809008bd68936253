"""Is a node stuck: is every slot of it held by a run that is far over its time? Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from cronsensus.model.job import JobSpec

STUCK_AFTER = timedelta(seconds=60)
"""Over its time for so long, a run is not only slow."""


def overrun_of(spec: JobSpec, ran: timedelta) -> timedelta | None:
    """Return by how much a run is over its time, which may be negative; ``None``: its job has no time.

    Its time is the job's ``timeout``, or where there is none its ``slow``.
    """
    limit = spec.slow if spec.policies.timeout is None else spec.policies.timeout
    return None if limit is None else ran - limit


def is_stuck(slots: int, overruns: Iterable[timedelta | None]) -> bool:
    """Whether as many runs as a node has slots are over their time for a minute: then it will begin nothing more."""
    late = sum(one is not None and one >= STUCK_AFTER for one in overruns)
    return 0 < slots <= late
