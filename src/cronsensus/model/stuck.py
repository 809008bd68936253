"""Decide whether a node is stuck: every slot is held by a run that has exceeded its time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from cronsensus.model.job import JobSpec

STUCK_AFTER = timedelta(seconds=60)
"""A run that has exceeded its time by this much counts as stuck, not as slow."""


def overrun_of(spec: JobSpec, ran: timedelta) -> timedelta | None:
    """Return by how much a run has exceeded its time; negative: not yet; ``None``: its job has no limit.

    The limit is the job's ``timeout``, or else its ``slow``.
    """
    limit = spec.slow if spec.policies.timeout is None else spec.policies.timeout
    return None if limit is None else ran - limit


def is_stuck(slots: int, overruns: Iterable[timedelta | None]) -> bool:
    """Whether stuck runs hold all slots of a node, so that it starts nothing more."""
    stuck = sum(overrun is not None and overrun >= STUCK_AFTER for overrun in overruns)
    return 0 < slots <= stuck
