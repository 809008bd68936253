"""The node of this process, from start to stop, whatever ends the process in between.

::

    start ──▶ node turns ──▶ signal, operator's drain, or stop() ──▶ drain ──▶ session closed
      │          │
      │          ├── the node cannot go on: it is stopped, run() raises
      │          ├── interpreter exit: runs are given back, the session is closed, without a wait
      │          └── fork: the node stays the parent's; the child has no threads and must not touch the session
      └── interrupted or cancelled: what was begun is stopped

A start is all or nothing. If a signal handler raises on the main thread meanwhile (Ctrl-C), the exception is raised
when the begun start is undone, or after ``PATIENCE``; the undoing then goes on by itself, as for a task that is
cancelled twice. A stop is never cut in half either: an exception meanwhile cuts the drain short, and is raised when the
session is closed. Both are done on threads where no handler raises. A second ``stop`` waits for the first, and cuts its
drain short when its own time is up. If a job calls ``stop``, the stop would wait for that job, so it goes on in the
background.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from cronsensus.errors import ConfigurationError, NodeFailed, StillRunning
from cronsensus.lifecycle.signals import StopSignals
from cronsensus.lifecycle.starting import Start, Tries
from cronsensus.lifecycle.systemd import Systemd
from cronsensus.process.background import PATIENCE, Whole
from cronsensus.process.forking import is_being_spawned, left_to_the_parent, register_for_forks
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.process.twins import start_on_a_thread
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.durations import format_duration

if TYPE_CHECKING:
    import asyncio

    from cronsensus.node.node import Node
    from cronsensus.node.run import BaseRun

T = TypeVar("T")

_EXIT_WAITS = 20.0
"""Seconds that the interpreter's exit waits for a stop that is under way."""
_MOST_INTERRUPTIONS = 3
_TOO_SOON = 5.0
"""Seconds within which a program that ends, and has run nothing, has probably not waited for its jobs."""
_clock = SystemClock()
_log = Logger("cronsensus.scheduler")

NewNode = Callable[["asyncio.AbstractEventLoop | None", Callable[[], None], Callable[[], None]], "Node"]
"""Makes a node. Takes the application's loop, and what to call when it is drained, and when it cannot go on."""
Prepare = Callable[["asyncio.AbstractEventLoop | None", Callable[[], bool]], None]
"""Runs the application's start-up tasks, before there is a node. Takes a function: should they stop waiting?"""


class Participation:
    """This process's node; at most one at a time."""

    def __init__(self, prepare: Prepare, new_node: NewNode, on_stopped: Callable[[], None]) -> None:
        """Prepare; ``on_stopped`` is called when a node has been stopped."""
        self._prepare = prepare
        self._new_node = new_node
        self._on_stopped = on_stopped
        self._asked: Callable[[], bool] = _never_asked
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drained: Callable[[], None] = _do_nothing
        self._stopping: _Stopping | None = None
        self._stops: list[object] = []
        """The callers that wait for a start to end."""
        self._start_on: dict[int, Start] = {}
        """The start that is under way, by the number of its thread."""
        self._undisturbed: dict[Whole[Any], None] = {}
        self._since = 0.0
        self._failed: str | None = None
        self._of_the_parent = False
        register_for_forks(self)

    @property
    def node(self) -> Node | None:
        """The node, while started."""
        return self._node

    @property
    def is_over(self) -> bool:
        """Whether there is no node, nor one that is being started or stopped."""
        return self._node is None and self._stopping is None and not self._start_on

    def start(
        self,
        loop: asyncio.AbstractEventLoop | None,
        drained: Callable[[], None] | None = None,
        start: Start | None = None,
    ) -> bool:
        """Start a node; ``False`` in a child process that runs a job of its parent and imports the module again.

        A caller that may be interrupted or cancelled passes a ``start``, and gives it up then.

        Raises:
            ConfigurationError: there is a node already, here or in the parent of this forked process.
            StoreError: the store cannot be used; nothing was started.
        """
        from cronsensus.node.executors.importing import in_child_process

        if in_child_process() or is_being_spawned():
            _log.debug("not started: this process is a child of one that takes part, and imports its module once more")
            return False
        start = start or Start()
        if not start.begin_start():
            return False
        try:
            if (stopping := self._stopping) is not None:
                stopping.done.wait()
            self._start_node(start, loop, drained or _do_nothing)
        finally:
            start.over.set()
        if start.is_given_up:
            self.undo_start(start)
        return True

    def _start_node(self, start: Start, loop: asyncio.AbstractEventLoop | None, drained: Callable[[], None]) -> None:
        with self._lock:
            if self._of_the_parent:
                raise ConfigurationError(
                    "this scheduler was started before the process was forked, and the node is the parent's; start "
                    "it in each child instead (gunicorn: in post_worker_init, and nowhere at import)"
                )
            if self._node is not None:
                raise ConfigurationError("this scheduler is started already; stop() it before starting it again")
            self._drained, self._failed = drained, None
            self._start_on[threading.get_ident()] = start
            try:
                # On this thread, also where a signal handler raises in it: these are the application's own functions.
                self._prepare(loop, lambda: start.is_given_up or bool(self._stops) or self._asked())
                if threading.current_thread() is threading.main_thread():
                    self._start_undisturbed(start, loop)
                else:
                    self._start_here(start, loop)
            finally:
                self._start_on.clear()

    def _start_undisturbed(self, start: Start, loop: asyncio.AbstractEventLoop | None) -> None:
        begin = Whole(lambda: self._start_here(start, loop), "cronsensus-start")
        self._undisturbed[begin] = None
        try:
            begin.start_act()
            begin.wait()
        except BaseException:
            start.give_up()
            if not begin.withdraw():
                begin.wait(PATIENCE)
            raise
        finally:
            self._undisturbed.pop(begin, None)
        begin.answer()

    def _start_here(self, start: Start, loop: asyncio.AbstractEventLoop | None) -> None:
        if start.is_given_up:
            return
        node = self._new_node(loop, self._drained, self.node_failed)
        try:
            node.start()
        except BaseException:
            node.stop()
            raise
        if not start.take_node(node):
            node.stop()
            return
        self._node, self._loop, self._since = node, loop, _clock.monotonic()
        atexit.register(self._at_exit)
        _log.info("taking part as session %s", node.session)

    def undo_start(self, start: Start, patience: float | None = PATIENCE) -> None:
        """Stop what an interrupted start has begun; after ``patience`` seconds the start does so itself."""
        start.give_up()
        if start.over.wait(patience):
            if start.node is not None and start.node is self._node:
                self.stop(timedelta(0))
            self._on_stopped()  # it also closes what start-up tasks have opened

    async def astart(self) -> None:
        """Start a node whose async jobs run on the running loop."""
        import asyncio

        start = Start()
        try:
            await asyncio.shield(start_on_a_thread(self.start, asyncio.get_running_loop(), None, start))
        except (asyncio.CancelledError, GeneratorExit) as error:
            # The thread cannot be recalled; it must not leave a running node behind, however often the task is
            # cancelled, or dropped.
            start.give_up()
            undo = Whole(lambda: self.undo_start(start, None), "cronsensus-stop")
            undo.start_act()
            if isinstance(error, asyncio.CancelledError):
                await start_on_a_thread(undo.wait)
            raise

    def stop(self, drain: timedelta) -> bool:
        """Stop the node, if there is one; return whether everything ended in time."""
        if self.is_over and not self._lock.locked():  # a start that waits for its turn is not under way yet
            return True
        if (start := self._start_on.get(threading.get_ident())) is not None:
            # A signal handler, or a start-up task, in the middle of the start, which goes on when this returns.
            start.give_up()
            return True
        caller = _Here()
        if threading.current_thread() is not threading.main_thread():
            return self._stop_node(drain, caller)
        process = os.getpid()
        stop = Whole(lambda: self._stop_node(drain, caller), "cronsensus-stop")
        self._undisturbed[stop] = None
        raised: BaseException | None = None
        for _ in range(_MOST_INTERRUPTIONS):
            try:
                if raised is not None:
                    caller.end_drain()
                stop.start_act()
                stop.wait()
                break
            except BaseException as error:  # noqa: BLE001 - a signal handler's; raised below
                raised = raised or error
        self._undisturbed.pop(stop, None)
        if raised is not None:
            raise raised
        return True if process != os.getpid() else stop.answer()

    def _stop_node(self, drain: timedelta, caller: _Here) -> bool:
        self._stops.append(caller)
        try:
            with self._lock:  # a start holds it, and waits for another worker no longer
                node, stopping = self._node, self._stopping
                inside = caller.is_in_a_run_of(stopping.node if stopping is not None else node)
                if node is not None and self._loop is not None and caller.loop is self._loop and not inside:
                    raise ConfigurationError(
                        "stop() here would block the event loop on which the async jobs are to end; await astop()"
                    )
                if node is not None:
                    self._node, self._stopping = None, _Stopping(node)
                    stopping = self._stopping
        finally:
            self._stops.remove(caller)
        if stopping is None:
            return True
        caller.waits_for(stopping.node)
        if node is None:
            return not inside and stopping.wait(drain)
        if inside:
            Whole(lambda: self._finish_stop(stopping, drain), "cronsensus-stop").start_act()
            _log.info("a job stops this node: it takes nothing new, and leaves when what runs has ended")
            return False
        self._finish_stop(stopping, drain)
        return stopping.wait(drain)

    def node_failed(self) -> None:
        """Stop a node that cannot go on; its own thread calls this."""
        with self._lock:
            node = self._node
            self._failed = node.failed if node is not None else None
        if node is not None:
            self.stop(timedelta(0))

    def _finish_stop(self, stopping: _Stopping, drain: timedelta) -> None:
        try:
            stopping.ended = stopping.node.stop(drain)
            _log.info("left, %s", "and everything had ended" if stopping.ended else "giving back what still ran")
        except BaseException as error:  # noqa: BLE001 - raised in the waiting callers
            stopping.error = error
        finally:
            atexit.unregister(self._at_exit)
            with self._lock:
                self._stopping = None
            self._on_stopped()
            stopping.done.set()
            self._drained()

    def run(self, drain: timedelta, tries: Tries) -> bool:
        """Start, wait for a reason to stop, drain, stop; return whether everything ended in time."""
        process, start, ended = os.getpid(), Start(), True
        with StopSignals() as signals:
            self._asked = signals.is_asked
            try:
                for pause in tries:
                    if signals.wait(pause) is not None:
                        return True
                    with tries:
                        started = self.start(None, signals.request_stop, start)
                if not started:
                    return True
                self._asked = _never_asked
                if start.node is not None:
                    _take_part(start.node, signals, drain)
            except StillRunning as error:
                if not signals.is_asked():
                    raise
                _log.info("%s", error)
                return True
            finally:
                self._asked = _never_asked
                if process == os.getpid() and start.node is not None:
                    ended = self.stop(timedelta(0))
        if self._failed is not None:
            raise NodeFailed(f"this node could not go on, and has ended: {self._failed}")
        return ended

    def forked(self) -> None:
        """Forget the parent's node; called in the child right after the fork, when no other thread exists."""
        self._lock = threading.Lock()
        self._of_the_parent = self._of_the_parent or self._node is not None
        left_to_the_parent.append((self._node, self._stopping, self._drained))
        self._node, self._loop, self._drained, self._stopping = None, None, _do_nothing, None
        self._stops = []
        self._start_on.clear()
        for undisturbed in self._undisturbed:
            undisturbed.forked()
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            if node.round.active_runs:
                _log.warning("the interpreter exits while jobs run: they are given back; call stop() to let them end")
            elif self._ended_too_soon(node):
                _log.warning(
                    "the program ends, and its node with it, which has run nothing: start() does not wait; write "
                    "scheduler.run() in its place, which runs jobs until SIGTERM or Ctrl-C"
                )
            node.stop(timedelta(0))
        elif (stopping := self._stopping) is not None:
            stopping.node.end_drain()
            stopping.done.wait(_EXIT_WAITS)

    def _ended_too_soon(self, node: Node) -> bool:
        # A program that ends by an exception has printed its reason.
        return (
            not node.stats.claimed
            and _clock.monotonic() - self._since < _TOO_SOON
            and getattr(sys, "last_value", None) is None
        )


def _take_part(node: Node, signals: StopSignals, drain: timedelta) -> None:
    """Wait for a reason to stop; after a signal, let what runs end."""
    with Systemd(os.environ, node.round) as systemd:
        number = signals.wait()
        if number is None:
            systemd.report_stopping()
            return
        _log.info(
            "%s: taking nothing new, running jobs have %s; once more to leave at once",
            number.name, format_duration(drain),
        )  # fmt: skip
        node.drain()
        systemd.report_stopping()
        number = signals.wait(drain.total_seconds())
        if number is not None:
            _log.warning("%s again: leaving at once", number.name)


class _Here:
    """Where ``stop`` was called, and whether its drain is to end now."""

    def __init__(self) -> None:
        from cronsensus.node.run import current_run

        aio = sys.modules.get("asyncio")
        # This function raises nothing where no loop runs.
        self.loop: asyncio.AbstractEventLoop | None = None if aio is None else aio._get_running_loop()  # noqa: SLF001
        self._run: BaseRun | None = current_run()
        self._node: Node | None = None
        self._hurries = False

    def is_in_a_run_of(self, node: Node | None) -> bool:
        """Whether it was called by code of a run of ``node``."""
        return node is not None and node.is_running(self._run)

    def waits_for(self, node: Node) -> None:
        """Note which node is stopped."""
        self._node = node
        if self._hurries:
            node.end_drain()

    def end_drain(self) -> None:
        """End the time that runs have to end."""
        self._hurries = True
        if self._node is not None:
            self._node.end_drain()


class _Stopping:
    """A stop of a node, which several callers may wait for."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.done = Event()
        self.ended = False
        self.error: BaseException | None = None

    def wait(self, drain: timedelta) -> bool:
        """Wait until it is done, with no drain after ``drain``; return whether everything ended in time."""
        if not self.done.wait(drain.total_seconds()):
            self.node.end_drain()
            self.done.wait()
        if self.error is not None:
            raise self.error
        return self.ended


def _never_asked() -> bool:
    return False


def _do_nothing() -> None:
    """Do nothing."""
