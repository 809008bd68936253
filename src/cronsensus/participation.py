"""Taking part: one node of this process, from start to stop, whatever ends the process in between. Floor 5.

::

    start ──▶ node turns ──▶ signal, operator's drain, or stop() ──▶ drain ──▶ session closed
                 │
                 ├── the node cannot go on: it is stopped, run() raises
                 ├── interpreter exit: runs are given back, the session is closed, nobody waits
                 └── fork: the node stays the parent's; the child has no threads and must not touch the session

A stop is whole: what a signal handler raises on the main thread meanwhile (Ctrl-C) cuts the drain short, and is raised
when the session is closed. A second ``stop`` waits for the first, and cuts its drain short when its own time is up. A
job that calls ``stop`` is itself a part of what that waits for, so there the stop goes on in the background.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING

from cronsensus.durations import format_duration
from cronsensus.errors import ConfigurationError, NodeFailed, StillRunning
from cronsensus.interrupts import Event
from cronsensus.logger import Logger
from cronsensus.signals import StopSignals

if TYPE_CHECKING:
    import asyncio

    from cronsensus.node.node import Node

_AT_EXIT = 20.0
"""Seconds that the interpreter's end waits for a stop that is under way."""
_MOST_INTERRUPTIONS = 3
_CALL_OFF_AGAIN = 0.05
"""Seconds between two words to a start that is to wait no longer."""
_log = Logger("cronsensus.scheduler")

NewNode = Callable[["asyncio.AbstractEventLoop | None", Callable[[], None]], "Node"]
"""Makes a node for the application's loop (or none), which calls back when it is drained."""


class Participation:
    """At most one node at a time."""

    def __init__(self, new_node: NewNode, left: Callable[[], None], call_off: Callable[[], None]) -> None:
        """Make one that calls ``left`` when a node has been stopped, and ``call_off`` to end a start that waits."""
        self._new_node = new_node
        self._left = left
        self._call_off = call_off
        self._asked: Callable[[], bool] = _never
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drained: Callable[[], None] = _nothing
        self._stopping: _Stopping | None = None
        self._failed: str | None = None
        self._of_the_parent = False

    @property
    def node(self) -> Node | None:
        """The node, while started."""
        return self._node

    @property
    def over(self) -> bool:
        """Whether there is no node, nor one that is being stopped."""
        return self._node is None and self._stopping is None

    def start(self, loop: asyncio.AbstractEventLoop | None, drained: Callable[[], None] | None = None) -> bool:
        """Start a node; ``False`` in a process that only runs a job of another, where its module is imported once more.

        Raises:
            ConfigurationError: there is one already, here or in the parent of this forked process.
            StoreError: the store cannot be used; nothing was started.
        """
        from cronsensus.node.executors.importing import in_child_process

        if in_child_process() or _is_being_spawned():
            _log.debug("not started: this process is a child of one that takes part, and imports its module once more")
            return False
        if (stopping := self._stopping) is not None:
            stopping.done.wait()
        with self._lock:
            if self._of_the_parent:
                raise ConfigurationError(
                    "this scheduler was started before the process was forked, and the node is the parent's; start "
                    "it in each child instead (gunicorn: in post_worker_init, and nowhere at import)"
                )
            if self._node is not None:
                raise ConfigurationError("this scheduler is started already; stop() it before starting it again")
            self._drained, self._failed = drained or _nothing, None
            node = self._new_node(loop, self._drained)
            try:
                node.start()
                self._node, self._loop = node, loop
                atexit.register(self._at_exit)
            except BaseException:
                self._node = None
                node.close()
                raise
        _log.info("taking part as session %s", node.session)
        if (master := _master()) is not None:
            _log.warning(
                "started in %s, which forks its workers later: this process runs all jobs, and the workers none; "
                "start the scheduler in each worker (gunicorn: in post_worker_init of gunicorn.conf.py, and stop it in "
                "worker_exit; uWSGI: in a function with @postfork, or lazy-apps)", master,
            )  # fmt: skip
        return True

    async def astart(self) -> None:
        """Start a node whose async jobs run on the running loop."""
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.start, asyncio.get_running_loop()))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be recalled; a node that nobody knows of must not stay behind.
            while not starting.done():  # it may not have come to where it waits
                self._call_off()
                await asyncio.wait([starting], timeout=_CALL_OFF_AGAIN)
            if starting.exception() is None and starting.result():
                await asyncio.to_thread(self.stop, timedelta(0))
            raise

    def is_asked_to_stop(self) -> bool:
        """Whether a signal has asked this process to stop, although it may not have started yet."""
        return self._asked()

    def stop(self, drain: timedelta) -> bool:
        """Stop the node, if there is one; return whether everything ended in time."""
        while not self._lock.acquire(timeout=_CALL_OFF_AGAIN):
            self._call_off()  # a start holds it, which may wait for another worker
        try:
            node, stopping = self._node, self._stopping
            inside = self._is_inside(stopping.node if stopping is not None else node)
            if not inside:
                self._refuse_on_its_loop()
            first = node is not None
            if node is not None:
                self._node, stopping = None, _Stopping(node)
                self._stopping = stopping
        finally:
            self._lock.release()
        if stopping is None:
            return True
        if not first:
            return not inside and stopping.wait(drain)
        if not inside and threading.current_thread() is not threading.main_thread():
            self._finish(stopping, drain)
        else:
            thread = threading.Thread(target=self._finish, args=(stopping, drain), name="cronsensus-stop", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is at its end
                self._finish(stopping, drain)
        if inside:
            _log.info("a job stops this node: it takes nothing new, and leaves when what runs has ended")
            return False
        return stopping.wait(None)

    def node_failed(self) -> None:
        """Stop a node that cannot go on; its own thread calls this."""
        with self._lock:
            node = self._node
            self._failed = node.failed if node is not None else None
        if node is not None:
            self.stop(timedelta(0))

    def _finish(self, stopping: _Stopping, drain: timedelta) -> None:
        try:
            stopping.ended = stopping.node.stop(drain)
            _log.info("left, %s", "and everything had ended" if stopping.ended else "giving back what still ran")
        except BaseException as error:  # noqa: BLE001 - raised by those who wait
            stopping.error = error
        finally:
            atexit.unregister(self._at_exit)
            with self._lock:
                self._stopping = None
            self._left()
            stopping.done.set()
            self._drained()

    def run(self, drain: timedelta) -> bool:
        """Start, wait for a reason to stop, drain, stop; return whether everything ended in time."""
        process = os.getpid()
        with StopSignals() as signals:
            self._asked = signals.asked
            try:
                if not self.start(None, signals.tell):
                    return True
            except StillRunning as error:
                if not signals.asked():
                    raise
                _log.info("%s", error)
                return True
            finally:
                self._asked = _never
            node = self._node
            ended = True
            try:
                number = signals.wait()
                if number is not None and node is not None:
                    _log.info(
                        "%s: taking nothing new, running jobs have %s; once more to leave at once",
                        number.name, format_duration(drain),
                    )  # fmt: skip
                    node.drain()
                    number = signals.wait(drain.total_seconds())
                    if number is not None:
                        _log.warning("%s again: leaving at once", number.name)
            finally:
                if process == os.getpid():
                    ended = self.stop(timedelta(0))
        if self._failed is not None:
            raise NodeFailed(f"this node could not go on, and has ended: {self._failed}")
        return ended

    def forked(self) -> None:
        """Forget the parent's node; called in the child right after the fork, when no other thread exists."""
        self._lock = threading.Lock()
        self._of_the_parent = self._of_the_parent or self._node is not None
        left_to_the_parent.append((self._node, self._stopping, self._drained))
        self._node, self._loop, self._drained, self._stopping = None, None, _nothing, None
        atexit.unregister(self._at_exit)

    def _is_inside(self, node: Node | None) -> bool:
        """Whether this is code of a run of ``node``."""
        from cronsensus.node.run import current_run

        return node is not None and node.runs(current_run())

    def _refuse_on_its_loop(self) -> None:
        loop, asyncio = self._loop, sys.modules.get("asyncio")
        if self._node is not None and loop is not None and asyncio is not None and asyncio._get_running_loop() is loop:  # noqa: SLF001
            raise ConfigurationError(
                "stop() here would block the event loop on which the async jobs are to end; await astop()"
            )

    def _at_exit(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            if node.conductor.holding:
                _log.warning("the interpreter exits while jobs run: they are given back; call stop() to let them end")
            node.stop(timedelta(0))
        elif (stopping := self._stopping) is not None:
            stopping.node.hurry()
            stopping.done.wait(_AT_EXIT)


class _Stopping:
    """One stop of a node, which several may wait for."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.done = Event()
        self.ended = False
        self.error: BaseException | None = None

    def wait(self, drain: timedelta | None) -> bool:
        """Wait until it is done, with no drain after ``drain``; return whether everything ended in time."""
        raised: BaseException | None = None
        for _ in range(_MOST_INTERRUPTIONS):
            try:
                if not self.done.wait(None if drain is None or raised is not None else drain.total_seconds()):
                    self.node.hurry()
                    self.done.wait()
                break
            except BaseException as error:  # noqa: BLE001 - a signal handler's; raised below
                raised = raised or error
                self.node.hurry()
        if raised is not None:
            raise raised
        if self.error is not None:
            raise self.error
        return self.ended


def _master() -> str | None:
    """Return which server's master imports the application here, to fork its workers later; ``None``: none does."""
    if "gunicorn.arbiter" in sys.modules:
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - a worker has the arbiter's module too; only the calls tell
        calls: list[tuple[str, str]] = []
        while frame is not None:
            calls.append((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
            frame = frame.f_back
        arbiter = [name for module, name in calls if module == "gunicorn.arbiter"]
        if "setup" in arbiter and "spawn_worker" not in arbiter:
            return "gunicorn's master (--preload)"
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and getattr(uwsgi, "worker_id", lambda: 1)() == 0:
        return "uWSGI's master"
    return None


def _is_being_spawned() -> bool:
    """Whether ``multiprocessing`` imports the parent's modules here, before the child does what it is there for.

    A module that starts its scheduler at import would make a node of each child.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))


left_to_the_parent: list[object] = []
"""What a fork brought into this process and only the parent may close: connections, threads' locks."""


def on_fork(in_child: Callable[[], None]) -> None:
    """Call ``in_child`` in every forked child, where the platform forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)


def _never() -> bool:
    return False


def _nothing() -> None:
    """Do nothing."""
