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
import select
import threading
import weakref
from pathlib import Path

from cronsensus.stores.boot import HostClock
from cronsensus.stores.sql.sqlite.pipes import NAMELESS, SUPPORTED, directory_of, make_pipe, open_to_listen, tell
from cronsensus.stores.wait_queues import WaitQueues

_STEADY = HostClock()
_all: weakref.WeakSet[PipeQueues] = weakref.WeakSet()


class PipeQueues(WaitQueues):
    """One process's places in the wait queues. Without named pipes it receives nothing."""

    def __init__(self, database: Path, namespace: str) -> None:
        """Wait for locks of a namespace; nothing is made before the first ``join``."""
        super().__init__()
        self._database = database
        self._directory = directory_of(database)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._places: dict[str, tuple[Path, int]] = {}
        self._poke: tuple[int, int] | None = None
        _all.add(self)

    def join(self, name: str) -> None:
        """Join the queue."""
        with self._lock:
            if self._closed.is_set() or not SUPPORTED or self._is_queued(name):
                return
            self._forget(name)
            with contextlib.suppress(OSError):  # then the waiter polls
                self._places[name] = self._make(name)
                self._wake()

    def leave(self, name: str) -> None:
        """Leave the queue."""
        with self._lock:
            self._forget(name)

    def receive(self, timeout: float) -> list[str]:
        """Wait until a pipe is written to."""
        with self._lock:
            if self._closed.is_set() or not SUPPORTED:
                return []
            if self._poke is None:
                self._poke = os.pipe()
                for end in self._poke:
                    os.set_blocking(end, False)
            poke = self._poke[0]
            pipes = {pipe: name for name, (_, pipe) in self._places.items()}
        poll = select.poll()
        poll.register(poke, select.POLLIN)
        for pipe in pipes:
            poll.register(pipe, select.POLLIN)
        ready = [file for file, _ in poll.poll(max(0.0, timeout) * 1000)]
        with self._lock:
            told = [name for pipe, name in pipes.items() if pipe in ready and self._holds(name, pipe)]
            for name in told:
                self._forget(name)
            if poke in ready:
                with contextlib.suppress(OSError):
                    os.read(poke, 4096)
            if self._closed.is_set():
                self._let_go()
            return told

    def close(self) -> None:
        """Leave all queues."""
        with self._lock:
            self._closed.set()
            for name in list(self._places):
                self._forget(name)
            self._wake()

    # --- pipes --------------------------------------------------------------------------------------------------------

    def _make(self, name: str) -> tuple[Path, int]:
        since = round(_STEADY.monotonic() * 1_000_000)
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

    def _wake(self) -> None:
        """End the poll of the thread in ``receive``, which has another set of pipes than there is now."""
        if self._poke is not None:
            with contextlib.suppress(OSError):
                os.write(self._poke[1], b"!")

    def _let_go(self) -> None:
        poke, self._poke = self._poke, None
        for end in poke or ():
            os.close(end)

    def _forked(self) -> None:
        """In a forked child: close the copies of the parent's pipes, or they would be read after its death."""
        self._lock = threading.Lock()
        for _, pipe in self._places.values():
            os.close(pipe)
        self._places = {}
        self._let_go()


def wake_next(database: Path, namespace: str, name: str) -> None:
    """Notify the process that has waited longest for a lock. Never raises, never waits.

    Safe when two do so at the same instant: only one of them can rename a pipe, and it alone writes to it.
    """
    if not SUPPORTED:
        return
    prefix, directory = prefix_of(namespace, name), directory_of(database)
    with contextlib.suppress(OSError):
        for found in sorted(directory.glob(prefix + "*")):
            called = directory / (NAMELESS + found.name)
            with contextlib.suppress(OSError):
                found.rename(called)
                told = tell(called)
                called.unlink(missing_ok=True)
                if told:
                    return


def _in_child() -> None:
    for queues in list(_all):
        queues._forked()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def prefix_of(namespace: str, name: str) -> str:
    """Return how the pipes of a lock begin; names may hold any character, a file name may not."""
    return "q" + hashlib.blake2b(f"{namespace}\0{name}".encode(), digest_size=12).hexdigest() + "-"
