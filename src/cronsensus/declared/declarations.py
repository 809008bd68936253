"""What the application's code declares: functions by name, and jobs that call them.

A declaration keeps what the code wrote. Its definition (``JobSpec``) is made again when the defaults change, which they
may until the node starts: a command's flags come after the import.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Protocol

from cronsensus.declared.functions import Function
from cronsensus.errors import DuplicateJob, InvalidDuration, InvalidOption, InvalidTrigger, UnknownJob
from cronsensus.model.gate import After
from cronsensus.model.job import JobSpec, Policies
from cronsensus.node.registered import Registered
from cronsensus.process.logger import Logger
from cronsensus.timing.durations import format_duration, parse_duration
from cronsensus.timing.instants import EPOCH
from cronsensus.triggers import Trigger
from cronsensus.triggers.notes import notes_on

_log = Logger("cronsensus.scheduler")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A job as its decorator declared it.

    Attributes:
        overdue: without a success for so long, it is alerted.
        slow: a run that takes longer is alerted.
    """

    function: Function
    trigger: Trigger | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    overdue: timedelta | None = None
    slow: timedelta | None = None
    after: After | None = None

    def spec(self, base: Policies, zone: str) -> JobSpec:
        """Return the definition, with ``base`` and ``zone`` for what the decorator leaves out.

        Raises:
            InvalidOption: an invalid value.
        """
        policies = Policies.read(self.options, base)
        if self.overdue is not None and policies.keep < self.overdue:
            raise InvalidOption(
                f"{self.function.name!r} is overdue without a success for {format_duration(self.overdue)}, but a "
                f"success is forgotten after {format_duration(policies.keep)}; give it a longer keep=…"
            )
        return JobSpec(
            name=self.function.name,
            function=self.function.name,
            trigger=None if self.trigger is None else self.trigger.in_zone(zone),
            args=self.args,
            kwargs=self.kwargs,
            policies=policies,
            executor=self.function.registered.executor,
            overdue=self.overdue,
            slow=self.slow,
            after=self.after,
        )


class Declarations:
    """The functions and jobs of a scheduler.

    Attributes:
        base: the default policies, for what decorators leave out.
        zone: the default zone of triggers.
        specs_by_name: the definitions of all declared jobs.
        added: the definitions of jobs that this process added at run time.
        retired: why a job was removed on purpose, by its name (``scheduler.retired``).
    """

    def __init__(self) -> None:
        self.base: Policies = Policies()
        self.zone: str = "UTC"
        self.specs_by_name: dict[str, JobSpec] = {}
        self.added: dict[str, JobSpec] = {}
        self.retired: dict[str, str] = {}
        self._functions: dict[str, Function] = {}
        self._jobs: dict[str, Declaration] = {}
        self._registry: dict[str, Registered] = {}

    @property
    def registry(self) -> Mapping[str, Registered]:
        """The functions that a node of this process can run, by name; a live view."""
        return MappingProxyType(self._registry)

    def add_function(self, function: Function) -> None:
        """Register a function.

        Raises:
            DuplicateJob: the name is taken.
        """
        other_function = self._functions.get(function.name)
        if other_function is not None:
            raise DuplicateJob(_declared_twice(function.name, other_function, function))
        self._functions[function.name] = function
        self._registry[function.name] = function.registered

    def add_job(self, declaration: Declaration) -> None:
        """Register a job and its function, both or neither.

        Raises:
            DuplicateJob: the name is taken.
            InvalidOption: the definition is invalid.
        """
        spec = declaration.spec(self.base, self.zone)
        check_jitter(spec)
        if spec.name in self.retired:
            raise InvalidOption(_retired_and_declared(spec.name))
        self.add_function(declaration.function)
        self._jobs[spec.name] = declaration
        self.specs_by_name[spec.name] = spec

    def remove_job(self, name: str) -> None:
        """Remove a job and its function, before it is declared again."""
        for by_name in (self._jobs, self.specs_by_name, self._functions, self._registry):
            by_name.pop(name, None)

    def add_retired(self, name: str, reason: str) -> None:
        """Record that a job was removed on purpose.

        Raises:
            InvalidOption: the job is declared.
        """
        if name in self._jobs:
            raise InvalidOption(_retired_and_declared(name))
        self.retired[name] = reason

    def function(self, name: str) -> Function:
        """Return a registered function.

        Raises:
            UnknownJob: there is none of that name.
        """
        function = self._functions.get(name)
        if function is None:
            import difflib

            close = difflib.get_close_matches(name, self._functions, n=1)
            hint = (
                f"; did you mean {close[0]!r}?"
                if close
                else "; declare it with @scheduler.function() where every node imports it"
            )
            raise UnknownJob(f"no function is registered here as {name!r}{hint}")
        return function

    def registered_as(self, function: object) -> Function | None:
        """Return the registration of a function, or ``None``."""
        return next(
            (declared for declared in self._functions.values() if declared.registered.function is function), None
        )

    def find_function(self, name: str) -> Function | None:
        """Return a registered function, or ``None``."""
        return self._functions.get(name)

    def spec(self, job: str) -> JobSpec | None:
        """Return the definition of a declared job.

        ``None`` for jobs that were added at run time: somebody may have removed them since, and using them must not
        define them again.
        """
        return self.specs_by_name.get(job)

    def spec_here(self, job: str) -> JobSpec | None:
        """Return the definition of a job that this process declared, or added at run time."""
        return self.added.get(job) or self.spec(job)

    def function_of(self, job: str) -> Function | None:
        """Return the function of a job, if this process has it."""
        spec = self.spec_here(job)
        return None if spec is None else self.find_function(spec.function)

    def specs(self) -> list[JobSpec]:
        """Return the definitions of all declared jobs, by name."""
        return [spec for _, spec in sorted(self.specs_by_name.items())]

    def set_base(self, base: Policies, zone: str) -> None:
        """Change the defaults, and make all definitions again."""
        self.base, self.zone = base, zone
        self.specs_by_name = {name: declaration.spec(base, zone) for name, declaration in self._jobs.items()}

    def expected_durations(self) -> dict[str, tuple[timedelta | None, timedelta | None]]:
        """Return ``overdue`` and ``slow`` of the jobs that set them."""
        jobs = self._jobs.items()
        return {
            name: (declaration.overdue, declaration.slow)
            for name, declaration in jobs
            if declaration.overdue is not None or declaration.slow is not None
        }

    def digest(self) -> str:
        """Return a hash of all definitions, the same for equal code on every replica."""
        text = "\n".join(sorted(spec.digest for spec in self.specs_by_name.values()))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def __contains__(self, job: object) -> bool:
        return job in self._jobs


def declare(
    function: Function,
    trigger: object,
    args: tuple[Any, ...] | list[Any],
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Declaration:
    """Return a checked declaration.

    Raises:
        InvalidTrigger: ``trigger`` is something else.
        InvalidOption: a scheduled job whose function lacks arguments.
        InvalidPayload: arguments that are not JSON.
    """
    positional, named = check_arguments(function, require_trigger(trigger), tuple(args), kwargs or {})
    return Declaration(function, require_trigger(trigger), positional, named, dict(options))


def require_trigger(trigger: object) -> Trigger | None:
    """Return ``trigger`` if it is one, or ``None``.

    Raises:
        InvalidTrigger: it is something else; the message says what to write.
    """
    if trigger is None or isinstance(trigger, Trigger):
        return trigger
    if isinstance(trigger, str):
        period = trigger.strip().removeprefix("@").removeprefix("every ").strip()
        right = f"every({period!r})" if _is_duration(period) else f"cron({trigger!r}), or every('5m')"
        raise InvalidTrigger(f"{trigger!r} is text, not a trigger; write {right}")
    if callable(trigger):
        raise InvalidTrigger(
            "the decorator needs its parentheses; write @scheduler.job(every('5m')), or @scheduler.job() for what only "
            "runs when told to"
        )
    raise InvalidTrigger(
        f"{trigger!r} is not a trigger; write cron('0 3 * * *'), every('5m') or at('2026-12-31T00:00:00Z')"
    )


def log_other_meanings(job: str, trigger: Trigger | None) -> None:
    """Log a WARNING for each cron text of a job that means other times in other programs.

    ``lint`` also warns of texts that mean the same everywhere, but are rarely intended.
    """
    for note in notes_on(trigger):
        if note.rule == "other programs":
            _log.warning("job %r: %s", job, note)


_SAMPLE = 20
"""How many intervals between nominal times are compared to find the usual one."""


def check_jitter(spec: JobSpec) -> None:
    """Refuse a jitter longer than the interval of a job whose runs must not overlap.

    A run would still wait for its jittered due time when the next nominal times come, and the overlap policy would skip
    those: two in three, for a job each second with ``jitter="5s"``.

    Raises:
        InvalidOption: the jitter is too large; the message says what to write.
    """
    trigger, overlap = spec.trigger, spec.policies.overlap
    if trigger is None or not trigger.jitter or overlap in {"allow", "queue"}:
        return
    times = [trigger.next_after(EPOCH)]
    while times[-1] is not None and len(times) <= _SAMPLE:
        times.append(trigger.next_after(times[-1]))
    nominal_times = [time for time in times if time is not None]
    intervals = sorted(later - earlier for earlier, later in pairwise(nominal_times))
    if intervals and trigger.jitter > (usual := intervals[len(intervals) // 2]):
        raise InvalidOption(
            f"{spec.name!r} runs each {format_duration(usual)}, and jitter={format_duration(trigger.jitter)!r} is "
            f"longer: a run would still wait when the next one is due, which overlap={overlap!r} does not run beside "
            "it; write a shorter jitter, or overlap='allow'"
        )


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except InvalidDuration:
        return False
    return True


def check_arguments(
    function: Function, trigger: Trigger | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments as a node will pass them.

    A scheduled job must have all of them. A job without a trigger may get them when it is enqueued.
    """
    if function.registered.gets_arguments:
        if args:
            return function.bind(args, kwargs)  # a shard gets positional arguments, too
        return (), function.registered.types.write_arguments((), kwargs, what=f"arguments of {function.name!r}")[1]
    if args or kwargs or trigger is not None:
        return function.bind(args, kwargs, hint="; give what its schedule passes as args=(…) or kwargs={…}")
    return args, dict(kwargs)


def _retired_and_declared(name: str) -> str:
    return f"{name!r} is declared, and retired({name!r}) says that it is gone; take one of them out"


def _declared_twice(name: str, first: Function, second: Function) -> str:
    if first.place == second.place:
        return (
            f"{name!r} is declared twice at {first.place}: a module that is imported under two names (import it by "
            "one), or a loop (give each job its own name=…)"
        )
    return f"{name!r} is declared twice, at {first.place} and at {second.place}; give one of them another name=…"


class Named(Protocol):
    """Something with a job's name: a ``Job``, a ``JobSpec``.

    An object of another program, such as a task of Django's, may give its job's name as ``job_name``.
    """

    @property
    def name(self) -> str:
        """Return the name."""


def name_of(job: str | Named) -> str:
    """Return a job's name.

    Raises:
        InvalidOption: ``job`` is something else.
    """
    name = job if isinstance(job, str) else getattr(job, "job_name", None) or getattr(job, "name", None)
    if not isinstance(name, str):
        raise InvalidOption(f"{job!r} is neither a job nor a job's name; declare it with @scheduler.job(…) first")
    return name
