"""``Scheduler``: declare jobs, take part in running them, operate them. Floor 5.

Nothing happens at import: no thread, no connection, no file. The store is opened when first used; a node runs between ``start``
and ``stop``.

Forks (gunicorn with ``--preload``, ``multiprocessing``): a scheduler that was not started works in the child, with a store that the
child opens for itself. One that was started stays the parent's; the child can enqueue and operate, and cannot start it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar, Unpack, cast

from cronsensus.clock import Clock, SystemClock
from cronsensus.config import UNSET, Settings, Unset, load_settings, mask, misspelt
from cronsensus.declared import Declaration, Declarations, check_arguments, declare, require_trigger
from cronsensus.errors import ConfigurationError, DuplicateJob, InvalidOption, UnknownJob
from cronsensus.functions import Function, look_at
from cronsensus.job import Job
from cronsensus.model.durations import Duration, parse_duration
from cronsensus.model.ids import new_id
from cronsensus.model.job import Executor, JobDefaults, JobSpec, Policies, PolicyOptions, unknown_option
from cronsensus.model.session import SessionSpec
from cronsensus.operations import Named, Operations
from cronsensus.participation import Participation, left_to_the_parent, on_fork
from cronsensus.stores import open_store
from cronsensus.stores.base import Store
from cronsensus.triggers import Trigger
from cronsensus.twins import twin

if TYPE_CHECKING:
    import asyncio

    from cronsensus.node.node import Node

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("cronsensus.scheduler")

_ARGUMENTS = ("url", "namespace", "lease", "concurrency", "node", "release", "drain_timeout", "fast_evidence")
_JOB_OPTIONS = {"trigger", "name", "executor", "args", "kwargs", *PolicyOptions.__annotations__}

_all: weakref.WeakSet[Scheduler] = weakref.WeakSet()


class Scheduler(Operations):
    """Jobs, the store that they are in, and, between ``start`` and ``stop``, a node that runs them.

    Start the same code on every replica: each occurrence is run by exactly one of them.

    Example:
        >>> from cronsensus import Scheduler, every
        >>> scheduler = Scheduler("memory://", lease="5s")
        >>> @scheduler.job(every("5m"), timeout="1m", retries=3)
        ... def sync_orders() -> int:
        ...     return 7
        >>> with scheduler:
        ...     sync_orders.enqueue(key="first").result("10s")
        7

    A setting that is left out comes from ``CRONSENSUS_*``, ``[tool.cronsensus]`` or the default; see ``Settings``.

    Args:
        url: ``sqlite:///cronsensus.db``, ``memory://``; or an open ``Store``, which stays the caller's to close.
        namespace: keeps applications on one store apart. Defaults to ``"default"``.
        lease: how long a node without a sign of life keeps what it runs. Defaults to 10 seconds.
        defaults: policies of jobs that do not say otherwise.
        concurrency: most runs of this node at a time. Defaults to 20.
        node: the node's name for people. Defaults to host name and pid.
        release: the version of the application's code, to which a hash of the declared jobs is added. Defaults to the hash
            alone. (``CRONSENSUS_RELEASE`` and ``--release`` are taken as they are.)
        drain_timeout: how long runs may go on when the node is told to stop. Defaults to 30 seconds.
        fast_evidence: take a process of this host for dead as soon as it is gone. Defaults to true.
        clock: for tests.

    Raises:
        InvalidOption: an unknown or impossible option.
        InvalidDuration: as it says.
    """

    def __init__(
        self,
        url: str | Store | None = None,
        *,
        namespace: str | None = None,
        lease: Duration | None = None,
        defaults: JobDefaults | None = None,
        concurrency: int | None = None,
        node: str | None = None,
        release: str | None = None,
        drain_timeout: Duration | None = None,
        fast_evidence: bool | None = None,
        clock: Clock | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            raise unknown_option(name, {*_ARGUMENTS, "defaults", "clock"}, where="Scheduler")
        self._given_store = url if isinstance(url, Store) else None
        if self._given_store is not None:
            url, namespace = f"{self._given_store.capabilities.name}://", self._given_store.namespace
        given = (url, namespace, lease, concurrency, node, release, drain_timeout, fast_evidence)
        self._arguments = dict(zip(_ARGUMENTS, given, strict=True))
        self._defaults = defaults or JobDefaults()
        self._clock = clock
        self._declared = Declarations()
        self._jobs: dict[str, Job[..., Any]] = {}
        self._added: dict[str, JobSpec] = {}
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._migrated = False
        self._release: str | None = None
        self._part = Participation(self._new_node)
        self.settings: Settings
        self.configure({})
        _all.add(self)

    # --- settings and the store -----------------------------------------------------------------------------------------

    def configure(self, flags: Mapping[str, object]) -> None:
        """Let a command's flags override everything else; before the start.

        Raises:
            InvalidOption: an unknown or impossible setting.
            ConfigurationError: the scheduler is started.
        """
        with self._lock:
            if self._part.node is not None:
                raise ConfigurationError("the scheduler is started, its settings stand; configure it before start()")
            settings = load_settings(flags, self._arguments)
            self._close_store()
            self.settings = settings
            base = Policies(keep=settings.keep)
            policies = self._defaults.over(base)
            if settings.source("keep") == "flag":
                policies = dataclasses.replace(policies, keep=settings.keep)
            self._declared.set_base(policies)
            self._release = None

    @property
    def store(self) -> Store:
        """The store, opened when first asked for. Nothing is written by that: ``store.migrate()`` makes a new one usable."""
        with self._lock:
            if self._store is None:
                if self._given_store is not None:
                    self._store = self._given_store
                else:
                    self._store = open_store(self.settings.url, namespace=self.settings.namespace, clock=self._clock)
                self._migrated = False
            return self._store

    def _ready(self) -> Store:
        store = self.store
        if not self._migrated:
            store.migrate()
            self._migrated = True
        return store

    def _close_store(self) -> None:
        """Let go of connections. What lives in this process's memory would be lost with its handle, so that is kept."""
        store = self._store
        if store is None or store is self._given_store or store.capabilities.clock == "process":
            return
        self._store = None
        store.close()

    @property
    def node_name(self) -> str:
        """The node's name for people; host name and pid if none was given."""
        return self.settings.node or f"{os.uname().nodename}:{os.getpid()}"

    @property
    def release(self) -> str:
        """The release under which this process declares its jobs; stands from the first time it is used until ``stop``."""
        with self._lock:
            if self._release is None:
                version, source = self.settings.release, self.settings.source("release")
                replaced = version is not None and (source == "flag" or source.startswith("CRONSENSUS_"))
                digest = self._declared.digest()
                self._release = cast("str", version) if replaced else f"{version}+{digest}" if version else digest
            return self._release

    def _who(self, by: str | None) -> str:
        return by or self.node_name

    # --- declaring ------------------------------------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, Job[..., Any]]:
        """The jobs that this process's code declares, by name."""
        return dict(self._jobs)

    def job(
        self,
        trigger: Trigger | None = None,
        *,
        name: str | None = None,
        executor: Executor | None = None,
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> Callable[[Callable[P, R]], Job[P, R]]:
        """Declare a job. The function stays what it was: calling it calls it.

        A parameter annotated with ``Run`` is given the run. On a started scheduler the job is put into the store at once, and counts
        as added at run time: no release declares it, and it stays until ``remove_job``.

        Args:
            trigger: when it runs by itself. ``None``: only when told to.
            name: unique in the namespace. Defaults to the function's own.
            executor: ``"async"``, ``"thread"`` or ``"process"``. Defaults to ``"async"`` for an async function, else ``"thread"``.
            args, kwargs: JSON values that each scheduled run passes.
            policies: see ``Policies``; durations may be seconds, ``timedelta``, or text like ``"15m"``.

        Raises:
            DuplicateJob: the name is taken; the message names both places.
            InvalidOption: an unknown or impossible option.
            InvalidTrigger: ``trigger`` is something else.
            InvalidPayload: arguments that are not JSON.
            UnsupportedFunction: no function, or one that the executor cannot run.
        """
        _require_job_options(policies)

        def decorate(function: Callable[P, R]) -> Job[P, R]:
            plain: Callable[P, R] = function.function if isinstance(function, Job) else function
            looked_at = look_at(plain, name=name, executor=executor)
            declaration = declare(looked_at, trigger, args, kwargs, policies)
            if self._part.node is not None:
                return self._declare_late(declaration, plain)
            with self._lock:
                self._declared.add_job(declaration)
                made = Job(looked_at.name, plain, self, lambda: self._declared.specs_by_name[looked_at.name])
                self._jobs[looked_at.name] = made
                self._release = None
            return made

        return decorate

    def function(self, *, name: str | None = None, executor: Executor | None = None) -> Callable[[F], F]:
        """Register a function for jobs that are added at run time; the function itself comes back.

        Args:
            name: what ``add_job`` calls it. Defaults to the function's own.
            executor: as for ``job``.

        Raises:
            DuplicateJob, InvalidOption, UnsupportedFunction: as ``job``.
        """

        def register(function: F) -> F:
            plain = function.function if isinstance(function, Job) else function
            with self._lock:
                self._declared.add_function(look_at(plain, name=name, executor=executor))
            return function

        return register

    # --- jobs at run time -----------------------------------------------------------------------------------------------

    def add_job(
        self,
        function: str | Named | Callable[..., Any],
        trigger: Trigger | None = None,
        *,
        name: str,
        args: tuple[Any, ...] | list[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        by: str | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> Job[..., Any]:
        """Add a job while running: a name, the name of a registered function, and JSON; every node that has the function runs it.

        Idempotent: the same definition again changes nothing.

        Args:
            function: registered here by ``function`` or ``job``: its name, the job, or the function itself.
            trigger: as for ``job``.
            name: unique in the namespace.
            args, kwargs: JSON values that each run passes, unless it was enqueued with others.
            by: who; defaults to this node's name.
            policies: as for ``job``.

        Raises:
            UnknownJob: no such function is registered here.
            DuplicateJob: the name is taken by a job with another definition.
            InvalidOption, InvalidTrigger, InvalidPayload: as ``job``.
            StoreError: the store could not do it.
        """
        _require_job_options(policies)
        found = self._find_function(function)
        given, named = check_arguments(found, require_trigger(trigger), tuple(args), kwargs or {})
        spec = JobSpec(
            name=name,
            function=found.name,
            trigger=trigger,
            args=given,
            kwargs=named,
            policies=Policies.read(dict(policies), self._declared.base),
            executor=found.registered.executor,
            source="runtime",
        )
        if name in self._declared:
            raise DuplicateJob(f"{name!r} is declared in code at {self._declared.function(name).place}; choose another name")
        view = self._ready().job(name)
        if view is not None and view.retired_at is None and view.spec.digest != spec.digest:
            raise DuplicateJob(f"there is a job {name!r} already, with another definition; use change_job, or another name")
        self._define(spec, by)
        return self._added_job(spec, found)

    aadd_job = twin(add_job)

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
        """Change what is given of a job that was added at run time; the rest stays. Nominal times already decided stay decided.

        Raises:
            UnknownJob: there is none.
            InvalidOption: it is declared in code, or an option makes no sense.
            InvalidTrigger, InvalidPayload: as ``job``.
            StoreError: the store could not do it.
        """
        _require_job_options(policies)
        old = self._runtime_spec(name, "change it there and deploy, or pause it")
        changed = dataclasses.replace(
            old,
            trigger=old.trigger if isinstance(trigger, Unset) else require_trigger(trigger),
            args=old.args if isinstance(args, Unset) else tuple(args),
            kwargs=old.kwargs if isinstance(kwargs, Unset) else dict(kwargs),
            policies=Policies.read(dict(policies), old.policies),
        )
        found = self._declared.find_function(old.function)
        if found is not None:
            given, named = check_arguments(found, changed.trigger, changed.args, changed.kwargs)
            changed = dataclasses.replace(changed, args=given, kwargs=named)
        self._define(changed, by)
        with self._lock:
            if name in self._added:
                self._added[name] = changed

    achange_job = twin(change_job)

    def remove_job(self, name: str, *, by: str | None = None, why: str = "") -> bool:
        """Retire a job that was added at run time; ``False`` when it is retired already. Its ledger stays.

        Raises:
            UnknownJob: there is none.
            InvalidOption: this process declares it in code.
            StoreError: the store could not do it.
        """
        if name in self._declared:
            raise InvalidOption(f"{name!r} is declared in code at {self._declared.function(name).place}; remove it there, or pause it")
        if self._ready().job(name) is None:
            raise UnknownJob(f"no job is called {name!r}; `cronsensus jobs list` shows those in the store")
        with self._lock:
            self._added.pop(name, None)
        return self._act(None, lambda store: store.retire(name, by=self._who(by), why=why))

    aremove_job = twin(remove_job)

    def _find_function(self, function: str | Named | Callable[..., Any]) -> Function:
        if isinstance(function, str):
            return self._declared.function(function)
        if isinstance(function, Job):
            return self._declared.function(function.spec.function)
        found = self._declared.registered_as(function)
        if found is None:
            raise UnknownJob(f"{function!r} is not registered here; put @scheduler.function() above it")
        return found

    def _runtime_spec(self, name: str, instead: str) -> JobSpec:
        view = self._ready().job(name)
        if view is None or view.retired_at is not None:
            raise UnknownJob(f"no job is called {name!r}; `cronsensus jobs list` shows those in the store")
        if view.spec.source == "code":
            raise InvalidOption(f"{name!r} is declared in code; {instead}")
        return view.spec

    def _declare_late(self, declaration: Declaration, function: Callable[P, R]) -> Job[P, R]:
        """Declare a job on a started scheduler. Other nodes of this release do not know it yet, so no release may own it."""
        spec = dataclasses.replace(declaration.spec(self._declared.base), source="runtime")
        self._declared.add_function(declaration.function)
        self._define(spec, None)
        made = self._added_job(spec, declaration.function)
        self._jobs[spec.name] = made
        return cast("Job[P, R]", made)

    def _added_job(self, spec: JobSpec, function: Function) -> Job[..., Any]:
        with self._lock:
            self._added[spec.name] = spec
        return Job(spec.name, function.registered.function, self, lambda: self._spec_here(spec.name) or spec)

    def _define(self, spec: JobSpec, by: str | None) -> None:
        store = self._ready()
        store.put_jobs([spec], release=self.release, by=self._who(by))
        store.notify()

    def _spec_here(self, job: str) -> JobSpec | None:
        return self._added.get(job) or self._declared.spec(job)

    def _known_here(self, job: str) -> JobSpec | None:
        # Not those added at run time: somebody may have removed them, and they must not come back by being used.
        return self._declared.spec(job)

    def _function_of(self, job: str) -> Function | None:
        spec = self._spec_here(job)
        return None if spec is None else self._declared.find_function(spec.function)

    # --- taking part ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to run jobs, on threads of their own; returns at once. Brings the store's schema up to date first.

        Async jobs run on an event loop that the node makes; with ``await astart()`` or ``async with`` they run on yours.

        Raises:
            ConfigurationError: started already (``stop`` it first), or started by the parent of this forked process.
            StoreError: the store cannot be used; nothing was started.
        """
        self._part.start(None)

    async def astart(self) -> None:
        """Begin to run jobs; async ones on the running event loop.

        Raises:
            ConfigurationError, StoreError: as ``start``.
        """
        await self._part.astart()

    def stop(self, drain_timeout: Duration | None = None) -> bool:
        """Stop taking part: running jobs may go on for ``drain_timeout``, then the rest is given back for others to take at once.

        Does nothing when not started. It may be started again.

        Args:
            drain_timeout: defaults to the setting, 30 seconds if nobody set it.

        Returns:
            whether everything ended in time. A thread cannot be stopped from outside: a run in one is given back and fenced off.

        Raises:
            ConfigurationError: called on the event loop that the jobs are to end on; ``await astop()`` there.
        """
        try:
            return self._part.stop(self._drain(drain_timeout))
        finally:
            with self._lock:
                self._close_store()
                self._release = None

    async def astop(self, drain_timeout: Duration | None = None) -> bool:
        """Stop taking part without blocking the event loop; see ``stop``."""
        import asyncio

        # Stopping goes on when the caller is cancelled: half a stop would leave the session to die of its lease.
        return await asyncio.shield(asyncio.to_thread(self.stop, drain_timeout))

    def run(self, drain_timeout: Duration | None = None) -> bool:
        """Take part until told to stop: the whole of a worker's main program.

        SIGTERM or SIGINT drains (so does ``cronsensus nodes drain``): nothing new is taken, running jobs may go on for
        ``drain_timeout``. A second signal leaves at once, giving back what runs. A third ends the process where it stands.

        Args:
            drain_timeout: defaults to the setting, 30 seconds if nobody set it.

        Returns:
            whether everything ended in time.

        Raises:
            ConfigurationError, StoreError: as ``start``.
        """
        try:
            return self._part.run(self._drain(drain_timeout))
        finally:
            with self._lock:
                self._close_store()
                self._release = None

    def _new_node(self, loop: asyncio.AbstractEventLoop | None, drained: Callable[[], None]) -> Node:
        from cronsensus.node.conductor import NodeSettings
        from cronsensus.node.node import Node

        for sentence in misspelt():
            _log.warning("%s", sentence)
        store, settings = self._ready(), self.settings
        node = NodeSettings(
            name=self.node_name,
            lease=settings.lease,
            concurrency=settings.concurrency,
            fast_evidence=settings.fast_evidence,
        )
        return Node(
            store.sibling(),
            self._clock or SystemClock(),
            node,
            registry=self._declared.registry,
            new_session=self._new_session,
            declare=self._declare,
            loop=loop,
            on_drained=drained,
        )

    def _new_session(self) -> SessionSpec:
        from importlib.metadata import version

        from cronsensus.node.evidence import host_identity, started_at

        return SessionSpec(
            id=new_id(),
            node=self.node_name,
            host=host_identity(),
            pid=os.getpid(),
            pid_started=started_at(os.getpid()) or 0,
            release=self.release,
            concurrency=self.settings.concurrency,
            version=version("cronsensus"),
            functions=len(self._declared.registry),
        )

    def _declare(self, store: Store) -> bool:
        """Put all that the code declares; return whether it must be said again later."""
        specs = self._declared.specs()
        # A program that declares nothing, such as a console, does not mean that there is to be nothing.
        put = store.put_jobs(specs, release=self.release, complete=bool(specs), by=self.node_name)
        if put.superseded:
            _log.warning(
                "a newer release is running and defines %s otherwise; its definitions stand while it lives", _some(put.superseded)
            )
        if put.retired:
            _log.info("retired, because no running release declares them: %s", _some(put.retired))
        return bool(put.superseded or put.kept)

    def _drain(self, drain_timeout: Duration | None) -> timedelta:
        return self.settings.drain_timeout if drain_timeout is None else parse_duration(drain_timeout, what="drain_timeout")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._part.forked()
        left_to_the_parent.append(self._store)
        self._store = None

    def __repr__(self) -> str:
        return f"<Scheduler {mask(self.settings.url)} jobs={len(self._jobs)}{' started' if self._part.node else ''}>"


def _require_job_options(policies: Mapping[str, Any]) -> None:
    for name in policies:
        if name not in _JOB_OPTIONS:
            raise unknown_option(name, _JOB_OPTIONS)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _forked() -> None:
    """Make every scheduler usable in a forked child; there is one thread now, and any lock may have been held by another."""
    for scheduler in list(_all):
        scheduler._forked()  # noqa: SLF001 - the same file


on_fork(_forked)
