"""Define jobs: in code by decorators, and at run time by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Unpack, overload

from cronsensus.after.declare import DEPENDENT_DEFAULTS, AfterOptions, Upstreams, read_after
from cronsensus.batching.declare import BatchOptions, read_batch
from cronsensus.config import UNSET, Unset
from cronsensus.declared.declarations import (
    Declaration,
    Named,
    check_arguments,
    check_jitter,
    declare,
    log_other_meanings,
    require_trigger,
)
from cronsensus.declared.functions import Function, inspect_function, refuse_method
from cronsensus.errors import ConfigurationError, DuplicateJob, InvalidOption, UnknownJob, UnsupportedFunction
from cronsensus.jobs.acting import Acts
from cronsensus.jobs.job import Declare, Job
from cronsensus.jobs.operations import Operations
from cronsensus.model.gate import When
from cronsensus.model.job import Executor, JobSpec, Policies, PolicyOptions, check_name, unknown_option
from cronsensus.process.twins import twin
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers import Trigger

F = TypeVar("F", bound=Callable[..., Any])

_JOB_OPTIONS = {
    *("overdue", "slow"),
    *("trigger", "name", "executor", "args", "kwargs"), *PolicyOptions.__annotations__, *BatchOptions.__annotations__,
    *AfterOptions.__annotations__,
}  # fmt: skip


class Definitions:
    """The jobs of a scheduler: declares, adds, changes and removes them."""

    def __init__(self, acts: Acts, operations: Operations, started: Callable[[], bool]) -> None:
        """Define jobs by ``acts``; a job that is declared while ``started`` is put into the store at once."""
        self._acts = acts
        self._declared = acts.declared
        self._operations = operations
        self._started = started
        self._jobs: dict[str, Job[..., Any]] = {}

    # --- declaring ---------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, Job[..., Any]]:
        """By name, the jobs that this process declares, and those that it added at run time and did not remove."""
        return dict(self._jobs)

    def job(
        self,
        trigger: Trigger | None = None,
        *,
        name: str | None = None,
        executor: Executor | None = None,
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        items: Callable[..., Any] | Iterable[Any] | None = None,
        item_key: Callable[[Any], str | int] | None = None,
        tolerate: int | str | None = None,
        stop_after: int | None = None,
        collect: Callable[..., Any] | None = None,
        shards: int | None = None,
        after: Upstreams | None = None,
        when: When | Mapping[Any, When] | None = None,
        wait_for: Duration | None = None,
        overdue: Duration | None = None,
        slow: Duration | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> Declare:
        """Declare a job. The function stays what it was: calling it calls it.

        A parameter annotated with ``Run`` gets the run. On a started scheduler the job is put into the store at once,
        and counts as added at run time: no release declares it, and it stays until ``remove_job``.

        Args:
            trigger: when it runs by itself. ``None``: only on request.
            name: unique in the namespace. Defaults to the function's own.
            executor: ``"async"``, ``"thread"`` or ``"process"``. Defaults to ``"async"`` for an async function, else
                ``"thread"``.
            args: JSON values that each scheduled run passes by position.
            kwargs: JSON values that each scheduled run passes by name.
            items: makes each run a *batch*: the function is called once for each item, by whichever node has a free
                slot. A list, or a function that returns or yields the items (async, too): called once a run, by one
                node, up to a million items. ``concurrency``, ``retries``, ``timeout`` and so on are an item's.
            item_key: returns the text that names an item in its batch. Defaults to the item itself.
            tolerate: how many items may fail in a batch that succeeds: a number, or a share as ``"5%"``. Defaults to 0.
            stop_after: after so many failed items, no further item is started. Defaults to trying all.
            collect: is called when all items are done, with an iterator over their results; its result is the batch's.
            shards: makes each run a batch of so many calls without an item: ``run.shard`` of ``run.shards``.
            after: jobs that must have ended first, each for the same nominal time: ``[extract, rates]``. Without its
                own trigger the job has theirs. ``{hourly: "all_in_period", rates: "latest_before"}`` chooses which of
                their times count, if they have other schedules.
            when: how they must have ended: ``"succeeded"`` (the default), ``"ended"`` or ``"failed"``; or a mapping.
                Otherwise the run is skipped: upstream failed, skipped or missing.
            wait_for: how long a run waits for them, from its creation on. Defaults to a day.
            overdue: the longest time without a success, for alerts that include ``"overdue"``.
            slow: the longest time of a run, for alerts that include ``"slow"``.
            policies: see ``Policies``; durations may be seconds, ``timedelta``, or text like ``"15m"``.

        Raises:
            DuplicateJob: the name is taken; the message names both places.
            InvalidOption: an unknown or impossible option.
            InvalidTrigger: ``trigger`` is something else.
            InvalidPayload: arguments that are not JSON.
            UnsupportedFunction: no function, or a function that the executor cannot run.
        """
        _require_job_options(policies)
        # Here and not in the decorator: without its parentheses, @scheduler.job calls nothing but this.
        require_trigger(trigger)
        of_after: AfterOptions = {"after": after, "when": when, "wait_for": wait_for}
        of_batch: BatchOptions = {
            "items": items, "item_key": item_key, "tolerate": tolerate, "stop_after": stop_after, "collect": collect,
            "shards": shards,
        }  # fmt: skip

        def decorate(function: Callable[..., Any]) -> Any:
            plain_function = function.function if isinstance(function, Job) else function
            inspected = inspect_function(plain_function, name=name, executor=executor)
            refuse_method(inspected)
            batch = read_batch(inspected, of_batch, tuple(args), kwargs or {})
            if batch is not None:
                inspected = dataclasses.replace(inspected, registered=inspected.registered.with_part(batch))
            own_trigger, options = trigger, dict(policies)
            upstreams = read_after(inspected.name, of_after, trigger, self._declared, policies)
            if upstreams is not None:
                own_trigger, options = upstreams.trigger, {**DEPENDENT_DEFAULTS, **policies}
                inspected = dataclasses.replace(inspected, registered=inspected.registered.with_part(upstreams.results))
            declaration = dataclasses.replace(
                declare(inspected, own_trigger, args, kwargs, options),
                overdue=None if overdue is None else parse_duration(overdue, what="overdue"),
                slow=None if slow is None else parse_duration(slow, what="slow"),
                after=None if upstreams is None else upstreams.after,
            )
            # Not ``own_trigger``: the trigger of its upstreams was checked where they were declared.
            log_other_meanings(inspected.name, trigger)
            if self._started():
                return self._declare_late(declaration)
            self._declared.add_job(declaration)
            job = self._make_job(inspected.name, plain_function, lambda: self._declared.specs_by_name[inspected.name])
            self._jobs[inspected.name] = job
            return job

        return decorate

    @overload
    def function(self, function: F, /) -> F: ...
    @overload
    def function(self, /, *, name: str | None = None, executor: Executor | None = None) -> Callable[[F], F]: ...
    def function(self, function: Any = None, /, *, name: str | None = None, executor: Executor | None = None) -> Any:
        """Register a function for jobs that are added at run time; returns the function itself.

        To be written with parentheses or without.

        Args:
            function: the decorated function, without parentheses.
            name: its name for ``add_job``. Defaults to the function's own.
            executor: as for ``job``.

        Raises:
            DuplicateJob, InvalidOption, UnsupportedFunction: as ``job``.
        """

        def register(decorated: F) -> F:
            plain = decorated.function if isinstance(decorated, Job) else decorated
            looked_at = inspect_function(plain, name=name, executor=executor)
            refuse_method(looked_at)
            self._declared.add_function(looked_at)
            return decorated

        return register if function is None else register(function)

    def forget_job(self, name: str) -> None:
        """Remove a job that was just declared and is declared anew, before anything is started."""
        self._declared.remove_job(name)
        self._jobs.pop(name, None)

    def retired(self, name: str, *, reason: str = "") -> None:
        """Declare that a job which this code no longer declares is gone on purpose.

        Write it where the decorator was: ``scheduler.retired("backup")``. Otherwise a job that no running release
        declares counts as lost by a deploy: alerts and ``cronsensus doctor`` report it. The line may be removed when
        every node runs a release that has it. ``remove_job`` does the same without a deploy.

        Args:
            name: of the job; an unknown name does no harm.
            reason: for the trail.

        Raises:
            InvalidOption: the code declares it, or the name cannot be one.
            ConfigurationError: the scheduler is started.
        """
        if self._started():
            raise ConfigurationError(
                f"the scheduler is started; call remove_job({name!r}) now, or retired({name!r}) before start()"
            )
        self._declared.add_retired(check_name(name), reason)

    def define(self) -> None:
        """Put the jobs that this code declares into the store; for a program that enqueues, and runs no node.

        A node does so when it starts, and ``enqueue`` for a new job. Inside your own transaction on SQLite ``enqueue``
        would wait for itself, so call this before the first transaction. Jobs that another release declares stay.

        Idempotent: a job that is in the store as declared is left alone.

        Raises:
            StoreError: the store could not do it.
        """
        self._acts.define_jobs(self._declared.specs(), None)

    @twin(define)
    def adefine(self) -> None:
        """Do what ``define`` does without blocking the event loop."""

    # --- jobs at run time --------------------------------------------------------------------------------------------

    def add_job(
        self,
        function: str | Named | Callable[..., Any],
        trigger: Trigger | None = None,
        *,
        name: str,
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        replace: bool = False,
        by: str | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> Job[..., Any]:
        """Add a job while running: a name, the name of a registered function, and its arguments.

        Every node that has the function runs the job. A function at the top level of a module is registered by this
        call, in this process: enough if each replica makes the same call when it starts. Otherwise put
        ``@scheduler.function()`` above it, where every node imports it: no node imports a name from the store.

        Idempotent: the same definition again changes nothing. With ``replace=True`` another definition replaces the old
        one as a whole: options that are not given get their defaults; decided nominal times stay decided, and a pause
        goes on. So each replica may make the call when it starts, and a deploy with another cron just changes it.

        Not prevented: the last call counts, even if it is that of an older release whose replica restarts during a
        deploy. With ``@scheduler.job`` the newest release's definition holds.

        Args:
            function: the function itself, a job, or the name of a registered function.
            trigger: as for ``job``.
            name: unique in the namespace.
            args: JSON values that each run passes by position, unless it was enqueued with others.
            kwargs: the same, by name.
            replace: change a job of that name that was added before with another definition.
            by: the operator, for the trail; defaults to this node's name.
            policies: as for ``job``.

        Raises:
            UnknownJob: no such function is registered here.
            UnsupportedFunction: the function is not registered, and another process could not import it by name.
            DuplicateJob: the name is taken by a job with another definition; with ``replace``, by one declared in code.
            InvalidOption, InvalidTrigger, InvalidPayload: as ``job``.
            StoreError: the store could not do it.
        """
        _require_job_options(policies)
        registered = self._find_function(function)
        positional, named = check_arguments(registered, require_trigger(trigger), tuple(args), kwargs or {})
        spec = JobSpec(
            name=name,
            function=registered.name,
            trigger=None if trigger is None else trigger.in_zone(self._declared.zone),
            args=positional,
            kwargs=named,
            policies=Policies.read(dict(policies), self._declared.base),
            executor=registered.registered.executor,
            source="runtime",
        )
        check_jitter(spec)
        log_other_meanings(name, trigger)
        if name in self._declared:
            raise DuplicateJob(
                f"{name!r} is declared in code at {self._declared.function(name).place}; choose another name"
            )
        from cronsensus.node.executors.importing import loading_program

        if loading_program():
            # This is a job's own process, which may start long after its node made the call: a job that was removed or
            # replaced since must not come back.
            return self._added_job(spec, registered)
        view = self._acts.opened.ready().job(name)
        if view is not None and view.retired_at is None and view.spec.digest != spec.digest:
            if view.spec.source == "code":
                raise DuplicateJob(
                    f"there is a job {name!r} already, which a release declares in code; change it there, or choose "
                    "another name"
                )
            if not replace:
                raise DuplicateJob(
                    f"there is a job {name!r} already, with another definition; write replace=True to have this one in "
                    "its place, use change_job, or choose another name"
                )
        self._acts.define_jobs([spec], by)
        return self._added_job(spec, registered)

    @twin(add_job)
    def aadd_job(self) -> None:
        """Do what ``add_job`` does without blocking the event loop."""

    def change_job(
        self,
        name: str,
        *,
        trigger: Trigger | Unset | None = UNSET,
        args: tuple[Any, ...] | list[Any] | Unset = UNSET,
        kwargs: Mapping[str, Any] | Unset = UNSET,
        by: str | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> None:
        """Change the given options of a job that was added at run time; the others stay.

        Decided nominal times stay decided.

        Raises:
            UnknownJob: there is none.
            InvalidOption: it is declared in code, or an option is invalid.
            InvalidTrigger, InvalidPayload: as ``job``.
            StoreError: the store could not do it.
        """
        _require_job_options(policies)
        old_spec = self._runtime_spec(name, "change it there and deploy, or pause it")
        new_trigger = old_spec.trigger if isinstance(trigger, Unset) else require_trigger(trigger)
        changed = dataclasses.replace(
            old_spec,
            trigger=None if new_trigger is None else new_trigger.in_zone(self._declared.zone),
            args=old_spec.args if isinstance(args, Unset) else tuple(args),
            kwargs=old_spec.kwargs if isinstance(kwargs, Unset) else dict(kwargs),
            policies=Policies.read(dict(policies), old_spec.policies),
        )
        registered = self._declared.find_function(old_spec.function)
        if registered is not None:
            positional, named = check_arguments(registered, changed.trigger, changed.args, changed.kwargs)
            changed = dataclasses.replace(changed, args=positional, kwargs=named)
        check_jitter(changed)
        if not isinstance(trigger, Unset):
            log_other_meanings(name, trigger)
        self._acts.define_jobs([changed], by)
        if name in self._declared.added:
            self._declared.added[name] = changed

    @twin(change_job)
    def achange_job(self) -> None:
        """Do what ``change_job`` does without blocking the event loop."""

    def remove_job(self, name: str, *, by: str | None = None, reason: str = "") -> bool:
        """Retire a job that was added at run time; ``False`` when it is retired already. Its ledger stays.

        For a job that no running release declares any more, it records that this is on purpose: then neither alerts nor
        ``cronsensus doctor`` report it.

        Raises:
            UnknownJob: there is none.
            InvalidOption: this process declares it in code.
            StoreError: the store could not do it.
        """
        if name in self._declared:
            raise InvalidOption(
                f"{name!r} is declared in code at {self._declared.function(name).place}; remove it there, or pause it"
            )
        if self._acts.opened.ready().job(name) is None:
            raise UnknownJob(f"no job is called {name!r}; `cronsensus jobs list` shows those in the store")
        self._declared.added.pop(name, None)
        self._jobs.pop(name, None)
        return self._acts.act_and_notify(
            (), lambda store: store.retire(name, by=self._acts.operator_name(by), why=reason)
        )

    @twin(remove_job)
    def aremove_job(self) -> None:
        """Do what ``remove_job`` does without blocking the event loop."""

    def _find_function(self, function: str | Named | Callable[..., Any]) -> Function:
        if isinstance(function, str):
            return self._declared.function(function)
        if isinstance(function, Job):
            return self._declared.function(function.spec.function)
        registered = self._declared.registered_as(function)
        if registered is not None:
            return registered
        from cronsensus.node.executors.importing import require_importable

        if not callable(function):
            raise UnknownJob(
                f"{function!r} is no function; give the function itself, or the name it is registered under"
            )
        try:
            require_importable(function)
        except UnsupportedFunction as error:
            raise UnsupportedFunction(
                f"add_job needs a function that every node can find by name: {error}. Or put @scheduler.function() "
                "above it, where every node imports it"
            ) from None
        inspected = inspect_function(function, name=None, executor=None)
        self._declared.add_function(inspected)
        return inspected

    def _runtime_spec(self, name: str, instead: str) -> JobSpec:
        view = self._acts.opened.ready().job(name)
        if view is None or view.retired_at is not None:
            raise UnknownJob(f"no job is called {name!r}; `cronsensus jobs list` shows those in the store")
        if view.spec.source == "code":
            raise InvalidOption(f"{name!r} is declared in code; {instead}")
        return view.spec

    def _declare_late(self, declaration: Declaration) -> Job[..., Any]:
        """Declare a job on a started scheduler: other nodes of this release may not know it, so no release owns it."""
        spec = dataclasses.replace(declaration.spec(self._declared.base, self._declared.zone), source="runtime")
        check_jitter(spec)
        self._declared.add_function(declaration.function)
        self._acts.define_jobs([spec], None)
        return self._added_job(spec, declaration.function)

    def _added_job(self, spec: JobSpec, function: Function) -> Job[..., Any]:
        self._declared.added[spec.name] = spec
        job = self._make_job(
            spec.name, function.registered.function, lambda: self._declared.spec_here(spec.name) or spec
        )
        self._jobs[spec.name] = job
        return job

    def _make_job(self, name: str, function: Callable[..., Any], spec: Callable[[], JobSpec]) -> Job[..., Any]:
        return Job(name, function, self._operations, spec)


def _require_job_options(policies: Mapping[str, Any]) -> None:
    wrong = [str(unknown_option(name, _JOB_OPTIONS)) for name in policies if name not in _JOB_OPTIONS]
    if wrong:
        raise InvalidOption("; ".join(wrong))
