"""``Scheduler``: declare jobs, take part in running them, operate them.

Nothing happens at import: no thread, no connection, no file. The store is opened when first used; a node runs between
``start`` and ``stop``.

Forks (gunicorn with ``--preload``, ``multiprocessing``): a scheduler that was not started works in the child, with a
store that the child opens for itself. A scheduler that was started stays the parent's: the child can enqueue and
operate, but not start it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar

from cronsensus.bus import Bus
from cronsensus.config import OnStoreLoss, Settings, load_settings
from cronsensus.declared.declarations import Declarations, declare
from cronsensus.declared.functions import inspect_function
from cronsensus.errors import ConfigurationError, CronsensusError, InvalidDuration, InvalidOption, MissingExtra
from cronsensus.jobs.acting import Acts
from cronsensus.jobs.definitions import Definitions
from cronsensus.jobs.job import Job
from cronsensus.jobs.operations import Operations
from cronsensus.jobs.runs import Runs
from cronsensus.lifecycle.lifecycle import Lifecycle
from cronsensus.model.job import JobDefaults, Policies, unknown_option
from cronsensus.once.declaring import Guards
from cronsensus.opened.opened_store import Holdings, OpenedStore, refuse_connection
from cronsensus.opened.scheduler_setup import Setup
from cronsensus.process.forking import register_for_forks
from cronsensus.security.masking import mask
from cronsensus.startup.tasks import Startups
from cronsensus.stores.base import Store
from cronsensus.subscriptions import Subscriptions
from cronsensus.timing.clock import Clock
from cronsensus.timing.durations import Duration

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsensus.alerts.alert import Alert
    from cronsensus.alerts.watching import Alerts
    from cronsensus.lifecycle.participation import Participation
    from cronsensus.lock import Lock
    from cronsensus.node.hooks import HooksFactory
    from cronsensus.node.stats import NodeStats
    from cronsensus.opened.waits import Waits

T = TypeVar("T")


class _Of(Generic[T]):
    """Shows a method of a scheduler's part as the scheduler's own: with its signature, overloads and docstring.

    On the class, it gives the function of the part's class. It decorates a definition of which only the name counts:
    type checkers agree on the type of a definition in a package, and may not agree on that of an assignment.
    """

    _classes: Any = SimpleNamespace(
        _definitions=Definitions,
        _guards=Guards,
        _lifecycle=Lifecycle,
        _operations=Operations,
        _runs=Runs,
        _startups=Startups,
        _subscriptions=Subscriptions,
    )

    def __init__(self, find: Callable[[Scheduler], T]) -> None:
        self._find = find

    def __call__(self, _: Callable[[Scheduler], None], /) -> _Of[T]:
        return self

    def __get__(self, instance: Scheduler | None, owner: type[Scheduler]) -> T:
        return self._find(self._classes if instance is None else instance)


class Scheduler:
    """Jobs, the store that they are in, and, between ``start`` and ``stop``, a node that runs them.

    Start the same code on every replica: each occurrence is run by exactly one of them.

    Example:
        >>> from cronsensus import Scheduler, every
        >>> scheduler = Scheduler("memory://", lease="5s")
        >>> @scheduler.job(every("5m"), timeout="1m", retries=3)
        ... def sync_orders() -> int:
        ...     return 7
        >>> with scheduler:
        ...     sync_orders.options(key="first").enqueue().result("10s")
        7

    A setting that is left out comes from ``CRONSENSUS_*``, ``[tool.cronsensus]`` or the default; see ``Settings``.

    Args:
        url: ``sqlite:///cronsensus.db``, ``memory://``; or an open ``Store``, which stays the caller's to close.
        namespace: keeps applications on the same store apart. Defaults to ``"default"``.
        lease: how long a node without a sign of life keeps what it runs. Defaults to 10 seconds.
        defaults: policies of jobs that do not set their own.
        concurrency: most runs of this node at a time. Defaults to 20.
        node: the node's name for people. Defaults to host name and pid.
        release: the version of the application's code, to which a hash of the declared jobs is added. Defaults to the
            hash alone. (``CRONSENSUS_RELEASE`` and ``--release`` are taken as they are.)
        drain_timeout: how long runs may go on when the node stops. Defaults to 25 seconds, less than
            the 30 after which Kubernetes and others kill.
        fast_evidence: treat a process of this host as dead as soon as it is gone. Defaults to true.
        retire_after: how long the pending runs of a job are kept after a release that no longer declares it. Defaults
            to 1 day; 0 cancels it at once.
        tz: the time zone of ``cron`` triggers that name none. Defaults to UTC. Stored triggers always name theirs.
        on_store_loss: what to do when the store is emptied while this process uses it: ``"warn"`` (the default) logs it
            and goes on in the empty store, ``"stop"`` logs it and starts nothing more.
        alerts: who gets a message when something goes wrong; see ``Alert``.
        heartbeat_url: a URL to ping each minute while this node decides on time, as for healthchecks.io.
        clock: for tests.

    Raises:
        InvalidOption: an unknown or impossible option.
        InvalidDuration: an invalid duration.
    """

    def __init__(
        self,
        url: str | Store | None = None,
        *misplaced: Never,
        namespace: str | None = None,
        lease: Duration | None = None,
        defaults: JobDefaults | None = None,
        concurrency: int | None = None,
        node: str | None = None,
        release: str | None = None,
        drain_timeout: Duration | None = None,
        fast_evidence: bool | None = None,
        retire_after: Duration | None = None,
        tz: str | ZoneInfo | None = None,
        on_store_loss: OnStoreLoss | None = None,
        alerts: Sequence[Alert] = (),
        heartbeat_url: str | None = None,
        clock: Clock | None = None,
        **unknown: Never,
    ) -> None:
        for value in map(repr, misplaced):
            raise InvalidOption(
                f"Scheduler(url, {value}): only the URL goes without a name; write namespace=…, lease=…, …"
            )
        refuse_connection(url)
        store = url if isinstance(url, Store) else None
        if store is not None:
            url, namespace = f"{store.capabilities.name}://", store.namespace
        self._arguments = {
            "url": url, "namespace": namespace, "lease": lease, "concurrency": concurrency, "node": node,
            "release": release, "drain_timeout": drain_timeout, "fast_evidence": fast_evidence,
            "retire_after": retire_after, "tz": tz, "on_store_loss": on_store_loss, "heartbeat_url": heartbeat_url,
        }  # fmt: skip
        for name in unknown:
            raise unknown_option(name, {*self._arguments, "defaults", "clock", "alerts"}, where="Scheduler")
        self._defaults = _require_defaults(defaults)
        self._declared = Declarations()
        self._setup = Setup(clock, self._declared.digest)
        self._bus = Bus(self._setup.clock, lambda: self.node_name)
        register_for_forks(self._bus)
        self._opened = OpenedStore(self._setup, store, lambda: self._bus.span)
        self._subscriptions = Subscriptions(self._bus, self._opened)
        self._acts = acts = Acts(self._opened, self._declared, self._setup)
        self._operations = Operations(acts)
        self._runs = Runs(acts)
        self._definitions = Definitions(acts, self._operations, lambda: self.started)
        self._guards = Guards(self._opened.claims, lambda: self.settings.tz)
        self._startups = Startups(self._guards, self._setup)
        self._lifecycle = Lifecycle(self._setup, self._declared, self._opened, self._startups, self._bus)
        self.configure({})
        self._alerts: Alerts | None = None
        if alerts or self.settings.alerts:
            self._watch(alerts)

    def _watch(self, alerts: Sequence[Alert]) -> None:
        from cronsensus.alerts.alert import read_alerts
        from cronsensus.alerts.conditions import Expected
        from cronsensus.alerts.watching import JOB_POLICIES, JOB_PREFIX, Alerts

        from_settings: Sequence[Alert] = ()
        if not alerts and self.settings.alerts is not None:
            try:
                from_settings = read_alerts(self.settings.alerts)
            except (InvalidDuration, InvalidOption, MissingExtra) as error:
                raise type(error)(f"{self.settings.source('alerts')}: {error}") from error
        self._alerts = made = Alerts(
            [*alerts, *from_settings],
            lambda: self.store,
            lambda: {name: Expected(*limits) for name, limits in self._declared.expected_durations().items()},
            lambda: self.settings.dashboard_url,
            lambda: self._declared.retired,
        )
        for alert in made.by_name.values():
            function = inspect_function(made.function_of(alert), name=JOB_PREFIX + alert.name, executor="thread")
            self._declared.add_job(declare(function, None, (), None, JOB_POLICIES))
        self._lifecycle.on_declared = made.ensure_runs

    @property
    def _part(self) -> Participation:
        return self._lifecycle.part

    def _add_room(self, make_hooks: HooksFactory, headers: Callable[[], Mapping[str, str] | None]) -> None:
        """Add a feature of an integration to its nodes, and that feature's headers to what is enqueued here.

        Raises:
            ConfigurationError: a node takes part already, and would lack the feature.
        """
        if self.started or self._lifecycle.waits:
            raise ConfigurationError("the scheduler is started, and its node stays as it is; do this before start()")
        self._lifecycle.rooms.append(make_hooks)
        self._acts.headers = headers

    @contextmanager
    def _swapped(
        self,
        store: Store,
        clock: Clock,
        part: Participation,
        waits: Waits,
        find_holdings: Callable[[], Holdings],
    ) -> Iterator[Lifecycle]:
        """Use another store, and nodes whose rounds the caller runs, until the block ends; for ``cronsensus.testing``.

        Raises:
            ConfigurationError: a node of this scheduler takes part, or waits for its store.
        """
        lifecycle, setup = self._lifecycle, self._setup
        if not self._opened.is_swapped and (not lifecycle.part.is_over or lifecycle.waits):
            raise ConfigurationError("this scheduler is started; test it before start(), or after stop()")
        kept = lifecycle.part, lifecycle.on_declared, setup.given_clock
        with self._opened.swapped(store, waits, find_holdings):
            # No alert watches here: its messages would be sent.
            lifecycle.part, lifecycle.on_declared, setup.given_clock = part, lambda *_: None, clock
            try:
                yield lifecycle
            finally:
                lifecycle.part, lifecycle.on_declared, setup.given_clock = kept
                setup.forget_release()

    # --- settings and the store --------------------------------------------------------------------------------------

    def configure(self, flags: Mapping[str, object]) -> None:
        """Override all other settings with a command's flags, before the start.

        Raises:
            InvalidOption: an unknown or impossible setting.
            ConfigurationError: the scheduler is started.
        """
        with self._opened.lock:
            if self.started or self._lifecycle.waits:
                raise ConfigurationError("the scheduler is started, its settings stand; configure it before start()")
            settings = load_settings(flags, self._arguments)
            self._opened.move(settings)
            self._setup.settings = settings
            policies = self._defaults.over(Policies(keep=settings.keep))
            if settings.source("keep") == "flag":
                policies = dataclasses.replace(policies, keep=settings.keep)
            self._declared.set_base(policies, settings.tz)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._setup.settings

    @property
    def store(self) -> Store:
        """The store, opened at first use; ``store.migrate()`` makes a new store usable."""
        return self._opened.store

    @property
    def node_name(self) -> str:
        """The node's name for people; host name and pid if none was given."""
        return self._setup.node_name

    @property
    def release(self) -> str:
        """The release under which this process declares its jobs; the same from start to stop."""
        return self._setup.release

    @property
    def alerts(self) -> Alerts | None:
        """The alerts; ``None``: there are none."""
        return self._alerts

    # --- jobs --------------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, Job[..., Any]]:
        """By name, the jobs that this process declares, and those that it added at run time and did not remove."""
        return self._definitions.jobs

    @property
    def declared(self) -> Declarations:
        """What this process's code declares."""
        return self._declared

    @_Of(lambda self: self._definitions.job)
    def job(self) -> None: ...
    @_Of(lambda self: self._definitions.function)
    def function(self) -> None: ...
    @_Of(lambda self: self._definitions.add_job)
    def add_job(self) -> None: ...
    @_Of(lambda self: self._definitions.aadd_job)
    def aadd_job(self) -> None: ...
    @_Of(lambda self: self._definitions.change_job)
    def change_job(self) -> None: ...
    @_Of(lambda self: self._definitions.achange_job)
    def achange_job(self) -> None: ...
    @_Of(lambda self: self._definitions.remove_job)
    def remove_job(self) -> None: ...
    @_Of(lambda self: self._definitions.aremove_job)
    def aremove_job(self) -> None: ...
    @_Of(lambda self: self._definitions.retired)
    def retired(self) -> None: ...
    @_Of(lambda self: self._definitions.define)
    def define(self) -> None: ...
    @_Of(lambda self: self._definitions.adefine)
    def adefine(self) -> None: ...

    @_Of(lambda self: self._operations.enqueue)
    def enqueue(self) -> None: ...
    @_Of(lambda self: self._operations.aenqueue)
    def aenqueue(self) -> None: ...
    @_Of(lambda self: self._operations.options)
    def options(self) -> None: ...
    @_Of(lambda self: self._operations.call)
    def call(self) -> None: ...
    @_Of(lambda self: self._operations.enqueue_many)
    def enqueue_many(self) -> None: ...
    @_Of(lambda self: self._operations.aenqueue_many)
    def aenqueue_many(self) -> None: ...
    @_Of(lambda self: self._operations.enqueue_in)
    def enqueue_in(self) -> None: ...
    @_Of(lambda self: self._operations.aenqueue_in)
    def aenqueue_in(self) -> None: ...
    @_Of(lambda self: self._operations.enqueue_many_in)
    def enqueue_many_in(self) -> None: ...
    @_Of(lambda self: self._operations.aenqueue_many_in)
    def aenqueue_many_in(self) -> None: ...
    @_Of(lambda self: self._operations.find)
    def find(self) -> None: ...
    @_Of(lambda self: self._operations.afind)
    def afind(self) -> None: ...
    @_Of(lambda self: self._runs.runs)
    def runs(self) -> None: ...
    @_Of(lambda self: self._runs.aruns)
    def aruns(self) -> None: ...

    @_Of(lambda self: self._operations.enqueue_batch)
    def enqueue_batch(self) -> None: ...
    @_Of(lambda self: self._operations.aenqueue_batch)
    def aenqueue_batch(self) -> None: ...

    @_Of(lambda self: self._operations.rewind)
    def rewind(self) -> None: ...
    @_Of(lambda self: self._operations.arewind)
    def arewind(self) -> None: ...
    @_Of(lambda self: self._operations.pause)
    def pause(self) -> None: ...
    @_Of(lambda self: self._operations.apause)
    def apause(self) -> None: ...
    @_Of(lambda self: self._operations.resume)
    def resume(self) -> None: ...
    @_Of(lambda self: self._operations.aresume)
    def aresume(self) -> None: ...
    @_Of(lambda self: self._operations.trigger)
    def trigger(self) -> None: ...
    @_Of(lambda self: self._operations.atrigger)
    def atrigger(self) -> None: ...
    @_Of(lambda self: self._operations.backfill)
    def backfill(self) -> None: ...
    @_Of(lambda self: self._operations.abackfill)
    def abackfill(self) -> None: ...
    @_Of(lambda self: self._operations.cancel)
    def cancel(self) -> None: ...
    @_Of(lambda self: self._operations.acancel)
    def acancel(self) -> None: ...
    @_Of(lambda self: self._operations.retry)
    def retry(self) -> None: ...
    @_Of(lambda self: self._operations.aretry)
    def aretry(self) -> None: ...
    @_Of(lambda self: self._operations.break_lock)
    def break_lock(self) -> None: ...
    @_Of(lambda self: self._operations.abreak_lock)
    def abreak_lock(self) -> None: ...

    # --- functions that are no jobs, and locks -----------------------------------------------------------------------

    @_Of(lambda self: self._guards.once)
    def once(self) -> None: ...
    @_Of(lambda self: self._guards.once_per)
    def once_per(self) -> None: ...
    @_Of(lambda self: self._startups.startup)
    def startup(self) -> None: ...
    @_Of(lambda self: self._startups.run_startup)
    def run_startup(self) -> None: ...
    @_Of(lambda self: self._startups.arun_startup)
    def arun_startup(self) -> None: ...

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = "30s",
        limit: int = 1,
        renew: bool = True,
        blocking: bool = True,
        blocking_timeout: Duration | None = None,
        **unknown: Never,
    ) -> Lock:
        """Return a named lock in this scheduler's store: ``with scheduler.lock("reindex") as lease:``.

        The scheduler need not be started. See ``Lock`` for the options and for what a lock cannot do.

        Raises:
            InvalidOption, InvalidDuration: an unknown or impossible option.
        """
        from cronsensus.lock import Lock

        return Lock(
            self._opened.lock_backend,
            name,
            ttl=ttl,
            limit=limit,
            renew=renew,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            **unknown,
        )

    # --- events ------------------------------------------------------------------------------------------------------

    @_Of(lambda self: self._subscriptions.on)
    def on(self) -> None: ...
    @_Of(lambda self: self._subscriptions.off)
    def off(self) -> None: ...

    @property
    def events_dropped(self) -> int:
        """How many events were dropped so far, because subscribers did not keep up."""
        return self._bus.dropped

    # --- taking part -------------------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether a node of this scheduler takes part."""
        return self._lifecycle.started

    @property
    def decides(self) -> bool:
        """Whether a node of this scheduler takes part, and its last decisions were on time."""
        return self._lifecycle.decides

    @property
    def is_stuck(self) -> bool:
        """Whether each slot of this node has been held for a minute by a run past its ``timeout``, or else ``slow``.

        A run of a job without both never counts. For liveness probes: a restart frees the slots.
        """
        return self._lifecycle.is_stuck

    @property
    def stats(self) -> NodeStats | None:
        """What the node has done since it started; ``None``: there is none."""
        node = self._part.node
        return None if node is None else node.stats

    @_Of(lambda self: self._lifecycle.start)
    def start(self) -> None: ...
    @_Of(lambda self: self._lifecycle.astart)
    def astart(self) -> None: ...
    @_Of(lambda self: self._lifecycle.stop)
    def stop(self) -> None: ...
    @_Of(lambda self: self._lifecycle.astop)
    def astop(self) -> None: ...
    @_Of(lambda self: self._lifecycle.run)
    def run(self) -> None: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except CronsensusError:
            raise
        except BaseException:  # out of a signal handler, before its first line
            self._part.stop(timedelta(0))
            raise

    async def __aenter__(self) -> Self:
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    def __repr__(self) -> str:
        state = " started" if self.started else " waits for its store" if self._lifecycle.waits else ""
        return f"<Scheduler {mask(self.settings.url)} jobs={len(self.jobs)}{state}>"


def _require_defaults(given: object) -> JobDefaults:
    if given is None:
        return JobDefaults()
    if isinstance(given, JobDefaults):
        return given
    raise InvalidOption(f"defaults={given!r} cannot be used; write defaults=JobDefaults(timeout='10m', …)")
