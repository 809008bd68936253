"""A job's definition: a name, a function's name, a trigger, and policies."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args

from cronsensus.errors import DuplicateJob, InvalidOption
from cronsensus.model.gate import MOST_UPSTREAMS, After
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers import Trigger, trigger_from_json
from cronsensus.triggers.options import describe_unknown_option

Overlap = Literal["skip", "queue_one", "queue", "cancel_previous", "allow"]
CatchUp = Literal["none", "latest", "all"]
OnCrash = Literal["retry", "fail"]
Executor = Literal["async", "thread", "process"]

T = TypeVar("T")

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """How the occurrences of a job are run. Durations are ``timedelta`` here; users may write any ``Duration``.

    Attributes:
        overlap: what to do when a nominal time comes and an earlier occurrence (also a backfilled one) is still active:
            ``"skip"`` this time; ``"queue_one"``: let one wait, skip the others; ``"queue"``: let all wait, and run one
            at a time; ``"cancel_previous"``: ask the earlier one to stop, then run; ``"allow"``: run beside it.
        catch_up: which of the nominal times to run that passed while no node was alive: ``"none"``, the ``"latest"``
            (the others are skipped as coalesced), or ``"all"``, one after another.
        catch_up_window: nominal times older than this are missed, with any ``catch_up``.
        grace: an occurrence that cannot start within this time after its due time is missed; ``None``: never too late.
        on_crash: after its node died, run it again (``"retry"``: at least once) or fail it (``"fail"``: at most once).
        max_crashes: crashes after which an occurrence is failed (3: it is taken over twice), so that a job that kills
            its process does not kill the nodes of the cluster one after another.
        retries: further attempts after a failure.
        retry_delay: wait before the first retry; multiplied by ``retry_factor`` for each further one, up to
            ``retry_max_delay``, with jitter.
        timeout: longest time of an attempt; ``None``: no limit. A thread cannot be stopped: its run keeps its place
            until its function returns, and only then fails or is retried, whatever the function returns. If that is
            not acceptable, use ``executor="process"``, an async function, or call ``run.check()`` often.
        concurrency: most runs of this job at a time over the whole cluster; ``None``: no limit. A run that a node lost
            with its lease does not count, although the node may not have stopped it yet.
        priority: higher is claimed first.
        keep: how long final occurrences are kept.
    """

    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    catch_up_window: timedelta = timedelta(days=1)
    grace: timedelta | None = None
    on_crash: OnCrash = "retry"
    max_crashes: int = 3
    retries: int = 0
    retry_delay: timedelta = timedelta(seconds=1)
    retry_factor: float = 2.0
    retry_max_delay: timedelta = timedelta(hours=1)
    timeout: timedelta | None = None
    concurrency: int | None = None
    priority: int = 0
    keep: timedelta = timedelta(days=30)

    @classmethod
    def read(cls, options: dict[str, Any], base: Policies | None = None) -> Policies:
        """Build policies from a user's options, over ``base``; durations may be any ``Duration``.

        Raises:
            InvalidOption: an unknown option (with the nearest known one), or an invalid value.
        """
        known = {item.name for item in dataclasses.fields(cls)}
        for name in options:
            if name not in known:
                raise unknown_option(name, known)
        base = base or cls()
        return dataclasses.replace(base, **{name: _read_policy(name, value) for name, value in options.items()})


class PolicyOptions(TypedDict, total=False):
    """The policies as a user writes them; see ``Policies`` for what each means."""

    overlap: Overlap
    catch_up: CatchUp
    catch_up_window: Duration
    grace: Duration | None
    on_crash: OnCrash
    max_crashes: int
    retries: int
    retry_delay: Duration
    retry_factor: float
    retry_max_delay: Duration
    timeout: Duration | None
    concurrency: int | None
    priority: int
    keep: Duration


class JobDefaults:
    """Default policies for jobs that do not set them; anything left out has the default of ``Policies``.

    Example:
        >>> JobDefaults(timeout="10m", retries=2)
        JobDefaults(timeout='10m', retries=2)

    Raises:
        InvalidOption: an unknown option (with the nearest known one), or an invalid value.
    """

    def __init__(self, **options: Unpack[PolicyOptions]) -> None:
        Policies.read(dict(options))
        self.options: PolicyOptions = options

    def over(self, base: Policies | None = None) -> Policies:
        """Return ``base`` with these options applied."""
        return Policies.read(dict(self.options), base)

    def __repr__(self) -> str:
        return f"JobDefaults({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


STORED_DEFAULTS: dict[str, Any] = {
    "overlap": "skip",
    "catch_up": "latest",
    "catch_up_window": 86_400_000_000,
    "grace": None,
    "on_crash": "retry",
    "max_crashes": 3,
    "retries": 0,
    "retry_delay": 1_000_000,
    "retry_factor": 2.0,
    "retry_max_delay": 3_600_000_000,
    "timeout": None,
    "concurrency": None,
    "priority": 0,
    "keep": 2_592_000_000_000,
}
"""The value of each policy that a stored definition leaves out; durations in microseconds.

A format: no value here ever changes, even if the defaults of ``Policies`` do, because stored jobs would change with
them. A new policy is added with the value that means the behaviour before it. Then a job that does not use it reads the
same to nodes of every release, and nodes that do not know the policy leave jobs that use it alone.
"""

_CHOICES = {"overlap": Overlap, "catch_up": CatchUp, "on_crash": OnCrash}
_OPTIONAL_DURATIONS = {"grace", "timeout"}
_DURATIONS = {"catch_up_window", "retry_delay", "retry_max_delay", "keep"}
_EXPECTATIONS = ("overdue", "slow")
STORED_DURATIONS = frozenset({*_DURATIONS, *_OPTIONAL_DURATIONS, *_EXPECTATIONS})
"""Options that are microseconds in a stored definition."""
_MOST_COUNTED = 2**31 - 1
_LEAST_COUNTS = {"max_crashes": 1, "retries": 0, "priority": None, "concurrency": 1}


_WRITE_INSTEAD = {
    "max_instances": "concurrency=… (most runs at a time), or overlap=…",
    "misfire_grace_time": "grace=…",
    "coalesce": "catch_up='latest' (True), or catch_up='all' (False)",
    "jitter": "it into the trigger: every('5m', jitter='30s')",
    "timezone": "it into the trigger: cron('0 3 * * *', tz='Europe/Berlin')",
    "id": "name='…'",
    "replace_existing": "replace=True for add_job; nothing for @scheduler.job, where a new definition replaces the old",
    "replace": "nothing: a definition that is declared again replaces the old one",
    "next_run_time": "the trigger's start=…, or enqueue it once",
    "max_retries": "retries=…",
    "default_retry_delay": "retry_delay=…",
    "retry_backoff_max": "retry_max_delay=…",
    "time_limit": "timeout=…",
    "soft_time_limit": "timeout=…",
    "acks_late": "on_crash='retry' (True), or on_crash='fail' (False)",
    **dict.fromkeys(("seconds", "minutes", "hours", "days", "weeks", "interval"), "the trigger first: every('5m')"),
    **dict.fromkeys(
        ("second", "minute", "hour", "day", "day_of_week", "crontab"), "the trigger first: cron('30 3 * * *')"
    ),
    "run_date": "the trigger first: at('2026-12-31T00:00:00Z')",
    "tz": "it into the trigger: cron('0 3 * * *', tz='Europe/Berlin')",
    "rate_limit": "concurrency=…: most runs at a time",
    "autoretry_for": "retries=…: any exception is tried again",
    "bind": "a parameter with the annotation Run",
}
"""Options of other schedulers, and what to write here."""


def unknown_option(name: str, known: set[str], *, where: str = "a job") -> InvalidOption:
    """Return the error for an unknown option, with the nearest known one."""
    return InvalidOption(
        describe_unknown_option(name, known, where=where, instead=_WRITE_INSTEAD if where == "a job" else {})
    )


def check_choice(value: T, literal: Any, *, what: str) -> T:
    """Return ``value`` if it is one of the values of a ``Literal``.

    Raises:
        InvalidOption: it is not; the message lists them.
    """
    if value not in get_args(literal):
        raise InvalidOption(f"{what}={value!r}: choose one of {', '.join(map(repr, get_args(literal)))}")
    return value


def _read_policy(name: str, value: Any) -> Any:
    if name in _CHOICES:
        return check_choice(value, _CHOICES[name], what=name)
    if name in _OPTIONAL_DURATIONS:
        if value is None:
            return None
        duration = parse_duration(value, what=name)
        if name == "timeout" and duration <= timedelta(0):
            raise InvalidOption(f"timeout={value!r}: an attempt needs some time; leave it out for no limit")
        return duration
    if name in _DURATIONS:
        return parse_duration(value, what=name)
    if name == "retry_factor":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 100:
            raise InvalidOption(f"retry_factor={value!r}: a number from 1 (constant) to 100")
        return float(value)
    if name == "concurrency" and value is None:
        return None
    return _whole_number(name, value)


def _whole_number(name: str, value: Any) -> int:
    least = _LEAST_COUNTS[name]
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise InvalidOption(f"{name}={value!r}: a whole number" + ("" if least is None else f", at least {least}"))
    if abs(value) > _MOST_COUNTED:
        raise InvalidOption(f"{name}={value!r}: a whole number, at most {_MOST_COUNTED}")
    return value


def check_priority(priority: int) -> None:
    """Raise ``InvalidOption`` unless every store can keep this priority."""
    _whole_number("priority", priority)


INTERNAL = "cronsensus:"
ALERT = INTERNAL + "alert:"
"""Prefix of the jobs that watch for the events of an alert; each has a single run."""


def is_internal(job: str) -> bool:
    """Whether a job, or a function's name, is internal, such as the run that watches for an alert.

    Internal runs take no slot of their node: what watches users' jobs must not wait for them.
    """
    return job.startswith(INTERNAL)


GUARDED = ("once:", "once_per:", "startup:")
"""Prefixes of the names of jobs that stand for guarded functions."""
APSCHEDULER = "apscheduler:"
BEAT = "beat:"
CELERY = "celery:"
RABBITMQ = "rabbitmq:"
KEEPERS = {APSCHEDULER: "APScheduler", BEAT: "Celery beat", CELERY: "Celery", RABBITMQ: "RabbitMQ"}
"""Prefixes of the names of jobs whose runs another program (the keeper) names, and the program.

Their nominal times or keys are acquired one by one. A job's name is part of the history in the store: it never changes.
"""

_HOW_TO_RUN = {
    APSCHEDULER: "scheduler.modify_job({name!r}, next_run_time=datetime.now(UTC))",
    BEAT: "app.send_task(…), with the task of the entry {name!r}",
    CELERY: "app.send_task({name!r})",
    RABBITMQ: "a message to the queue {name!r}, under an id of its own",
}
"""How to start a run in that program."""


def name_kept_job(prefix: str, name: str) -> str:
    """Return the name of a job that another program keeps. It never changes; a name that is not allowed is hashed."""
    full_name = f"{prefix}{name}"
    if len(full_name) <= LONGEST_NAME and full_name.isprintable() and full_name == full_name.strip():
        return full_name
    return f"{prefix}{hashlib.blake2b(str(name).encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job's definition as the store keeps it: names and JSON, never code.

    Attributes:
        name: unique in the namespace.
        function: the name under which nodes registered the function to call; equal to ``name`` for jobs declared in
            code.
        trigger: when it fires; ``None`` for a job that runs only on request.
        args, kwargs: JSON values that a scheduled occurrence passes.
        executor: where the function runs; only displayed: a node takes it from its own code.
        source: ``"code"`` (declared by a decorator) or ``"runtime"`` (created while running).
        overdue: it should succeed at least this often; ``None``: no expectation. Kept in the store, so that it still
            applies when no running release declares the job any more.
        slow: a run should take no longer than this.
        after: the upstreams of its scheduled occurrences.
    """

    name: str
    function: str
    trigger: Trigger | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    executor: Executor = "thread"
    source: Literal["code", "runtime"] = "code"
    overdue: timedelta | None = None
    slow: timedelta | None = None
    after: After | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_name(self.function, what="function")
        if self.after is not None:
            self._check_after(self.after)

    def _check_after(self, after: After) -> None:
        names = [rule.job for rule in after.upstreams]
        if self.policies.overlap != "allow":
            raise InvalidOption(
                f"{self.name!r} comes after others, so overlap={self.policies.overlap!r} would let one that waits stop "
                "all behind it; leave it out (concurrency=1 keeps its runs apart)"
            )
        if self.name in names:
            raise InvalidOption(f"{self.name!r} cannot come after itself")
        if not 0 < len(names) <= MOST_UPSTREAMS:
            raise InvalidOption(f"{self.name!r} comes after {len(names)} jobs: 1 to {MOST_UPSTREAMS} are possible")

    def to_json(self) -> dict[str, Any]:
        """Return the definition as plain JSON values; equal definitions give equal JSON.

        Only policies that differ from ``STORED_DEFAULTS`` are written, and only expectations that are set.
        """
        policies = {name: _as_stored(getattr(self.policies, name)) for name in STORED_DEFAULTS}
        policies = {name: value for name, value in policies.items() if value != STORED_DEFAULTS[name]}
        expected = {name: _as_stored(getattr(self, name)) for name in _EXPECTATIONS if getattr(self, name) is not None}
        return {
            "name": self.name,
            "function": self.function,
            "trigger": None if self.trigger is None else self.trigger.to_json(),
            "args": list(self.args),
            "kwargs": self.kwargs,
            "policies": policies,
            "executor": self.executor,
            "source": self.source,
            **expected,
            **({} if self.after is None else {"after": self.after.to_json()}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobSpec:
        """Read what ``to_json`` wrote. Durations are microseconds there. Names are looked up, never imported.

        Raises:
            UnknownParts: a newer version wrote it, with parts that this version does not know.
            InvalidOption: a value is invalid.
        """
        trigger = data["trigger"]
        policies = {
            name: timedelta(microseconds=value) if name in STORED_DURATIONS and value is not None else value
            for name, value in {**STORED_DEFAULTS, **data["policies"]}.items()
            if name in STORED_DEFAULTS
        }
        spec = cls(
            name=data["name"],
            function=data["function"],
            trigger=None if trigger is None else trigger_from_json(trigger),
            args=tuple(data["args"]),
            kwargs=data["kwargs"],
            policies=Policies.read(policies),
            executor=data["executor"],
            source=data["source"],
            after=After.from_json(data["after"]) if "after" in data else None,
            **{name: timedelta(microseconds=data[name]) for name in _EXPECTATIONS if name in data},
        )
        unknown = (data["policies"].keys() - STORED_DEFAULTS.keys()) | (data.keys() - _KNOWN_PARTS)
        if unknown:
            raise UnknownParts(spec, unknown)
        return spec

    @property
    def zone(self) -> str | None:
        """The name of the trigger's time zone; ``None`` if it has none."""
        return None if self.trigger is None else self.trigger.zone

    @property
    def guarded(self) -> bool:
        """Whether it stands for a guarded function, whose occurrences (keys) run where the function is called."""
        # Its function is written with its parameters, which no node registers; an earlier version wrote the job's name.
        own = self.function == self.name or self.function.endswith(")")
        return self.source == "runtime" and own and self.name.startswith(GUARDED)

    @property
    def keeper(self) -> str | None:
        """The program that names the job's runs, where that is not cronsensus."""
        kept = self.source == "runtime" and self.function == self.name
        return next((program for prefix, program in KEEPERS.items() if kept and self.name.startswith(prefix)), None)

    @property
    def has_only_times(self) -> bool:
        """Whether all its occurrences are nominal times that another program names; there can be no others."""
        return self.keeper is not None and not self.name.startswith((CELERY, RABBITMQ))

    @property
    def runs_elsewhere(self) -> bool:
        """Whether only the programs that have its function create its runs: guarded functions, and jobs of a keeper.

        No node can run it, so an occurrence that an operator created would wait for ever.
        """
        return self.guarded or self.keeper is not None

    @property
    def digest(self) -> str:
        """A hash of the whole definition: equal means nothing to write."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_KNOWN_PARTS = frozenset({
    "name", "function", "trigger", "args", "kwargs", "policies", "executor", "source", "after", *_EXPECTATIONS,
})  # fmt: skip


def no_run_by_hand(job: str) -> InvalidOption:
    """Return the error for a run requested by hand of a job that ``runs_elsewhere``, with what to do instead."""
    for prefix, program in KEEPERS.items():
        if job.startswith(prefix):
            return InvalidOption(
                f"{program} names the runs of {job!r}, and runs them in the programs that have it: nobody else can "
                f"make a run of it; in one of these: {_HOW_TO_RUN[prefix].format(name=job.removeprefix(prefix))}"
            )
    return InvalidOption(
        f"{job!r} stands for a guarded function, which runs where it is called: nobody else can make a run of it; call "
        f"it there, and if its key is to run anew: cronsensus once forget {job} KEY"
    )


def refuse_run_by_hand(spec: JobSpec) -> None:
    """Raise ``InvalidOption`` if only the programs that have the job's function can create its runs."""
    if spec.runs_elsewhere:
        raise no_run_by_hand(spec.name)


class UnknownParts(InvalidOption):
    """A stored definition has policies or other parts that this version does not know; it leaves that job alone.

    Attributes:
        known: the definition without them. It decides only what becomes of a run whose node is gone: firing or running
            the job by it would break a rule that somebody wrote down.
    """

    def __init__(self, known: JobSpec, unknown: Iterable[str]) -> None:
        self.known = known
        super().__init__(
            f"job {known.name!r} has a part of a newer version of cronsensus ({', '.join(sorted(unknown))}): this "
            "node leaves the job to newer ones; upgrade cronsensus here"
        )


def _as_stored(value: Any) -> Any:
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else value


def check_name(name: Any, *, what: str = "job name") -> str:
    """Return ``name`` if it is valid: non-empty printable text of at most 200 characters, no outer spaces.

    Raises:
        InvalidOption: it is not.
    """
    if (
        not isinstance(name, str)
        or not name
        or len(name) > LONGEST_NAME
        or name != name.strip()
        or not name.isprintable()
    ):
        shown = repr(name if not isinstance(name, str) or len(name) <= 60 else name[:60] + "…")
        raise InvalidOption(f"{what} {shown}: use 1 to {LONGEST_NAME} printable characters without spaces around them")
    return name


@dataclass(frozen=True, slots=True)
class Era:
    """A part of a job's life under one trigger: nominal times after ``since``, up to the next era's ``since``.

    Attributes:
        revision: of the definition that began it.
        after: the upstreams of its occurrences in that time.
    """

    since: datetime
    trigger: Trigger | None
    revision: int
    after: After | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of time, from ``start`` (included) to ``end`` (included; ``None`` while it lasts)."""

    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A job's life, as read in one moment.

    Attributes:
        eras: all of them, oldest first; while the job is retired, its era has no trigger.
        pauses: its paused stretches, oldest first.
    """

    eras: tuple[Era, ...] = ()
    pauses: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job that planning needs, as read in one moment.

    Attributes:
        id: the store's own key of the job.
        watermark: the latest nominal time already decided; every nominal time up to it has its verdict.
        eras: the triggers that hold after the watermark, oldest first; at least one.
        pauses: paused stretches that end after the watermark.
        active: occurrences subject to the overlap policy that are pending or running now; 0 when it is ``allow``.
        due_at: the next due time; not later than the store's now if the job is due.
        definition: the store's own text for this definition and the eras that led to it. A store that lost its last
            moment may give a revision's number to another definition, but never this text.
    """

    id: int
    spec: JobSpec
    revision: int
    watermark: datetime
    eras: tuple[Era, ...]
    pauses: tuple[Stretch, ...] = ()
    active: int = 0
    due_at: datetime | None = None
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as reads return it.

    Attributes:
        active: how many of its occurrences are pending or running.
        waiting_until: until when the pending occurrences of a retired job are kept, in case a release declares it
            again.
    """

    id: int
    spec: JobSpec
    revision: int
    watermark: datetime
    horizon: datetime | None
    next_due: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    paused_why: str | None
    retired_at: datetime | None
    created_at: datetime
    active: int
    waiting_until: datetime | None = None


def check_unique_names(specs: Iterable[JobSpec]) -> None:
    """Raise ``DuplicateJob`` if two of ``specs`` have the same name."""
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise DuplicateJob(f"two jobs are called {spec.name!r}; give one of them name=…")
        names.add(spec.name)
