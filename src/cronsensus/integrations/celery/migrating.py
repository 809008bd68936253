"""Write the entries of Celery's beat as jobs of cronsensus, and list what has no equivalent.

The program is tried before it is printed: each trigger is made, and arguments are compared with their text.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.backends.base import DisabledBackend
from celery.beat import ScheduleEntry
from celery.schedules import crontab

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.celery.native_schedules import native_call
from cronsensus.integrations.layout import Call, identifier, laid_out, quoted
from cronsensus.integrations.migration import (
    Migration,
    NoEquivalent,
    Remark,
    write_arguments,
    write_comment,
    write_duration,
    write_literal,
)

_TAKEN = {"Run", "Scheduler", "at", "cron", "every", "run", "scheduler"}
_CANVAS = {"celery.chain", "celery.chord", "celery.group", "celery.chunks", "celery.map", "celery.starmap"}
_CLEANUP = "celery.backend_cleanup"
_OWN = {"once", "task_id"}
"""Options of an entry that identify a message; here its run does that."""
_IN_DATABASES = ("django_celery_beat", "redbeat", "cronsensus.integrations.celery:DatabaseScheduler",
                 "cronsensus.integrations.celery:RedBeatScheduler")  # fmt: skip


def migrate(app: Any, name: str, *, keep_celery: bool = False) -> Migration:
    """Write each entry of an app's beat as a job.

    Args:
        app: of Celery.
        name: of the app, as ``module:attribute``.
        keep_celery: whether jobs send the tasks, for Celery's workers; else they call the tasks' functions.

    Raises:
        ConfigurationError: it is no app, or its module of tasks or its result backend cannot be loaded.
    """
    if not isinstance(app, Celery):
        raise ConfigurationError(
            f"{name!r} is a {type(app).__qualname__}, and no app of Celery; name one: cronsensus migrate celery "
            "MODULE:ATTR"
        )
    try:
        app.loader.import_default_modules()  # a worker does it, too: tasks, and what they add to the schedule
    except ImportError as error:
        raise ConfigurationError(
            f"the app {name!r} names a module of tasks that cannot be imported: {error}"
        ) from error
    app.finalize()
    schedule = dict(app.conf.beat_schedule)  # the first look at the settings has on_after_configure sent
    module, _, attribute = name.partition(":")
    writing = _Writing(app, module, attribute, keep_celery=keep_celery)
    if keep_celery and _cleans_up(app) and _CLEANUP not in schedule:
        schedule[_CLEANUP] = {"task": _CLEANUP, "schedule": crontab(minute=0, hour=4)}  # as beat does by itself
    for key, entry in schedule.items():
        writing.reserve_names(key, entry)
    for key, entry in schedule.items():
        writing.add(key, entry)
    return writing.finished()


def _cleans_up(app: Celery) -> bool:
    """Whether beat would have old results removed each night.

    Raises:
        ConfigurationError: the result backend cannot be loaded.
    """
    try:
        disabled = isinstance(app.backend, DisabledBackend)  # beat adds it there, too, for nothing
        return bool(app.conf.result_expires) and not disabled and not app.backend.supports_autoexpire
    except Exception as error:
        raise ConfigurationError(f"the result backend of the app cannot be loaded: {error}") from error


@dataclass
class _Writing:
    app: Celery
    module: str
    attribute: str
    keep_celery: bool = False
    blocks: list[str] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    """The names of imported modules, by module."""
    makers: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=lambda: set(_TAKEN))
    remarks: list[Remark] = field(default_factory=list)
    left_out: int = 0

    def reserve_names(self, key: str, entry: Any) -> None:
        """Keep the name of an entry, and that of its task's package: no other function gets it."""
        task = self.app.tasks.get(_task_of(entry))
        for module in (self.module, *([] if task is None else [task.__module__])):
            self.functions.add(module.partition(".")[0])
        if not _has_no_name(key, _task_of(entry)):
            self.names.add(key)

    def add(self, key: str, entry: Any) -> None:
        """Write an entry, or the reason why not."""
        remarks: list[Remark] = []
        try:
            block = self._block(key, entry, lambda text: remarks.append(Remark(key, text)))
        except NoEquivalent as error:
            self.left_out += 1
            self.remarks.append(Remark(key, f"not written: {error}"))
        else:
            self.blocks.append(block)
            self.remarks += remarks

    def _block(self, key: str, given: Any, remark: Callable[[str], None]) -> str:
        entry = self._entry_of(key, given)
        if entry.task in _CANVAS:
            raise NoEquivalent(
                f"{entry.task}: write a job for each task, and after=[…] for what comes after others, or "
                "enqueue_batch for a list; see docs/dependencies.md, docs/batches.md"
            )
        trigger = native_call(entry.schedule)
        if getattr(entry.schedule, "relative", False):
            remark("relative=True rounded its times to full units of the app's zone; for midnight there write cron")
        task = self.app.tasks.get(entry.task)
        if self.keep_celery:
            options, body, takes_run = {}, self._send(entry, task, remark), True
        else:
            options, body, takes_run = self._policies(entry, task, remark), self._call(entry, task, remark), False
        if (overdue := (entry.options or {}).get("overdue")) is not None:
            options["overdue"] = write_duration(overdue, "overdue")
        name: str = self._name(key, entry, remark)
        function = identifier(name, self.functions)
        self.functions.add(function)
        self.makers.add(trigger.head)
        named = [] if name == function else [f"name={quoted(name)}"]
        arguments: list[str | Call] = [trigger, *named, *(f"{option}={value}" for option, value in options.items())]
        head = f"def {function}({'run: Run' if takes_run else ''}) -> None:"
        return "\n".join([laid_out(Call("@scheduler.job", arguments)), head, laid_out(body, "    ")])

    def _entry_of(self, key: str, given: Any) -> ScheduleEntry:
        try:
            return (
                given if isinstance(given, ScheduleEntry) else ScheduleEntry(**{**given, "name": key, "app": self.app})
            )
        except Exception as error:
            raise NoEquivalent(f"beat cannot read it either: {error}") from error

    def _name(self, key: str, entry: ScheduleEntry, remark: Callable[[str], None]) -> str:
        if not _has_no_name(key, entry.task):
            return key
        plain = name = str(entry.task).rpartition(".")[2]
        count = 1
        while name in self.names:
            count += 1
            name = f"{plain}-{count}"
        self.names.add(name)
        remark(f"it had no name and is called {name!r}")
        return name

    # --- what the job does --------------------------------------------------------------------------------------------

    def _call(self, entry: ScheduleEntry, task: Any, remark: Callable[[str], None]) -> Call:
        if task is None:
            raise NoEquivalent(
                f"no task {entry.task!r} is registered here; import its module (include=[…] of the app), or have it "
                "sent to the workers that know it: --keep-celery"
            )
        if (called := self._reference(task)) is None:
            raise NoEquivalent(
                f"the task {entry.task!r} is not found as {task.__name__!r} at the top level of the module "
                f"{task.__module__!r}; put it there, or send it: --keep-celery"
            )
        if not isinstance(inspect.getattr_static(type(task), "run"), staticmethod):
            remark("its self has no request here, and self.retry() fails the run; raise cronsensus.Retry instead")
        return Call(called, write_arguments(entry.args or (), entry.kwargs or {}))

    def _send(self, entry: ScheduleEntry, task: Any, remark: Callable[[str], None]) -> Call:
        given = {
            **({"args": list(entry.args)} if entry.args else {}),
            **({"kwargs": entry.kwargs} if entry.kwargs else {}),
        }
        arguments = [f"{name}={write_literal(value, name)}" for name, value in given.items()]
        arguments.append("task_id=run.idempotency_key")
        for option, value in _options_of(entry):
            if option in _OWN:
                remark(f"{option}={value!r} is left out: a run has one id, and is sent by one node")
                continue
            try:
                arguments.append(f"{option}={write_literal(value, option)}")
            except NoEquivalent:
                remark(f"{option}={value!r} is left out: write it as text or numbers")
        # As beat does: by the task if it is known, with the options of its decorator; else by its name.
        called = None if task is None else self._reference(task)
        if called is not None:
            return Call(f"{called}.apply_async", arguments)
        return Call(f"{self._module(self.module)}.{self.attribute}.send_task", [quoted(entry.task), *arguments])

    def _reference(self, task: Any) -> str | None:
        """Return how a program calls a task; ``None``: it is not found by its module and name."""
        module, name = task.__module__, task.__name__
        found = getattr(sys.modules.get(module), name, None)
        if getattr(found, "name", None) != task.name or module.startswith("celery."):
            return None
        return f"{self._module(module)}.{name}"

    def _module(self, module: str) -> str:
        root = module.partition(".")[0]
        if root in _TAKEN:
            self.modules.setdefault(module, f"{module.replace('.', '_')}_module")
        return self.modules.setdefault(module, module)

    def _policies(self, entry: ScheduleEntry, task: Any, remark: Callable[[str], None]) -> dict[str, str]:
        found: dict[str, str] = {}
        for option, value in _options_of(entry):
            if option == "expires" and isinstance(value, (int, float, timedelta)):
                found["grace"] = write_duration(value, option)
            elif option in {"queue", "routing_key", "exchange"}:
                remark(f"{option}={value!r} is left out: a node runs what it has; other machines get a namespace")
            elif option == "priority":
                remark(f"priority={value!r} is left out, as its order is the broker's; here a higher one goes first")
            else:
                remark(f"{option}={value!r} is left out: a job has no such option")
        if task is None:
            return found
        if limit := task.time_limit or self.app.conf.task_time_limit:
            found["timeout"], found["executor"] = write_duration(limit, "time_limit"), '"process"'
        if task.soft_time_limit or self.app.conf.task_soft_time_limit:
            remark("soft_time_limit is left out: ask run.check() now and then, see docs/coming-from.md")
        if getattr(task, "autoretry_for", ()):
            found |= _retries(task)
            remark("autoretry_for named exceptions; here a failed run is tried again after any (raise Cancel ends it)")
        if task.rate_limit:
            remark(f"rate_limit={task.rate_limit!r} is left out; concurrency= is how many run at a time")
        return found

    # --- the program --------------------------------------------------------------------------------------------------

    def finished(self) -> Migration:
        """Return the program."""
        listed = (*self.remarks, *(Remark(None, text) for text in self._of_the_app()))
        ours = sorted([*(["Run"] if self.keep_celery and self.blocks else []), "Scheduler", *self.makers])
        imports = [
            f"import {module}" if name == module else f"import {module} as {name}"
            for module, name in sorted(self.modules.items())
        ]
        parts = [
            f"from cronsensus import {', '.join(ours)}",
            *(["\n".join(imports)] if imports else []),
            "scheduler = Scheduler()  # the store: CRONSENSUS_URL, or Scheduler('postgresql://…')",
        ]
        code = "\n\n\n".join(["\n\n".join(parts), *self.blocks])
        if listed:
            remarks = [write_comment(one.text if one.job is None else f"{one.job}: {one.text}") for one in listed]
            code = "\n".join([f"{code}\n\n" if self.blocks else f"{code}\n", "# What is not the same:", *remarks])
        return Migration(f"{code}\n", len(self.blocks), self.left_out, listed)

    def _of_the_app(self) -> Iterator[str]:
        named = str(self.app.conf.beat_scheduler)
        if named.startswith(_IN_DATABASES):
            yield f"entries in the database of {named} are not read; write scheduler.add_job(…, name=…) for each"
        if not self.blocks:
            return
        if "every" in self.makers:
            yield "an interval counted from the last send; here it is due at its multiples since 1970, or say start="
        if "cron" in self.makers and not self.app.conf.timezone and not self.app.conf.enable_utc:
            yield f"times are in this machine's zone, {self.app.timezone}, as app.conf.timezone is not set"
        if "cron" in self.makers:
            yield "where clocks change, beat loses or repeats times; here none is lost, see docs/who-fires-when.md"
        if self.keep_celery:
            yield "end every beat before the first node starts, or tasks are sent twice; workers go on as they are"
            yield "the ledger says that a task was sent; configure(app, beat=False) has it say how the task ended"
        else:
            yield "beat sends a task although the last one still runs; here that time is skipped (or overlap='allow')"
            yield "tasks that other code sends (delay, apply_async) are still Celery's, and need its workers"


def _options_of(entry: ScheduleEntry) -> Iterator[tuple[str, Any]]:
    return ((option, value) for option, value in (entry.options or {}).items() if option != "overdue")


def _task_of(entry: Any) -> str:
    return str(entry.get("task") if isinstance(entry, Mapping) else getattr(entry, "task", ""))


def _has_no_name(key: str, task: str) -> bool:
    # add_periodic_task without a name takes the text of the call: shop.report(42).
    return key.startswith(f"{task}(")


def _retries(task: Any) -> dict[str, str]:
    found = {"retries": repr(task.max_retries)} if task.max_retries is not None else {}
    if backoff := getattr(task, "retry_backoff", False):
        found["retry_delay"] = write_duration(float(backoff), "retry_backoff")
        found["retry_max_delay"] = write_duration(getattr(task, "retry_backoff_max", 600), "retry_backoff_max")
    else:
        found["retry_delay"] = write_duration(task.default_retry_delay, "default_retry_delay")
        found["retry_factor"] = "1"
    return found
