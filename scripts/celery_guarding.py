"""A plugin for pytest: the tests of Celery's own beat over ours, with a store that always lets it win.

GUARD=redbeat and GUARD=rows: those of RedBeat, and of django-celery-beat, over theirs as we wrap them.

Their fixtures refuse threads that outlive a test, so the store is a stub. Their schedules that are due when the test
says so name no times: those entries are taken out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from celery import beat

from cronsensus.integrations.celery import beat as ours
from cronsensus.integrations.celery import wrapping
from cronsensus.integrations.celery.nominal_times import SharedTimes

won: list[str] = []


class _Store:
    def jobs(self, **_: Any) -> list[Any]:
        """Know no job."""
        return []


class _Wins:
    """Wins all that it asks for."""

    store = _Store()
    is_open = False

    def __init__(self, app: Any) -> None:
        """Open nothing."""

    def outside(self) -> _Wins:
        self.is_open = True
        return self

    def acquire(self, wanted: Iterable[Any]) -> Sequence[Any]:
        answers = []
        for spec, ask in wanted:
            won.append(spec.name)
            got = object.__new__(_Won)
            claim = SimpleNamespace(job=spec.name, token=1, scheduled_for=ask.times[0])
            got.__dict__.update(claim=claim, time=ask.times[0])
            answers.append([got])
        return answers

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_options: None


class _Won:
    """What was won."""


class _Clock:
    """The time that a test gives its app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def now(self) -> datetime:
        return self._app.now()

    def read_when_due(self, store_now: Any) -> None:
        """Ask no store."""


ours.Part = _Wins  # type: ignore[misc,assignment]
ours.Won = _Won  # type: ignore[misc,assignment]
ours.clock_of = wrapping.clock_of = _Clock  # type: ignore[assignment]
ours.is_taken_out = lambda entry: not isinstance(entry.schedule, SharedTimes)  # type: ignore[attr-defined]
GUARD = os.environ.get("GUARD", "beat")
if GUARD == "beat":
    beat.Scheduler, beat.PersistentScheduler = wrapping.wrap(beat.Scheduler), wrapping.wrap(beat.PersistentScheduler)
if GUARD == "redbeat":
    import redbeat

    from cronsensus.integrations.celery.redbeat import Lockless

    del Lockless.__init__  # they test their lock, too
    redbeat.RedBeatScheduler = wrapping.wrap(redbeat.RedBeatScheduler)


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Wrap what needs a Django that is set up."""
    if GUARD == "rows":
        from django_celery_beat import schedulers

        from cronsensus.integrations.celery import database

        database.ASK_EVERY = 0  # their tests do not wait
        schedulers.DatabaseScheduler = wrapping.wrap(schedulers.DatabaseScheduler)
        schedulers.ModelEntry = schedulers.DatabaseScheduler.Entry


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show that the tests went through the guard."""
    terminalreporter.write_line(f"guarded sends: {len(won)}")
