"""Wait queues of locks, between processes on one host: a named pipe for each process and lock.

::

    jobs.db-wake/  q3f9c…-00000041c7a2f3b0-4711-5f0e…   lock, since when (the host's steady clock), pid

The pipe is the place in the queue. An unlock renames the oldest pipe, which takes it out of the queue, and writes to
it. A pipe without a reader was left by a dead process, so the next one is written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import weakref
from pathlib import Path

from cronsensus.process.this_process import call_after_fork
from cronsensus.stores.poller import Poller
from cronsensus.stores.sql.sqlite.pipes import (
    NAMELESS,
    SUPPORTED,
    directory_of,
    make_pipe,
    open_to_listen,
    write_notification,
)
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import SystemClock

_CLOCK = SystemClock()
_all: weakref.WeakSet[PipeQueues] = weakref.WeakSet()


class PipeQueues(WaitQueues):
    """One process's places in the wait queues. Without named pipes it receives nothing."""

    def __init__(self, database: Path, namespace: str) -> None:
        """Wait for locks of a namespace; nothing is made before the first ``join_queue``."""
        super().__init__()
        self._database = database
        self._directory = directory_of(database)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._places: dict[str, tuple[Path, int]] = {}
        self._poller = Poller(lambda: None)
        _all.add(self)

    def join_queue(self, name: str) -> None:
        """Join the queue."""
        with self._lock:
            if self._poller.is_closed() or not SUPPORTED or self._is_queued(name):
                return
            self._forget(name)
            with contextlib.suppress(OSError):  # then the waiter polls
                self._places[name] = self._make(name)
                self._poller.wake()  # the thread in ``receive`` waits for other pipes than there are now

    def leave_queue(self, name: str) -> None:
        """Leave the queue."""
        with self._lock:
            self._forget(name)

    def receive(self, timeout: float) -> list[str]:
        """Wait until a pipe is written to."""
        if self._poller.is_closed() or not SUPPORTED:
            return []
        until = _CLOCK.monotonic() + max(0.0, timeout)
        with self._poller:
            with self._lock:
                pipes = {pipe: name for name, (_, pipe) in self._places.items()}
            ready = self._poller.wait(pipes, until)
            with self._lock:
                names = [name for pipe, name in pipes.items() if pipe in ready and self._holds(name, pipe)]
                for name in names:
                    self._forget(name)
                return names

    def close(self) -> None:
        """Leave all queues."""
        with self._lock:
            for name in list(self._places):
                self._forget(name)
            self._poller.close()

    # --- pipes --------------------------------------------------------------------------------------------------------

    def _make(self, name: str) -> tuple[Path, int]:
        since = round(_CLOCK.monotonic() * 1_000_000)
        place = f"{prefix_of(self._namespace, name)}{since:016x}-{os.getpid()}-{secrets.token_hex(4)}"
        # Nameless until it is open, or an unlock would take it for one without a reader.
        path = make_pipe(self._database, NAMELESS + place)
        try:
            pipe = open_to_listen(path)
            return path.rename(self._directory / place), pipe
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def _is_queued(self, name: str) -> bool:
        """Whether the place is there and was not notified yet: a notification takes its name away."""
        return name in self._places and self._places[name][0].exists()

    def _holds(self, name: str, pipe: int) -> bool:
        return self._places.get(name, (None, -1))[1] == pipe

    def _forget(self, name: str) -> None:
        path, pipe = self._places.pop(name, (None, -1))
        if path is not None:
            os.close(pipe)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _forked(self) -> None:
        """In a forked child: close the copies of the parent's pipes, or they would be read after its death."""
        self._lock = threading.Lock()
        for _, pipe in self._places.values():
            os.close(pipe)
        self._places = {}
        self._poller.after_fork_in_child()


def wake_next(database: Path, namespace: str, name: str) -> None:
    """Notify the process that has waited longest for a lock. Never raises, never waits.

    Safe when two do so at the same instant: only one of them can rename a pipe, and it alone writes to it.
    """
    if not SUPPORTED:
        return
    prefix, directory = prefix_of(namespace, name), directory_of(database)
    with contextlib.suppress(OSError):
        for pipe in sorted(directory.glob(prefix + "*")):
            notified = directory / (NAMELESS + pipe.name)
            with contextlib.suppress(OSError):
                pipe.rename(notified)
                was_notified = write_notification(notified)
                notified.unlink(missing_ok=True)
                if was_notified:
                    return


def _in_child() -> None:
    for queues in list(_all):
        queues._forked()  # noqa: SLF001 - of this module


call_after_fork(_in_child)


def prefix_of(namespace: str, name: str) -> str:
    """Return how the pipes of a lock begin; names may hold any character, a file name may not."""
    return "q" + hashlib.blake2b(f"{namespace}\0{name}".encode(), digest_size=12).hexdigest() + "-"
