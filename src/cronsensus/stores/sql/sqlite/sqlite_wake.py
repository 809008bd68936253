"""Wake-ups between processes on one host, without asking the database: one named pipe per listener.

::

    jobs.db-wake/  a1b2c3d4-4711-5f0e…   a pipe: its owner polls it, other handles write into it

A transaction of a user's own that enqueues notifies nobody when it commits. So a thread that waits for long also looks
at the file of the write-ahead log, four times a second: what was written there may be something new.

A pipe appears under its final name only once its owner has it open, so a pipe without a reader was left behind by a
dead process and is removed. A notification is advisory: losing one costs a node the time until its next poll.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import select
import threading
from pathlib import Path

from cronsensus.process.interrupts import Event
from cronsensus.stores.sql.sqlite.pipes import (
    NAMELESS,
    SUPPORTED,
    directory_of,
    make_pipe,
    open_to_listen,
    write_notification,
)
from cronsensus.timing.clock import SystemClock

_CLOCK = SystemClock()
_STARTING_FOR = 60.0
_BETWEEN_LOOKS = 0.25
"""Seconds between two looks at the write-ahead log, while nothing notifies."""
_MOST_LISTENERS = 256
"""Most pipes that one ``notify`` writes to."""
_UNSUPPORTED = {
    errno.EPERM,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EROFS,
    errno.EACCES,
}


class Wake:
    """The notifications of one handle. ``wait`` is for one thread at a time; ``notify`` and ``close`` for any."""

    def __init__(self, database: Path, namespace: str) -> None:
        """Use the pipes of ``database``; nothing is made before the first ``wait``."""
        self._database = database
        self._directory = directory_of(database)
        # Namespaces may hold any character; a file name may not.
        self._prefix = hashlib.blake2b(namespace.encode(), digest_size=8).hexdigest() + "-"
        self._lock = threading.Lock()
        self._closed = Event()
        self._pid = os.getpid()
        self._pipe: int | None = None
        self._name: str | None = None
        self._waiting = False
        self._log = Path(f"{database}-wal")
        self._log_seen = self._look_at_log()
        self.supported = SUPPORTED

    # --- listening ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a notification, or a write; ``True``: there was one."""
        pipe = self._begin_waiting()
        if pipe is None:
            self._closed.wait(max(0.0, timeout))
            return False
        try:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            written = self._poll(poll, max(0.0, timeout))
        finally:
            notified = self._end_waiting(pipe)
        return notified or written

    def _poll(self, poll: select.poll, timeout: float) -> bool:
        """Wait; return whether the log was written since the last wait ended."""
        until = _CLOCK.monotonic() + timeout
        try:
            while (seconds_left := until - _CLOCK.monotonic()) > _BETWEEN_LOOKS:
                if poll.poll(_BETWEEN_LOOKS * 1000):
                    return False
                if self._look_at_log() != self._log_seen:
                    return True
            poll.poll(max(0.0, seconds_left) * 1000)
            return False
        finally:
            # Before the caller looks into the database: what is written during that is a reason to look again.
            self._log_seen = self._look_at_log()

    def _look_at_log(self) -> tuple[int, int] | None:
        try:
            status = self._log.stat()
        except OSError:  # no connection is open, or was; the next one makes it
            return None
        return status.st_mtime_ns, status.st_size

    def _begin_waiting(self) -> int | None:
        self._mind_forks()
        with self._lock:
            pipe = self._listen()
            self._waiting = pipe is not None
            return pipe

    def _end_waiting(self, pipe: int) -> bool:
        """Empty the pipe; ``True`` if there was something in it. Close the pipe if the handle was closed."""
        with self._lock:
            self._waiting = False
            if self._closed.is_set():
                self._end_listening()
                return False
            notified = False
            with contextlib.suppress(BlockingIOError):
                while os.read(pipe, 4096):
                    notified = True
            return notified

    def _listen(self) -> int | None:
        """Return the pipe to read, made anew if there is none or if it was removed."""
        if self._closed.is_set() or not self.supported:
            return None
        if self._pipe is not None and self._name is not None:
            if (self._directory / self._name).exists():
                return self._pipe
            self._end_listening()
        try:
            self._make_pipe()
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                self.supported = False
        return self._pipe

    def _make_pipe(self) -> None:
        """Make a pipe and open it before it gets the name under which others look for it."""
        name = f"{self._prefix}{os.getpid()}-{secrets.token_hex(8)}"
        starting = make_pipe(self._database, NAMELESS + name)
        pipe = None
        try:
            pipe = open_to_listen(starting)
            starting.rename(self._directory / name)
        except OSError:
            if pipe is not None:
                os.close(pipe)
            starting.unlink(missing_ok=True)
            raise
        self._pipe, self._name = pipe, name
        self._remove_unfinished(os.fstat(pipe).st_mtime)

    def _remove_unfinished(self, now: float) -> None:
        """Remove pipes of processes that died between making and naming one; ``now`` is the file system's clock."""
        for path in self._directory.glob(NAMELESS + "*"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _STARTING_FOR:
                    path.unlink()

    def _end_listening(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
        if self._name is not None:
            with contextlib.suppress(OSError):
                (self._directory / self._name).unlink()
        self._pipe = self._name = None

    # --- notifying ----------------------------------------------------------------------------------------------------

    def notify(self) -> None:
        """Wake every other listener of the namespace. Never raises, never waits."""
        if not self.supported or self._closed.is_set():
            return
        with contextlib.suppress(OSError):
            # Not by glob, which takes a process that just woke twice as long.
            names = [name for name in os.listdir(self._directory) if name.startswith(self._prefix)]  # noqa: PTH208
            for name in names[:_MOST_LISTENERS]:
                if name != self._name:
                    self._notify_listener(self._directory / name)

    def _notify_listener(self, path: Path) -> None:
        """Notify one listener. A pipe without a reader has lost its owner, so it is removed."""
        with contextlib.suppress(OSError):
            if not write_notification(path):
                path.unlink(missing_ok=True)

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening and notifying; end a ``wait`` in another thread. Idempotent."""
        self._mind_forks()
        self._closed.set()
        with self._lock:
            if not self._waiting:
                self._end_listening()
            elif self._pipe is not None:
                os.write(self._pipe, b"!")  # wakes the thread that waits, which then closes the pipe

    def _mind_forks(self) -> None:
        """In a forked child: close the copy of the parent's pipe, and leave the parent's file alone."""
        if os.getpid() == self._pid:
            return
        self._lock = threading.Lock()  # a thread that holds the old one exists in the parent only
        if self._pipe is not None:
            os.close(self._pipe)
        self._pipe = self._name = None
        self._waiting = False
        self._pid = os.getpid()
