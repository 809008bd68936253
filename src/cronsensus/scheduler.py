"""``Scheduler``: declare jobs, take part in running them, operate them.

Nothing happens at import: no thread, no connection, no file. The store is opened when first used; a node runs between
``start`` and ``stop``.

Forks (gunicorn with ``--preload``, ``multiprocessing``): a scheduler that was not started works in the child, with a
store that the child opens for itself. One that was started stays the parent's; the child can enqueue and operate, and
cannot start it.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self

from cronsensus.clock import Clock, SystemClock
from cronsensus.config import OnStoreLoss, Settings, load_settings, misspelt
from cronsensus.definitions import Definitions
from cronsensus.durations import Duration, parse_duration
from cronsensus.errors import ConfigurationError, CronsensusError, InvalidOption
from cronsensus.interrupts import Event
from cronsensus.logger import Logger
from cronsensus.masking import mask
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobDefaults, Policies, unknown_option
from cronsensus.model.session import SessionSpec
from cronsensus.participation import Participation, Start, left_to_the_parent, on_fork
from cronsensus.retirement import tell_of_retired, warn_of_strangers
from cronsensus.starting import Tries
from cronsensus.startup.tasks import Startups
from cronsensus.stores import open_store
from cronsensus.stores.base import Store
from cronsensus.stores.connecting import connecting
from cronsensus.twins import begin_on_a_thread

if TYPE_CHECKING:
    import asyncio
    from zoneinfo import ZoneInfo

    from cronsensus.lock import Lock
    from cronsensus.lock.in_store import StoreGate
    from cronsensus.node.node import Node
    from cronsensus.once.claims import Claims

_log = Logger("cronsensus.scheduler")

_ARGUMENTS = (
    "url",
    "namespace",
    "lease",
    "concurrency",
    "node",
    "release",
    "drain_timeout",
    "fast_evidence",
    "retire_after",
    "tz",
    "on_store_loss",
)

_all: weakref.WeakSet[Scheduler] = weakref.WeakSet()


class Scheduler(Startups, Definitions):
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
        namespace: keeps applications on one store apart. Defaults to ``"default"``.
        lease: how long a node without a sign of life keeps what it runs. Defaults to 10 seconds.
        defaults: policies of jobs that do not say otherwise.
        concurrency: most runs of this node at a time. Defaults to 20.
        node: the node's name for people. Defaults to host name and pid.
        release: the version of the application's code, to which a hash of the declared jobs is added. Defaults to the
            hash alone. (``CRONSENSUS_RELEASE`` and ``--release`` are taken as they are.)
        drain_timeout: how long runs may go on when the node is told to stop. Defaults to 25 seconds, less than
            the 30 after which Kubernetes and others kill.
        fast_evidence: take a process of this host for dead as soon as it is gone. Defaults to true.
        retire_after: how long what waits of a job is kept after a release that no longer declares it. Defaults to 1
            day; 0 cancels it at once.
        tz: the time zone of ``cron`` triggers that name none. Defaults to UTC. Stored triggers always name theirs.
        on_store_loss: what to do when the store is emptied while this process uses it: ``"warn"`` (the default) says so
            and goes on in the empty one, ``"stop"`` says so and starts nothing more.
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
        retire_after: Duration | None = None,
        tz: str | ZoneInfo | None = None,
        on_store_loss: OnStoreLoss | None = None,
        clock: Clock | None = None,
        **unknown: Never,
    ) -> None:
        super().__init__()
        for name in unknown:
            raise unknown_option(name, {*_ARGUMENTS, "defaults", "clock"}, where="Scheduler")
        _refuse_connection(url)
        self._given_store = url if isinstance(url, Store) else None
        if self._given_store is not None:
            url, namespace = f"{self._given_store.capabilities.name}://", self._given_store.namespace
        given = (
            url, namespace, lease, concurrency, node, release, drain_timeout, fast_evidence, retire_after,
            tz, on_store_loss,
        )  # fmt: skip
        self._arguments = dict(zip(_ARGUMENTS, given, strict=True))
        self._defaults = _require_defaults(defaults)
        self._clock = clock
        self._lock = threading.RLock()
        self._store: Store | None = None
        self._gate: StoreGate | None = None
        self._claims: Claims | None = None
        self._opened = ("", "")
        self._crossed_a_fork = False
        self._migrated = False
        self._pause = Event()  # never set: a sleep that a signal handler may interrupt
        self._release: str | None = None
        self._part = Participation(self._prepare, self._new_node, self._left)
        self.settings: Settings
        self.configure({})
        _all.add(self)

    # --- settings and the store --------------------------------------------------------------------------------------

    def configure(self, flags: Mapping[str, object]) -> None:
        """Let a command's flags override everything else; before the start.

        Raises:
            InvalidOption: an unknown or impossible setting.
            ConfigurationError: the scheduler is started.
        """
        with self._lock:
            if self.started:
                raise ConfigurationError("the scheduler is started, its settings stand; configure it before start()")
            settings = load_settings(flags, self._arguments)
            elsewhere = (settings.url, settings.namespace) != self._opened
            if settings.source("url") == "flag" and self._given_store is not None:
                self._given_store, elsewhere = None, True
            if elsewhere:
                self._close_store()
                self._store = None
            self.settings = settings
            base = Policies(keep=settings.keep)
            policies = self._defaults.over(base)
            if settings.source("keep") == "flag":
                policies = dataclasses.replace(policies, keep=settings.keep)
            self._declared.set_base(policies, settings.tz)

    @property
    def store(self) -> Store:
        """The store, opened when first asked for; ``store.migrate()`` makes a new one usable."""
        with self._lock:
            if self._store is None:
                if self._crossed_a_fork:
                    raise ConfigurationError(
                        "the store that this scheduler was given was opened before the process was forked, and its "
                        "connections are the parent's; give the scheduler a URL, or make it in the child"
                    )
                if self._given_store is not None:
                    self._store = self._given_store
                else:
                    self._store = open_store(self.settings.url, namespace=self.settings.namespace, clock=self._clock)
                self._opened = (self.settings.url, self.settings.namespace)
                self._migrated = False
            return self._store

    def _ready(self) -> Store:
        store = self.store
        if not self._migrated:
            with connecting(self.settings.url, _log.info):
                store.migrate()
            self._migrated = True
        return store

    def _close_store(self) -> None:
        """Let go of connections. What lives in this process's memory would be lost with its handle, so that is kept."""
        self._close_gate()
        self._close_claims()
        store = self._store
        if store is None or store is self._given_store or store.capabilities.clock == "process":
            return
        self._store = None
        store.close()

    @property
    def started(self) -> bool:
        """Whether a node of this scheduler takes part."""
        return self._part.node is not None

    @property
    def node_name(self) -> str:
        """The node's name for people; host name and pid if none was given."""
        return self.settings.node or f"{os.uname().nodename}:{os.getpid()}"

    @property
    def release(self) -> str:
        """The release under which this process declares its jobs; the same from start to stop."""
        if self._release is not None:
            return self._release
        version, source = self.settings.release, self.settings.source("release")
        if version is not None and (source == "flag" or source.startswith("CRONSENSUS_")):
            return version
        digest = self._declared.digest()
        return digest if version is None else f"{version}+{digest}"

    def _who(self, by: str | None) -> str:
        return by or self.node_name

    # --- locks -------------------------------------------------------------------------------------------------------

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
            self._lock_gate,
            name,
            ttl=ttl,
            limit=limit,
            renew=renew,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            **unknown,
        )

    def _lock_gate(self) -> StoreGate:
        from cronsensus.lock.in_store import StoreGate

        with self._lock:
            if self._gate is None:
                self._gate = StoreGate(
                    self._ready(),
                    self._clock or SystemClock(),
                    name=self.node_name,
                    fast_evidence=self.settings.fast_evidence,
                    stop=self.settings.on_store_loss == "stop",
                )
            return self._gate

    def _close_gate(self) -> None:
        """Let go of what locks use, unless one is held."""
        gate = self._gate
        if gate is not None and gate.idle:
            self._gate = None
            gate.close()

    @property
    def _zone(self) -> str:
        return self.settings.tz

    # --- guarded functions -------------------------------------------------------------------------------------------

    def _claims_here(self) -> Claims:
        from cronsensus.once.claims import Claims

        with self._lock:
            if self._claims is None:
                self._claims = Claims(
                    self._ready(),
                    self._clock or SystemClock(),
                    name=self.node_name,
                    release=lambda: self.release,
                    lease=self.settings.lease,
                    fast_evidence=self.settings.fast_evidence,
                    stop=self.settings.on_store_loss == "stop",
                )
            return self._claims

    def _close_claims(self) -> None:
        """Let go of what guarded functions use, unless one runs."""
        claims = self._claims
        if claims is not None and claims.idle:
            self._claims = None
            claims.close()

    # --- taking part -------------------------------------------------------------------------------------------------

    def start(self, *, wait: Duration = 0) -> None:
        """Begin to run jobs, on threads of their own; returns at once. Brings the store's schema up to date first.

        Async jobs run on an event loop that the node makes; with ``await astart()`` or ``async with`` they run on
        yours.

        Args:
            wait: how long to try again while the store cannot be reached, such as a server that starts at the same
                time. Defaults to 0: one try.

        Raises:
            ConfigurationError: started already (``stop`` it first), or started by the parent of this forked process.
            StoreError: the store cannot be used; nothing was started.
            StillRunning: ``stop`` was called while this waited for a start-up task of another worker.
        """
        start = Start()
        try:
            for pause in (tries := Tries(parse_duration(wait, what="wait").total_seconds())):
                self._pause.wait(pause)
                with tries:
                    self._part.start(None, start=start)
        except BaseException:  # out of a signal handler, too: whoever catches it must not have a node that runs on
            self._part.undo(start)
            raise

    async def astart(self, *, wait: Duration = 0) -> None:
        """Begin to run jobs; async ones on the running event loop.

        Args:
            wait: how long to try again while the store cannot be reached, as in ``start``.

        Raises:
            ConfigurationError, StoreError: as ``start``.
        """
        import asyncio

        for pause in (tries := Tries(parse_duration(wait, what="wait").total_seconds())):
            await asyncio.sleep(pause)
            with tries:
                await self._part.astart()

    def stop(self, drain_timeout: Duration | None = None) -> bool:
        """Stop taking part: running jobs may go on for ``drain_timeout``.

        Then the rest is given back, for others to take at once. Does nothing when not started. It may be started again.

        Args:
            drain_timeout: defaults to the setting, 25 seconds if it is not set.

        A second ``stop`` waits for the first. Called by a job of this node, which would wait for itself, it returns at
        once, and the node leaves when the job and all others have ended, or their time is up.

        Returns:
            whether everything ended in time. A thread cannot be stopped from outside: a run in one is given back and
            fenced off.

        Raises:
            ConfigurationError: called on the event loop that the jobs are to end on; ``await astop()`` there.
        """
        try:
            return self._part.stop(self._drain(drain_timeout))
        except CronsensusError:
            raise
        except BaseException:  # out of a signal handler, perhaps before the stop had begun
            self._part.stop(timedelta(0))
            raise
        finally:
            self._left()

    async def astop(self, drain_timeout: Duration | None = None) -> bool:
        """Stop taking part without blocking the event loop; see ``stop``."""
        import asyncio

        # Stopping goes on when the caller is cancelled: half a stop would leave the session to die of its lease.
        return await asyncio.shield(begin_on_a_thread(self.stop, drain_timeout))

    def run(self, drain_timeout: Duration | None = None) -> bool:
        """Take part until told to stop: the whole of a worker's main program.

        SIGTERM or SIGINT drains (so does ``cronsensus nodes drain``): nothing new is taken, running jobs may go on for
        ``drain_timeout``. A second signal leaves at once, giving back what runs. A third ends the process where it
        stands. Unless the program has configured ``logging``, records of ``log_level`` and above go to standard error.

        Args:
            drain_timeout: defaults to the setting, 25 seconds if it is not set.

        Returns:
            whether everything ended in time.

        Raises:
            ConfigurationError, StoreError: as ``start``.
            NodeFailed: the node could not go on.
        """
        if not logging.getLogger().handlers:
            # This is the whole of a program, and nobody has said what becomes of its log: without this, a failing job
            # would be the only thing that one ever hears of it.
            logging.basicConfig(
                level=self.settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
            )
            jobs = len(self._jobs)
            where = self.settings.shown("url")
            _log.info("node %s, store %s, %d job%s", self.node_name, where, jobs, "" if jobs == 1 else "s")
        try:
            return self._part.run(self._drain(drain_timeout))
        finally:
            self._left()

    def _left(self) -> None:
        if self._part.over:
            self._end_watching()
        with self._lock:
            if self._part.over:
                self._release = None
                self._close_store()

    def _prepare(self, loop: asyncio.AbstractEventLoop | None, asked_to_stop: Callable[[], bool]) -> None:
        for sentence in misspelt():
            _log.warning("%s", sentence)
        self._ready()
        self._release = None  # of a start that failed
        self._release = self.release
        self._start_up(loop, asked_to_stop)

    def _new_node(self, loop: asyncio.AbstractEventLoop | None, drained: Callable[[], None]) -> Node:
        from cronsensus.node.node import Node
        from cronsensus.node.settings import NodeSettings

        settings = self.settings
        node = NodeSettings(
            name=self.node_name,
            lease=settings.lease,
            concurrency=settings.concurrency,
            fast_evidence=settings.fast_evidence,
            stop_on_store_loss=settings.on_store_loss == "stop",
        )
        return Node(
            self._ready().sibling(),
            self._clock or SystemClock(),
            node,
            registry=self._declared.registry,
            new_session=self._new_session,
            declare=self._declare,
            loop=loop,
            on_drained=drained,
            on_failed=self._part.node_failed,
        )

    def _new_session(self) -> SessionSpec:
        from importlib.metadata import version

        from cronsensus.node.evidence import own_start
        from cronsensus.stores.boot import host_identity

        return SessionSpec(
            id=new_id(),
            node=self.node_name,
            host=host_identity(),
            pid=os.getpid(),
            pid_started=own_start(),
            release=self.release,
            concurrency=self.settings.concurrency,
            version=version("cronsensus"),
            functions=len(self._declared.registry),
        )

    def _declare(self, store: Store) -> bool:
        """Put all that the code declares; return whether it must be said again later."""
        specs = self._declared.specs()
        # A program that declares nothing, such as a console, does not mean that there is to be nothing.
        retire_after = self.settings.retire_after
        put = store.put_jobs(
            specs, release=self.release, complete=bool(specs), by=self.node_name, retire_after=retire_after
        )
        if put.superseded:
            _log.warning(
                "a newer release is running and defines %s otherwise; its definitions stand while it lives",
                _some(put.superseded),
            )
        if put.created:
            _log.info("new in the store: %s", _some(put.created))
        if put.changed:
            old = sum(one.release != self.release and not one.guest for one in store.sessions())
            rest = "" if not old else f"; their code stays the old one on {old} node{'' if old == 1 else 's'}"
            _log.info("changed for all nodes: %s%s", _some(put.changed), rest)
        tell_of_retired(store, put, retire_after)
        warn_of_strangers(store.namespace, put)
        return bool(put.superseded or put.kept)

    def _drain(self, drain_timeout: Duration | None) -> timedelta:
        return (
            self.settings.drain_timeout
            if drain_timeout is None
            else parse_duration(drain_timeout, what="drain_timeout")
        )

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

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._part.forked()
        self._release = None
        left_to_the_parent.extend((self._store, self._gate, self._claims))
        self._store = self._gate = self._claims = None
        if self._given_store is not None and self._given_store.capabilities.clock != "process":
            left_to_the_parent.append(self._given_store)
            self._crossed_a_fork = True

    def __repr__(self) -> str:
        return f"<Scheduler {mask(self.settings.url)} jobs={len(self._jobs)}{' started' if self.started else ''}>"


def _require_defaults(given: object) -> JobDefaults:
    if given is None:
        return JobDefaults()
    if isinstance(given, JobDefaults):
        return given
    raise InvalidOption(f"defaults={given!r} cannot be used; write defaults=JobDefaults(timeout='10m', …)")


def _refuse_connection(given: object) -> None:
    """Raise for a connection or a client, with the URL to write: each node needs connections of its own."""
    kind = type(given)
    url = {
        "psycopg": "postgresql://USER:PASSWORD@HOST/DATABASE",
        "asyncpg": "postgresql://USER:PASSWORD@HOST/DATABASE",
        "pymysql": "mysql://USER:PASSWORD@HOST/DATABASE",
        "sqlite3": "sqlite:///FILE",
        "redis": "redis://HOST:6379/0",
        "sqlalchemy": "",
    }.get(kind.__module__.partition(".")[0])
    if url is None:
        return
    write = repr(url) if url else "engine.url.render_as_string(hide_password=False)"
    about = getattr(getattr(given, "connection_pool", None), "connection_kwargs", None)
    if isinstance(about, dict) and about.get("host"):
        secret = ":PASSWORD@" if about.get("password") else ""
        write = repr(f"redis://{secret}{about['host']}:{about.get('port', 6379)}/{about.get('db') or 0}")
    raise InvalidOption(
        f"Scheduler({kind.__module__.partition('.')[0]}'s {kind.__name__}): a scheduler opens connections of its own, "
        f"and so takes a URL; write Scheduler({write})"
    )


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _forked() -> None:
    """Make every scheduler usable in a forked child: one thread is left, and any lock may have been another's."""
    for scheduler in list(_all):
        scheduler._forked()  # noqa: SLF001 - the same file


def _at_exit() -> None:
    """Close the stores that are still open; the nodes were stopped before, because they registered for that later."""
    for scheduler in list(_all):
        scheduler._close_store()  # noqa: SLF001 - the same file


on_fork(_forked)
atexit.register(_at_exit)
