"""Write a program's APScheduler jobs as jobs of cronsensus, and list what has no equivalent.

The program is tried before it is printed: each trigger is made and its next times compared with those of APScheduler,
and the arguments are encoded. So the printed code works, and the rest is in the list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from cronsensus.declared.declarations import check_jitter
from cronsensus.declared.functions import is_async
from cronsensus.errors import ConfigurationError, CronsensusError, InvalidPayload
from cronsensus.integrations.apscheduler.checks import has_random_id, missing
from cronsensus.integrations.apscheduler.native_triggers import (
    counts_from_own_start,
    first_difference,
    native_text,
    numbered_weekdays,
)
from cronsensus.integrations.migration import Migration, NoEquivalent, Remark, made_from
from cronsensus.model.job import JobSpec, Policies
from cronsensus.payload.codec import dumps
from cronsensus.timing.durations import format_duration, parse_duration
from cronsensus.triggers import Trigger

_TAKEN_NAMES = {"Scheduler", "any_of", "at", "cron", "every", "scheduler"}


@contextlib.contextmanager
def not_starting() -> Iterator[None]:
    """Let no scheduler of APScheduler start inside: many programs start theirs when they are imported.

    Raises:
        ConfigurationError: APScheduler 3 is not installed.
    """
    try:
        from apscheduler.schedulers.base import BaseScheduler
    except ImportError as error:
        raise ConfigurationError(missing(error, "cronsensus migrate apscheduler")) from error
    original = BaseScheduler.start
    BaseScheduler.start = lambda *_, **__: None
    try:
        yield
    finally:
        BaseScheduler.start = original


def find_scheduler(obj: Any, name: str) -> Any:
    """Return the scheduler ``obj``, or that inside of flask-apscheduler's.

    Raises:
        ConfigurationError: it is no scheduler.
    """
    from apscheduler.schedulers.base import BaseScheduler

    scheduler = obj if isinstance(obj, BaseScheduler) else getattr(obj, "scheduler", None)
    if not isinstance(scheduler, BaseScheduler):
        raise ConfigurationError(
            f"{name!r} is a {type(obj).__qualname__}, and no scheduler of APScheduler 3; name one: "
            "cronsensus migrate apscheduler MODULE:ATTR"
        )
    return scheduler


def migrate(scheduler: Any, now: datetime) -> Migration:
    """Write each job of a scheduler that was not started."""
    writing = _Writing(scheduler, now)
    for job in scheduler.get_jobs():
        writing.add(job)
    return writing.finished()


class _Writing:
    def __init__(self, scheduler: Any, now: datetime) -> None:
        self._scheduler = scheduler
        self._now = now
        self._imports: dict[tuple[str, str], str] = {}
        self._names: set[str] = set()
        self._lines: list[str] = []
        self._makers: set[str] = set()
        self._remarks: list[Remark] = []
        self._left_out = 0

    def add(self, job: Any) -> None:
        """Write a job, or the reason why not."""
        remarks: list[Remark] = []
        try:
            line = self._line(job, lambda text: remarks.append(Remark(job.id, text)))
        except NoEquivalent as error:
            self._left_out += 1
            self._remarks.append(Remark(job.id, f"not written: {error}"))
        else:
            self._lines.append(line)
            self._remarks += remarks

    def _line(self, job: Any, remark: Callable[[str], None]) -> str:
        trigger = native_text(job.trigger)
        native = made_from(trigger)
        module, function = _function_of(job)
        options = {**self._arguments(job), **self._policies(job, remark)}
        name = self._name(job, function, remark)
        self._check_jitter(name, native, options)
        self._compare(job, native, remark)
        for written, in_apscheduler, in_crontab in numbered_weekdays(job.trigger):
            remark(
                f"day_of_week={written!r} is {in_apscheduler}, as APScheduler counts from 0 for Monday, also in "
                f"from_crontab; if it came from a crontab, where 0 is Sunday, write {in_crontab}"
            )
        imported_name = self._import(module, function)
        self._makers |= {maker for maker in ("any_of", "at", "cron", "every") if f"{maker}(" in trigger}
        arguments = ", ".join([trigger, f"name={name!r}", *(f"{key}={value}" for key, value in options.items())])
        return f"scheduler.job({arguments})({imported_name})"

    def _name(self, job: Any, function: str, remark: Callable[[str], None]) -> str:
        name = function if has_random_id(job) else job.id
        if has_random_id(job):
            remark(f"it had a random id and is called {name!r}: a name has to be the same in all processes")
        count, base_name = 1, name
        while name in self._names:
            count += 1
            name = f"{base_name}-{count}"
        self._names.add(name)
        return name

    def _arguments(self, job: Any) -> dict[str, str]:
        arguments = {}
        for name in ("args", "kwargs"):
            value = getattr(job, name, None)
            if not value:
                continue
            try:
                dumps(value, what=name)
            except InvalidPayload as error:
                raise NoEquivalent(f"{name} are not JSON ({error}); let the function fetch them by a key") from error
            arguments[name] = repr(list(value) if name == "args" else dict(value))
        return arguments

    def _policies(self, job: Any, remark: Callable[[str], None]) -> dict[str, str]:
        policies: dict[str, str] = {}
        grace = self._option(job, "misfire_grace_time")
        if grace is not None:
            policies["grace"] = repr(format_duration(parse_duration(grace, what="misfire_grace_time")))
        if not self._option(job, "coalesce"):
            policies["catch_up"] = "'all'"
        if (max_instances := self._option(job, "max_instances")) > 1:
            policies["overlap"], policies["concurrency"] = "'allow'", str(max_instances)
            remark(
                f"max_instances={max_instances} counts in the whole cluster here, and a time above it waits; there it "
                "is lost"
            )
        executor = self._executor(job)
        if executor is not None:
            policies["executor"] = repr(executor)
        if getattr(job, "next_run_time", self) is None:
            remark("it was added paused; after the first start type: cronsensus jobs pause")
        elif getattr(job, "next_run_time", None) is not None:
            remark("its next_run_time is left out: times follow from the trigger alone")
        return policies

    def _option(self, job: Any, name: str) -> Any:
        # A job that waits for the start has only its given options.
        return getattr(job, name, self._scheduler._job_defaults.get(name))

    def _executor(self, job: Any) -> str | None:
        """Return the kind of executor; ``None``: the default of the function.

        Raises:
            NoEquivalent: there is no such kind.
        """
        from apscheduler.executors.asyncio import AsyncIOExecutor
        from apscheduler.executors.pool import ProcessPoolExecutor, ThreadPoolExecutor

        alias = self._option(job, "executor") or "default"
        executor = self._scheduler._executors.get(alias)
        if executor is None and alias == "default":
            return None
        if isinstance(executor, ProcessPoolExecutor):
            return None if is_async(job.func) else "process"
        if isinstance(executor, (ThreadPoolExecutor, AsyncIOExecutor)):
            return None
        kind = "not there" if executor is None else f"a {type(executor).__name__}"
        raise NoEquivalent(f"its executor {alias!r} is {kind}; here there are 'async', 'thread' and 'process'")

    def _check_jitter(self, name: str, native: Trigger, options: dict[str, str]) -> None:
        overlap = {"overlap": "allow"} if "overlap" in options else {}
        try:
            check_jitter(JobSpec(name=name, function=name, trigger=native, policies=Policies.read(dict(overlap))))
        except CronsensusError as error:
            raise NoEquivalent(str(error)) from error

    def _compare(self, job: Any, native: Trigger, remark: Callable[[str], None]) -> None:
        if counts_from_own_start(job.trigger):
            remark("its interval counted from the start of each process; here from 1970, the same in all (or start=)")
            return
        if (difference := first_difference(job.trigger, native, self._now)) is not None:
            apscheduler_time, native_time = ("never" if time is None else time.isoformat() for time in difference)
            remark(
                f"the first time that differs: {apscheduler_time} there, {native_time} here (clocks are changed, say)"
            )

    def _import(self, module: str, function: str) -> str:
        key, name, count = (module, function), function, 1
        if key not in self._imports:
            while name in _TAKEN_NAMES or name in self._imports.values():
                count += 1
                name = f"{function}_{count}"
            self._imports[key] = name
        return self._imports[key]

    def finished(self) -> Migration:
        """Return the program."""
        names = ", ".join(["Scheduler", *sorted(self._makers)])
        imports = [
            f"from {module} import {function}{'' if name == function else f' as {name}'}"
            for (module, function), name in self._imports.items()
        ]
        all_remarks = [*self._remarks, *self._of_the_scheduler()]
        remarks = [f"# {'' if remark.job is None else f'{remark.job}: '}{remark.text}" for remark in all_remarks]
        parts = [
            f"from cronsensus import {names}",
            "\n".join(imports),
            "scheduler = Scheduler()  # the store: CRONSENSUS_URL, or Scheduler('postgresql://…')",
            "\n".join(self._lines),
            "\n".join(["# What is not the same:", *remarks]) if remarks else "",
        ]
        code = "\n\n".join(part for part in parts if part) + "\n"
        return Migration(code, len(self._lines), self._left_out, tuple(all_remarks))

    def _of_the_scheduler(self) -> Iterator[Remark]:
        from apscheduler.jobstores.memory import MemoryJobStore

        for alias, store in self._scheduler._jobstores.items():
            if not isinstance(store, MemoryJobStore):
                yield Remark(
                    None,
                    f"the job store {alias!r} ({type(store).__name__}) is not read; add what is in it by "
                    "scheduler.add_job(…, name=…), which keeps it in the store",
                )
        if any(not called.__module__.startswith("cronsensus.") for called, _ in self._scheduler._listeners):
            yield Remark(None, "listeners are not carried over; write @scheduler.on(…), see docs/events.md")
        if self._lines:
            yield Remark(
                None,
                "a memory store forgets what came due while no process was there; here the latest such time is run "
                "when one comes, if it is within its grace (catch_up='none': not at all)",
            )


def _function_of(job: Any) -> tuple[str, str]:
    """Return module and name of a job's function.

    Raises:
        NoEquivalent: another process could not find it by these.
    """
    module, _, name = (job.func_ref or "").partition(":")
    if not module or not name.isidentifier():
        raise NoEquivalent("its function is no function at the top level of a module; make it one")
    return module, name
