"""Our backend in the place of Django's own in Django's tests: one that waits for the run, and one that keeps a list."""

from __future__ import annotations

import atexit
import threading
from typing import Any

from django.dispatch import receiver

from cronsensus.integrations.django.backend import Backend
from cronsensus.integrations.django.project import find_scheduler
from cronsensus.integrations.django.tasks_api import Task, TaskResult, task_finished

_FINISHED = threading.Condition()
_finished: set[str] = set()


@receiver(task_finished)
def note_finished(task_result: TaskResult, **_: Any) -> None:
    """Remember that everybody was told of the end of a task."""
    with _FINISHED:
        _finished.add(task_result.id)
        _FINISHED.notify_all()


class Waiting(Backend):
    """Runs a task before ``enqueue`` returns, as Django's ``ImmediateBackend``: a node of this process does it."""

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Enqueue, and wait for the end."""
        scheduler = find_scheduler()
        if not scheduler.started:
            scheduler.start()
            atexit.unregister(scheduler.stop)
            atexit.register(scheduler.stop, "2s")
        made = super().enqueue(task, args, kwargs)
        found = scheduler.find(task.module_path, key=made.id)
        if found is not None:  # else it is in a transaction that is not committed yet
            found.wait("20s")
            with _FINISHED:  # the node logs it, and tells others, a moment after it is recorded
                _FINISHED.wait_for(lambda: made.id in _finished, 5)
            made.refresh()
        return made


class Listing(Backend):
    """Keeps what was enqueued in a list, as Django's ``DummyBackend``."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Begin with nothing."""
        super().__init__(alias, params)
        self.results: list[TaskResult] = []

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Enqueue, and keep the result; the node of ``Waiting``, if there is one, would run it meanwhile."""
        if find_scheduler().started:
            find_scheduler().stop("2s")
        made = super().enqueue(task, args, kwargs)
        self.results.append(made)
        return made

    def clear(self) -> None:
        """Forget the results."""
        self.results.clear()
