"""A pool of a few connections for many threads; none of them is carried across a fork.

An SQLite connection that is carried into a child process breaks the file's locks there, and so does one that the child
opens while the parent had one open: the library keeps its locks in memory that the child inherits. So before a fork
every idle connection is closed, transactions under way are given a moment to end, and the child forgets the rest
without closing it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from cronsensus.errors import StoreUnavailable
from cronsensus.process.interrupts import Condition
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores.sql.connection import Connection

MOST_IDLE_CONNECTIONS = 4
FORK_PATIENCE = 1.0
"""Seconds that a fork waits for transactions under way."""

_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_forking = threading.Lock()
_abandoned: list[Connection] = []
"""Connections of a parent process: closing them here would release locks that the parent relies on."""


class _Opening:
    """A connection that is being opened."""


class Connections:
    """A stack of idle connections; the one used last is used next. Safe to share between threads.

    Connections in use are referred to weakly: one that a thread loses, because a signal handler raises in it, counts as
    in use no more.

    Attributes:
        under_way: those with a transaction that a thread has begun and not ended, by the thread's number.
    """

    def __init__(self, connect: Callable[[], Connection], *, where: str) -> None:
        """Keep connections that ``connect`` makes; ``where`` names the store in errors."""
        self._connect = connect
        self._where = where
        self._changed = Condition()
        self._idle: list[Connection] = []
        self._used: weakref.WeakSet[Connection | _Opening] = weakref.WeakSet()
        self._pid = os.getpid()
        self._closed = False
        self.under_way: dict[int, Connection] = {}
        _all.add(self)

    def acquire_connection(self) -> Connection:
        """Return a connection for this thread alone, until ``release_connection`` or ``throw_away``.

        Raises:
            StoreUnavailable: the store was closed.
        """
        if os.getpid() != self._pid:
            self.after_fork_in_child()
        opening = _Opening()
        with self._changed:
            if self._closed:
                raise StoreUnavailable(
                    f"this handle on {self._where} was closed; open the store again with open_store()"
                )
            if self._idle:
                connection = self._idle.pop()
                self._used.add(connection)
                return connection
            self._used.add(opening)
        try:
            connection = self._connect()
            self._used.add(connection)
            return connection
        finally:
            self._end_use(opening)

    def release_connection(self, connection: Connection) -> None:
        """Keep a connection that is known to be in order, or close it if enough are idle."""
        with self._changed:
            self._used.discard(connection)
            keep = not self._closed and len(self._idle) < MOST_IDLE_CONNECTIONS
            if keep:
                self._idle.append(connection)
            self._changed.notify_all()
        if not keep:
            connection.close()

    def throw_away(self, connection: Connection) -> None:
        """Close a connection whose state is in doubt; it may be closed already."""
        try:
            connection.close()
        finally:
            self._end_use(connection)

    @property
    def in_use(self) -> int:
        """Return how many are in use, or being opened; a fork waits for them."""
        with self._changed:
            return len(self._used)

    def forget_idle(self) -> None:
        """Close the idle connections; the next use opens anew."""
        with self._changed:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and those in use once they come back. Idempotent."""
        with self._changed:
            self._closed = True
        self.forget_idle()

    def _end_use(self, of: Connection | _Opening) -> None:
        with self._changed:
            self._used.discard(of)
            self._changed.notify_all()

    # --- forks --------------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Have no connection open while the process is copied, and let no thread open one until it is."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._used, timeout=FORK_PATIENCE)
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Start with a free lock and without the parent's connections."""
        _abandoned.extend((*self._idle, *self.under_way.values()))
        self.under_way.clear()
        self._changed = Condition()
        self._idle = []
        self._used = weakref.WeakSet()
        self._pid = os.getpid()


_at_fork: list[Connections] = []


def _before_fork() -> None:
    _forking.acquire()
    _at_fork[:] = list(_all)
    for connections in _at_fork:
        connections.before_fork()


def _in_parent() -> None:
    for connections in _at_fork:
        connections.after_fork_in_parent()
    _at_fork.clear()
    _forking.release()


def _in_child() -> None:
    global _forking  # noqa: PLW0603 - the parent's thread that holds it does not exist here
    for connections in _at_fork:
        connections.after_fork_in_child()
    _at_fork.clear()
    _forking = threading.Lock()


call_after_fork(_in_child, before=_before_fork, in_parent=_in_parent)
