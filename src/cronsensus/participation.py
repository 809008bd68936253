"""Taking part: one node of this process, from start to stop, whatever ends the process in between. Floor 5.

::

    start ──▶ node turns ──▶ signal, operator's drain, or stop() ──▶ drain ──▶ session closed
                 │
                 ├── interpreter exit: runs are given back, the session is closed, nobody waits
                 └── fork: the node stays the parent's; the child has no threads and must not touch the session
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from cronsensus.durations import format_duration
from cronsensus.errors import ConfigurationError
from cronsensus.logger import Logger
from cronsensus.signals import StopSignals

if TYPE_CHECKING:
    import asyncio

    from cronsensus.node.node import Node

_log = Logger("cronsensus.scheduler")

NewNode = Callable[["asyncio.AbstractEventLoop | None", Callable[[], None]], "Node"]
"""Makes a node for the application's loop (or none), which calls back when it is drained."""


class Participation:
    """At most one node at a time."""

    def __init__(self, new_node: NewNode) -> None:
        self._new_node = new_node
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drained: Callable[[], None] = _nothing
        self._ended = threading.Event()
        self._of_the_parent = False

    @property
    def node(self) -> Node | None:
        """The node, while started."""
        return self._node

    def start(self, loop: asyncio.AbstractEventLoop | None, drained: Callable[[], None] | None = None) -> bool:
        """Start a node; ``False`` in a process that only runs a job of another, where its module is imported once more.

        Raises:
            ConfigurationError: there is one already, here or in the parent of this forked process.
            StoreError: the store cannot be used; nothing was started.
        """
        from cronsensus.node.executors.importing import in_child_process

        if in_child_process():
            _log.debug("not started: this process runs one job of another node")
            return False
        with self._lock:
            if self._of_the_parent:
                raise ConfigurationError(
                    "this scheduler was started before the process was forked, and the node is the parent's; start "
                    "it in each child instead (gunicorn: in post_fork, or without --preload)"
                )
            if self._node is not None:
                raise ConfigurationError("this scheduler is started already; stop() it before starting it again")
            self._drained = drained or _nothing
            node = self._new_node(loop, self._drained)
            try:
                node.start()
            except BaseException:
                node.close()
                raise
            self._node, self._loop = node, loop
            self._ended.clear()
            atexit.register(self._at_exit)
            _log.info("taking part as session %s", node.session)
            return True

    async def astart(self) -> None:
        """Start a node whose async jobs run on the running loop."""
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.start, asyncio.get_running_loop()))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be recalled; a node that nobody knows of must not stay behind.
            if await starting:
                await asyncio.to_thread(self.stop, timedelta(0))
            raise

    def stop(self, drain: timedelta) -> bool:
        """Stop the node, if there is one; return whether everything ended in time."""
        self._refuse_on_its_loop()
        with self._lock:
            node, self._node = self._node, None
        if node is None:
            return True
        atexit.unregister(self._at_exit)
        try:
            ended = node.stop(drain)
            _log.info("left, %s", "and everything had ended" if ended else "giving back what still ran")
            return ended
        finally:
            self._ended.set()
            self._drained()

    def run(self, drain: timedelta) -> bool:
        """Start, wait for a reason to stop, drain, stop; return whether everything ended in time."""
        with StopSignals() as signals:
            if not self.start(None, signals.tell):
                return True
            node = self._node
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
                ended = self.stop(timedelta(0))
                # Somebody else's stop() may be what woke us; it is not over before the session is closed.
                self._ended.wait()
            return ended

    def forked(self) -> None:
        """Forget the parent's node; called in the child right after the fork, when no other thread exists."""
        self._lock = threading.Lock()
        self._of_the_parent = self._of_the_parent or self._node is not None
        left_to_the_parent.append((self._node, self._ended, self._drained))
        self._node, self._loop, self._drained, self._ended = None, None, _nothing, threading.Event()
        atexit.unregister(self._at_exit)

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


left_to_the_parent: list[object] = []
"""What a fork brought into this process and only the parent may close: connections, threads' locks."""


def on_fork(in_child: Callable[[], None]) -> None:
    """Call ``in_child`` in every forked child, where the platform forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)


def _nothing() -> None:
    """Do nothing."""
