"""Start and stop a scheduler's node: wait for the store, drain, undo an interrupted start."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cronsensus.bus import Bus
from cronsensus.config import misspelt
from cronsensus.declared.declarations import Declarations
from cronsensus.errors import ConfigurationError, CronsensusError, StoreError, StoreUnavailable, UnknownJob
from cronsensus.lifecycle.participation import Participation
from cronsensus.lifecycle.retirement import (
    log_retired,
    record_meant,
    warn_of_nothing,
    warn_of_strangers,
    warn_of_twice_declared,
)
from cronsensus.lifecycle.starting import Start, Tries, may_come, without_stack
from cronsensus.lifecycle.store_wait import StoreWait
from cronsensus.model.job import JobSpec, is_internal
from cronsensus.model.session import MOST_DECLARED, SessionSpec
from cronsensus.node.loops import running_loop
from cronsensus.once.identity import identity_of
from cronsensus.opened.opened_store import OpenedStore
from cronsensus.opened.scheduler_setup import Setup
from cronsensus.process.forking import refuse_in_master
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import catch_up
from cronsensus.process.twins import start_on_a_thread
from cronsensus.startup.tasks import Startups
from cronsensus.stores.base import Store
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers.zone_rules import zone_rules_of

if TYPE_CHECKING:
    import asyncio

    from cronsensus.lifecycle.pinging import Pinging
    from cronsensus.node.hooks import HooksFactory
    from cronsensus.node.node import Node

_log = Logger("cronsensus.scheduler")

LAST_EVENTS = 2.0
"""Most seconds that a stop waits until subscribers have received the events so far."""


class Lifecycle:
    """Starts and stops the node of one scheduler.

    Attributes:
        part: this process's node, from start to stop.
    """

    def __init__(self, setup: Setup, declared: Declarations, opened: OpenedStore, startups: Startups, bus: Bus) -> None:
        """Start no node yet.

        A node runs the ``declared`` jobs, on a sibling of ``opened``, after the ``startups``; its events go to ``bus``.
        """
        self.part = Participation(self._prepare_start, self._new_node, self._close_after_stop)
        self._setup = setup
        self._declared = declared
        self._opened = opened
        self._startups = startups
        self._bus = bus
        self._pinging: Pinging | None = None
        self._pause = Event()  # never set: for pauses that a signal handler may interrupt
        self._store_wait: StoreWait | None = None
        self._warned_of_no_function = False
        self._warned_as_twice_declared: set[str] = set()
        self.rooms: list[HooksFactory] = []
        """Features that this scheduler alone has, beside those of ``rooms.py``."""
        self.on_declared: Callable[[Store, Sequence[JobSpec]], None] = lambda *_: None
        """Called when the store has the definitions of a session."""

    @property
    def started(self) -> bool:
        """Whether a node of this scheduler takes part."""
        return self.part.node is not None

    @property
    def decides(self) -> bool:
        """Whether a node of this scheduler takes part, and its last decisions were on time."""
        node = self.part.node
        return node is not None and node.decides

    @property
    def waits(self) -> bool:
        """Whether a node starts in the background, as soon as the store can be reached."""
        return self._store_wait is not None and self._store_wait.waits

    @property
    def is_stuck(self) -> bool:
        """Whether a node of this scheduler takes part, and each of its slots is held by a run that is over its time."""
        node = self.part.node
        return node is not None and node.is_stuck

    def start(self, *, wait: Duration | None = None) -> None:
        """Begin to run jobs, on threads of their own; returns at once. Brings the store's schema up to date first.

        While the store cannot be reached the node starts in the background: one ERROR says what is missing, nothing
        runs, and the node comes when the store does. If a start-up task is declared with ``wait=True``, this
        raises instead.

        Async jobs run on an event loop that the node makes; with ``await astart()`` or ``async with`` they run on
        yours.

        Args:
            wait: how long to block while the store cannot be reached, and then raise. 0: raise at once. Defaults to
                ``None``: start in the background.

        Raises:
            ConfigurationError: started already (``stop`` it first), or started by the parent of this forked process; or
                this is a server's master, which forks its workers later.
            StoreError: the store cannot be used; nothing was started. Without ``wait`` only if waiting would not help:
                a wrong password, another schema.
            StillRunning: ``stop`` was called while this waited for a start-up task of another worker.
        """
        start, tries = Start(), self._check_start(wait)
        try:
            for pause in tries:
                self._pause.wait(pause)
                with tries:
                    self.part.start(None, start=start)
        except BaseException as error:  # also of a signal handler: no node may stay behind
            self.part.undo_start(start)
            if wait is None and self._start_in_background(None, error):
                return
            if isinstance(error, StoreUnavailable):
                raise without_stack(error) from None
            raise

    async def astart(self, *, wait: Duration | None = None) -> None:
        """Begin to run jobs; async ones on the running event loop.

        Args:
            wait: how long to wait while the store cannot be reached, as in ``start``.

        Raises:
            ConfigurationError, StoreError: as ``start``.
        """
        import asyncio

        tries = self._check_start(wait)
        try:
            for pause in tries:
                await asyncio.sleep(pause)
                with tries:
                    await self.part.astart()
        except StoreError as error:
            if wait is None and self._start_in_background(asyncio.get_running_loop(), error):
                return
            if isinstance(error, StoreUnavailable):
                raise without_stack(error) from None
            raise

    def _check_start(self, wait: Duration | None) -> Tries:
        """Check that a node may be started in this process; return the tries of ``wait``."""
        catch_up()
        refuse_in_master("this scheduler", "scheduler.start()", "scheduler.stop()")
        if self.waits:
            raise ConfigurationError(
                "this scheduler is started already, and waits for its store; stop() it before starting it again"
            )
        return Tries(0.0 if wait is None else parse_duration(wait, what="wait").total_seconds())

    def _start_in_background(self, loop: asyncio.AbstractEventLoop | None, error: BaseException) -> bool:
        """Go on starting in the background, if that may help."""
        if not isinstance(error, StoreError) or not may_come(error) or self._startups.make_wait:
            return False
        start = Start()

        def attempt() -> None:
            if loop is None or not loop.is_closed():
                self.part.start(loop, start=start)

        self._store_wait = StoreWait(attempt, lambda: self.part.undo_start(start), "its node, which runs jobs", _log)
        self._store_wait.start_waiting(error)
        return True

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
            if self._store_wait is not None and self._store_wait.waits:
                self._store_wait.cancel()
            return self.part.stop(self._drain_seconds(drain_timeout))
        except CronsensusError:
            raise
        except BaseException:  # out of a signal handler, perhaps before the stop had begun
            self.part.stop(timedelta(0))
            raise
        finally:
            self._close_after_stop()

    async def astop(self, drain_timeout: Duration | None = None) -> bool:
        """Stop taking part without blocking the event loop; see ``stop``."""
        import asyncio

        # Stopping goes on when the caller is cancelled: half a stop would leave the session to die of its lease.
        return await asyncio.shield(start_on_a_thread(self.stop, drain_timeout))

    def run(self, drain_timeout: Duration | None = None, *, wait: Duration = 0) -> bool:
        """Run a node until a signal stops it: the whole main program of a worker.

        SIGTERM or SIGINT drains (so does ``cronsensus nodes drain``): nothing new is taken, running jobs may go on for
        ``drain_timeout``. A second signal leaves at once, giving back what runs. A third ends the process where it
        stands. Unless the program has configured ``logging``, records of ``log_level`` and above go to standard error.

        Args:
            drain_timeout: defaults to the setting, 25 seconds if it is not set.
            wait: how long to try again while the store cannot be reached. Defaults to 0: one try.

        Returns:
            whether everything ended in time.

        Raises:
            ConfigurationError: as ``start``; or it was called in a coroutine, whose event loop it would block.
            StoreError: the store cannot be used.
            NodeFailed: the node could not go on.
        """
        if running_loop() is not None:
            raise ConfigurationError(
                "scheduler.run() in a coroutine would block its event loop until SIGTERM; write async with scheduler: "
                "around what the program does, or await scheduler.astart()"
            )
        if not logging.getLogger().handlers:
            # This is a whole program without configured logging: otherwise a failing job would be its only output.
            logging.basicConfig(
                level=self._setup.settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
            )
            jobs = len(self._declared.specs_by_name)
            store_url = self._setup.settings.shown("url")
            _log.info("node %s, store %s, %d job%s", self._setup.node_name, store_url, jobs, "" if jobs == 1 else "s")
        try:
            return self.part.run(self._drain_seconds(drain_timeout), self._check_start(wait))
        except StoreUnavailable as error:
            raise without_stack(error) from None
        finally:
            self._close_after_stop()

    def _drain_seconds(self, drain_timeout: Duration | None) -> timedelta:
        if drain_timeout is None:
            return self._setup.settings.drain_timeout
        return parse_duration(drain_timeout, what="drain_timeout")

    def _prepare_start(self, loop: asyncio.AbstractEventLoop | None, asked_to_stop: Callable[[], bool]) -> None:
        for sentence in misspelt():
            _log.warning("%s", sentence)
        self._opened.ready()
        self._setup.keep_release()
        self._startups.start_up(loop, asked_to_stop)
        self._make_pinging()

    def _make_pinging(self) -> None:
        self._stop_pinging()  # a start that is tried again
        if (url := self._setup.settings.heartbeat_url) is not None:
            from cronsensus.lifecycle.pinging import Pinging

            self._pinging = Pinging(url, lambda: self.decides)
            self._pinging.start_pinging()

    def _stop_pinging(self) -> None:
        if self._pinging is not None:
            self._pinging.stop_pinging()

    def _close_after_stop(self) -> None:
        if self.part.is_over:
            self._startups.end_watching()
            self._stop_pinging()
        with self._opened.lock:
            if self.part.is_over:
                self._setup.forget_release()
                self._opened.close()
        if self.part.is_over:
            # Without the lock: a subscriber that this waits for may call the store.
            self._bus.close(LAST_EVENTS)

    def _new_node(
        self, loop: asyncio.AbstractEventLoop | None, drained: Callable[[], None], failed: Callable[[], None]
    ) -> Node:
        """Return a node that is not started yet.

        Args:
            loop: on which async jobs run; ``None``: one that the node makes.
            drained: called when an operator's drain is over.
            failed: called when the node cannot go on.
        """
        from cronsensus.node.node import Node
        from cronsensus.node.settings import NodeSettings

        settings = self._setup.settings
        return Node(
            self._opened.ready().sibling(),
            self._setup.clock,
            NodeSettings(
                name=self._setup.node_name,
                lease=settings.lease,
                concurrency=settings.concurrency,
                fast_evidence=settings.fast_evidence,
                stop_on_store_loss=self._setup.stops_on_store_loss,
                zone=settings.tz,
            ),
            new_session=self._new_session,
            ensure_runs=self._ensure_runs,
            loop=loop,
            on_drained=drained,
            on_failed=failed,
            heartbeat=self._opened.heartbeat(),
            **self.node_parts(),
        )

    def node_parts(self) -> dict[str, Any]:
        """Return the arguments of ``Node`` that every node of this scheduler has, whoever runs its rounds."""
        from cronsensus.rooms import ROOMS
        from cronsensus.run import Run

        return {
            "registry": self._declared.registry,
            "declare": self.declare_jobs,
            "bus": self._bus,
            "rooms": (*ROOMS, *self.rooms),
            "make_run": Run,
        }

    def _new_session(self) -> SessionSpec:
        from cronsensus.membership.session import of_this_process

        return of_this_process(
            self._setup.node_name,
            release=self._setup.release,
            concurrency=self._setup.settings.concurrency,
            functions=len(self._declared.registry),
            declares=_identify_functions(self._declared),
            rules=zone_rules_of(spec.trigger for spec in self._declared.specs()),
        )

    def declare_jobs(self, store: Store) -> bool:
        """Define all declared jobs in the store; return whether that has to be repeated later."""
        specs = self._declared.specs()
        # A program that declares nothing, such as a console, must not retire all jobs.
        retire_after = self._setup.settings.retire_after
        defined = store.define_jobs(
            specs,
            release=self._setup.release,
            complete=bool(specs),
            by=self._setup.node_name,
            retire_after=retire_after,
        )
        record_meant(store, self._declared.retired, self._setup.node_name)
        self.on_declared(store, specs)
        if defined.superseded:
            _log.warning(
                "a newer release is running and defines %s otherwise; its definitions stand while it lives",
                _some_names(defined.superseded),
            )
        if defined.created:
            _log.info("new in the store: %s", _some_names(defined.created))
        if defined.changed:
            old_nodes = sum(session.release != self._setup.release and session.is_node for session in store.sessions())
            note = (
                ""
                if not old_nodes
                else f"; their code stays the old one on {old_nodes} node{'' if old_nodes == 1 else 's'}"
            )
            _log.info("changed for all nodes: %s%s", _some_names(defined.changed), note)
        if defined.moved:
            _log.info("due at another time by the zone rules of this machine: %s", _some_names(defined.moved))
        log_retired(store, defined, retire_after)
        warn_of_strangers(store.namespace, defined)
        self._warned_as_twice_declared |= warn_of_twice_declared(store, self._warned_as_twice_declared)
        if not (defined.created or defined.changed or defined.unchanged or self._warned_of_no_function):
            self._warned_of_no_function = warn_of_nothing(store, self._declared.registry)
        return bool(defined.superseded or defined.kept)

    def _ensure_runs(self, store: Store) -> None:
        with contextlib.suppress(UnknownJob):  # a newer release has dropped it
            self.on_declared(store, self._declared.specs())


def _identify_functions(declared: Declarations) -> dict[str, str]:
    """Return the identity of the function of each declared job; of very many jobs only the first."""
    names = sorted(name for name in declared.specs_by_name if not is_internal(name))[:MOST_DECLARED]
    functions = {name: declared.function_of(name) for name in names}
    return {name: identity_of(function) for name, function in functions.items() if function is not None}


def _some_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
