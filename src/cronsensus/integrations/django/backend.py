"""The backend of Django's tasks: each task is a job, named by the path of its function.

So a task has its own ledger, page, pause and metrics, and may have a schedule: ``@task(cron="0 3 * * *")``. A run that
is enqueued inside ``transaction.atomic()`` commits with it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from traceback import format_exception
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from cronsensus.errors import StoreBusy
from cronsensus.integrations.django.checks import find_faults
from cronsensus.integrations.django.options import read_options
from cronsensus.integrations.django.project import find_scheduler, let_go_in_tests, require_test_database
from cronsensus.integrations.django.tasks_api import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
    task_finished,
    task_started,
)
from cronsensus.jobs.job import Job
from cronsensus.model.ends import Final
from cronsensus.model.job import PolicyOptions
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import State
from cronsensus.node.executors.result import ending_of_error
from cronsensus.node.run import BaseRun, current_run
from cronsensus.payload.codec import loads
from cronsensus.retry import decide_end
from cronsensus.triggers import Trigger, cron

T = TypeVar("T")
_STATUS_OF_STATE = {
    State.PENDING: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}
_BUILTINS = "builtins."


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTask(Task):
    """A task that may have a schedule, and the policies of a job; each is ``None`` unless it was given.

    Attributes:
        cron: when it runs by itself, without arguments.
        tz: the zone of that; defaults to ``settings.TIME_ZONE``.
    """

    cron: str | None = None
    tz: str | None = None
    overlap: Any = None
    catch_up: Any = None
    catch_up_window: Any = None
    grace: Any = None
    on_crash: Any = None
    max_crashes: Any = None
    retries: Any = None
    retry_delay: Any = None
    retry_factor: Any = None
    retry_max_delay: Any = None
    timeout: Any = None
    concurrency: Any = None
    keep: Any = None

    def __post_init__(self) -> None:
        """Check it as Django does, and make it a job."""
        Task.__post_init__(self)
        if isinstance(self.get_backend(), Backend):  # a test may have replaced it
            trigger = None if self.cron is None else cron(self.cron, tz=self.tz)
            declare_task(self, trigger, self.policies)

    @property
    def job_name(self) -> str:
        """Return the name of its job: its path. Django's ``name`` is only the function's."""
        return str(self.module_path)

    @property
    def policies(self) -> dict[str, Any]:
        """Return the given policies."""
        policies = {name: getattr(self, name) for name in PolicyOptions.__annotations__ if name != "priority"}
        return {name: value for name, value in policies.items() if value is not None} | {"priority": self.priority}


_tasks: dict[str, Task] = {}
_jobs: dict[str, Job[..., Any]] = {}
"""The tasks of this process by path: Django makes a backend for each thread."""


def declare_task(task: Task, trigger: Trigger | None, policies: dict[str, Any]) -> Job[..., Any]:
    """Make a task a job, unless a task of its path is a job: ``using()`` makes further tasks of the same function."""
    path = task.module_path
    if path not in _jobs:
        _jobs[path] = find_scheduler().job(trigger, name=path, **policies)(_runner_of(task))
        _tasks[path] = task
    return _jobs[path]


def list_tasks() -> dict[str, Task]:
    """Return the tasks of this process that are jobs, by path."""
    return dict(_tasks)


def periodic(trigger: Trigger | None = None, **policies: Any) -> Callable[[T], T]:
    """Give a task a schedule, or only policies; to be written above ``@task``, which has no such options on Django 6.0.

    Example: ``@periodic(cron("0 3 * * *"), retries=3)`` above ``@task`` above the function.

    Raises:
        ImproperlyConfigured: it decorates no task, or a task of another backend.
    """

    def decorate(task: T) -> T:
        if not isinstance(task, Task) or not isinstance(task.get_backend(), Backend):
            raise ImproperlyConfigured(
                "@periodic stands above @task, whose backend is cronsensus.integrations.django.Backend; below it is "
                f"{task!r}"
            )
        _forget_task(task.module_path)
        declare_task(task, trigger, policies)
        return task

    return decorate


def _forget_task(path: str) -> None:
    """Remove the declaration of a task that a decorator above it declares anew."""
    if _jobs.pop(path, None) is not None:
        find_scheduler()._definitions.forget_job(path)  # noqa: SLF001 - it was declared a line before


# --- enqueuing and results --------------------------------------------------------------------------------------------


class Backend(BaseTaskBackend):
    """Enqueues tasks as jobs; nodes run them: ``manage.py cronsensus run``."""

    task_class = CronTask
    supports_defer = supports_async_task = supports_get_result = supports_priority = True

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Enqueue a task; inside ``atomic`` its run commits with the transaction.

        Raises:
            InvalidTask: as in Django.
            TypeError: an argument is no JSON.
            ImproperlyConfigured: inside ``atomic`` of a database of SQLite's without the tables.
        """
        self.validate_task(task)
        require_test_database()
        policies = task.policies if isinstance(task, CronTask) else {}
        job = declare_task(task, None, policies)
        try:
            args, kwargs = normalize_json(args), normalize_json(kwargs)
        except TypeError as error:
            raise TypeError(
                f"{task.module_path}: {error}; give what JSON has: of a model its pk, of a date text"
            ) from None
        options: dict[str, Any] = {"priority": task.priority}
        if task.run_after is not None:
            options["at"] = _aware(task.run_after)
        call = job.options(**options)
        connection = self._shared_connection()
        called_at = timezone.now()
        try:
            handle = (
                call.enqueue(*args, **kwargs) if connection is None else call.enqueue_in(connection, *args, **kwargs)
            )
        except StoreBusy as error:
            if connection is None or "cronsensus_schema" in connection.introspection.table_names():
                raise
            # Making the tables waited for the lock of this very transaction.
            raise ImproperlyConfigured(
                f"DATABASES[{connection.alias!r}] has no tables of cronsensus, and inside atomic none can be made; "
                "run: python manage.py migrate"
            ) from error
        let_go_in_tests()
        result = _make_result(
            task, handle.key, args=args, kwargs=kwargs, enqueued_at=handle.created_at or called_at, alias=self.alias
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def _shared_connection(self) -> Any:
        """Return Django's connection if a transaction is open on it, and it is one to the store's database."""
        is_swapped = find_scheduler()._opened.is_swapped  # noqa: SLF001 - a test has replaced the store by memory
        options = read_options()
        if options.url is not None or is_swapped:
            return None
        connection: Any = connections[options.database]
        if connection.in_atomic_block:
            return connection
        # Asked of one that is not open, Django would open it.
        commits_each = connection.autocommit if connection.connection else connection.settings_dict["AUTOCOMMIT"]
        return None if commits_each else connection

    def get_result(self, result_id: Any) -> TaskResult:
        """Return the result of a task.

        Raises:
            TaskResultDoesNotExist: it is not known: not committed yet, pruned, or of no task.
        """
        require_test_database()
        store = find_scheduler()._opened.ready()  # noqa: SLF001 - the room is part of the library
        newest = store.occurrences(OccurrenceFilter(key=str(result_id)), limit=1)
        if not newest:
            raise TaskResultDoesNotExist(result_id)
        [occurrence] = newest
        task = _find_task(occurrence.job)
        if task is None:
            raise TaskResultDoesNotExist(result_id)
        runs = sorted(store.runs(occurrence.id), key=lambda run: run.token)
        let_go_in_tests()
        return _read_result(task, occurrence, runs, alias=self.alias)

    def check(self, **kwargs: Any) -> list[Any]:
        """Return what is wrong with the settings."""
        return [*super().check(**kwargs), *find_faults(self.queues)]


def _find_task(path: str) -> Task | None:
    try:
        task = import_string(path)
    except ImportError:
        task = None
    return task if isinstance(task, Task) else _tasks.get(path)


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _make_result(task: Task, key: str, *, args: Any, kwargs: Any, alias: str, **fields: Any) -> TaskResult:
    defaults: dict[str, Any] = {
        "status": TaskResultStatus.READY, "enqueued_at": None, "started_at": None, "finished_at": None,
        "last_attempted_at": None, "errors": [], "worker_ids": [],
    }  # fmt: skip
    return TaskResult(task=task, id=key, args=list(args), kwargs=dict(kwargs), backend=alias, **defaults | fields)


def _read_result(task: Task, occurrence: Occurrence, runs: list[RunView], *, alias: str) -> TaskResult:
    result = _make_result(
        task.using(priority=occurrence.priority), occurrence.key, args=occurrence.args, kwargs=occurrence.kwargs,
        alias=alias,
        status=_STATUS_OF_STATE.get(occurrence.state, TaskResultStatus.FAILED), enqueued_at=occurrence.created_at,
        started_at=runs[0].started_at if runs else None, finished_at=occurrence.finished_at,
        last_attempted_at=runs[-1].started_at if runs else None,
        errors=_errors_of(occurrence, runs), worker_ids=[run.node or "" for run in runs],
    )  # fmt: skip
    if occurrence.state is State.SUCCEEDED:
        object.__setattr__(result, "_return_value", None if occurrence.result is None else loads(occurrence.result))
    return result


def _errors_of(occurrence: Occurrence, runs: list[RunView]) -> list[TaskError]:
    errors = [run.error for run in runs if run.error is not None]
    if occurrence.error is not None and not errors:
        errors.append(occurrence.error)
    task_errors = [
        TaskError(
            exception_class_path=error.type if "." in error.type else _BUILTINS + error.type,
            traceback=f"{error.traceback or error.message}\n",
        )
        for error in errors
    ]
    if not task_errors and occurrence.state.final and occurrence.state is not State.SUCCEEDED:
        task_errors.append(
            TaskError(
                exception_class_path=f"{_BUILTINS}RuntimeError", traceback=f"{occurrence.state}: {occurrence.reason}\n"
            )
        )
    return task_errors


# --- running ----------------------------------------------------------------------------------------------------------


def _runner_of(task: Task) -> Callable[..., Any]:
    """Return the function of a task's job: it sends Django's signals, and passes the context if the task takes it."""
    function = task.func

    def send_started(args: Any, kwargs: Any) -> TaskResult | None:
        run = current_run()
        if run is None:
            return None
        result = _result_of_run(task, run, args, kwargs)
        task_started.send(Backend, task_result=result)
        return result

    def with_context(result: TaskResult | None, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (TaskContext(task_result=result), *args) if task.takes_context else args

    if inspect.iscoroutinefunction(function):

        async def run_async(*args: Any, **kwargs: Any) -> Any:
            result = await sync_to_async(send_started)(args, kwargs)
            try:
                value = normalize_json(await function(*with_context(result, args), **kwargs))
            except BaseException as error:
                if _is_last(error):
                    await sync_to_async(_send_finished)(result, error=error)
                raise
            await sync_to_async(_send_finished)(result, value=value)
            return value

        runner: Callable[..., Any] = run_async
    else:

        def run_task(*args: Any, **kwargs: Any) -> Any:
            result = send_started(args, kwargs)
            try:
                value = normalize_json(function(*with_context(result, args), **kwargs))
            except BaseException as error:
                if _is_last(error):
                    _send_finished(result, error=error)
                raise
            _send_finished(result, value=value)
            return value

        runner = run_task
    functools.update_wrapper(runner, function)
    del runner.__wrapped__  # type: ignore[attr-defined]
    signature = inspect.signature(function)
    if task.takes_context:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    runner.__signature__ = signature  # type: ignore[attr-defined]
    runner.stands_for = function  # type: ignore[attr-defined]
    return runner


def _result_of_run(task: Task, run: BaseRun, args: Any, kwargs: Any) -> TaskResult:
    now = timezone.now()
    return _make_result(
        task, run.key, args=args, kwargs=kwargs, alias=task.backend, status=TaskResultStatus.RUNNING,
        started_at=now, last_attempted_at=now, worker_ids=[""] * run.attempt,
    )  # fmt: skip


def _is_last(error: BaseException) -> bool:
    """Whether no attempt follows one that ended with this: a task that is tried again has not finished."""
    run = current_run()
    if run is None or run.committed:
        return True
    ending = ending_of_error(error, run)
    if run.lease_lost.is_set() or ending.cut_off:
        return False
    return isinstance(decide_end(run.claim, ending).then, Final)


def _send_finished(result: TaskResult | None, *, value: Any = None, error: BaseException | None = None) -> None:
    """Send Django's signal that a task has finished."""
    if result is None:
        return
    outcome: dict[str, Any] = {"status": TaskResultStatus.SUCCESSFUL, "_return_value": value}
    if error is not None:
        outcome |= {"status": TaskResultStatus.FAILED, "_return_value": None}
        error_class = type(error)
        result.errors.append(
            TaskError(
                exception_class_path=f"{error_class.__module__}.{error_class.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
    for name, value_of_name in {**outcome, "finished_at": timezone.now()}.items():
        object.__setattr__(result, name, value_of_name)
    task_finished.send(Backend, task_result=result)
