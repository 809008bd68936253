"""``wrap``: any scheduler of beat, safe on every machine."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from celery import beat

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.celery.beat import BeatScheduler
from cronsensus.integrations.celery.nominal_times import shared_form
from cronsensus.integrations.celery.observing import make_bare_where_observed
from cronsensus.integrations.celery.part import clock_of


def wrap(base: type[beat.Scheduler]) -> type[beat.Scheduler]:
    """Return a scheduler of beat that may run on every machine: ``base`` with each time sent by one of them.

    Example::

        from cronsensus.integrations.celery import wrap
        from shop.schedulers import OurScheduler

        Scheduler = wrap(OurScheduler)  # celery -A shop beat -S shop.beat:Scheduler

    Not prevented: a message that the broker delivers twice; that is the worker's part of ``configure``. A schedule that
    two releases define differently is sent at the times of both while both run.

    Args:
        base: ``celery.beat.Scheduler`` or a subclass.
    """
    kind: object = base  # it may be anything
    if not (isinstance(kind, type) and issubclass(kind, beat.Scheduler)):
        raise ConfigurationError(f"wrap({base!r}): it wants a class that is a celery.beat.Scheduler")
    if issubclass(base, BeatScheduler):
        return base
    return _wrapped(_adapted(base), base)  # type: ignore[arg-type] # classes are hashable


def _adapted(base: Any) -> Any:
    """Return ``base`` with what its kind needs besides: where a package's scheduler is, that was imported."""
    if (rows := sys.modules.get("django_celery_beat.schedulers")) and issubclass(base, rows.DatabaseScheduler):
        from cronsensus.integrations.celery.database import write_by_winner

        return write_by_winner(base)
    if (redbeat := sys.modules.get("redbeat.schedulers")) and issubclass(base, redbeat.RedBeatScheduler):
        from cronsensus.integrations.celery.redbeat import without_lock

        return without_lock(base)
    return base


@lru_cache(maxsize=16)
def _wrapped(base: type[beat.Scheduler], bare: type[beat.Scheduler]) -> type[beat.Scheduler]:
    """Make the class, and one for its entries: their schedules are put into the form that all beats share."""

    def get_schedule(entry: Any) -> Any:
        return entry.__dict__.get("schedule")

    def set_schedule(entry: Any, found: Any) -> None:
        shared = shared_form(found, entry.app, clock_of(entry.app).now)
        entry.__dict__["schedule"] = found if shared is None else shared

    def reduce_entry(entry: Any) -> Any:
        kind, *rest = super(entries, entry).__reduce__()
        return (base.Entry if kind is entries else kind, *rest)  # a shelve is to know of no class that is made here

    entries: Any = type(
        base.Entry.__name__,
        (base.Entry,),
        {"schedule": property(get_schedule, set_schedule), "__reduce__": reduce_entry, "__module__": __name__},
    )
    body = {"Entry": entries, "_keeps_last_runs": base is not beat.Scheduler, "__module__": __name__}
    made: type[beat.Scheduler] = type(base.__name__, (BeatScheduler, base), body)
    make_bare_where_observed(made, bare)
    return made
