"""A plugin for pytest: the tests of Celery's own tasks with each task guarded, by a store that always lets it win."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery.app.base import Celery

from cronsensus.integrations.celery import worker

won: list[str] = []


class _Wins(worker.Guard):
    def _acquire_run(self, task: Any, *_: Any) -> Any:
        won.append(task.name)
        got = object.__new__(worker.Won)
        object.__setattr__(got, "held", SimpleNamespace(run=None))
        return got

    def record_end(self, request: Any, state: str | None, value: Any) -> None:
        """Record nothing."""


make_task = Celery._task_from_fun  # noqa: SLF001 - where every task is made


def _make_guarded(app: Celery, *args: Any, **options: Any) -> Any:
    task = make_task(app, *args, **options)
    if not hasattr(task, "_cronsensus"):
        guard = task._cronsensus = _Wins(app)  # noqa: SLF001
        guard._guard_task(task)  # noqa: SLF001
    return task


Celery._task_from_fun = _make_guarded  # noqa: SLF001


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show that the tests went through the guard."""
    terminalreporter.write_line(f"guarded runs: {len(won)}")
