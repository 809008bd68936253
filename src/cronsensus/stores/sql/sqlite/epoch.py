"""The epoch of a SQLite database: all of its processes must share one run of the lease clock. See ADR 22.

Leases end by the host's monotonic clock. Two containers on one kernel may have boot ids or monotonic clocks of their
own; each would take the other's leases for expired, and its processes for dead. An epoch names one run of the clock.
A process is refused while a process of another epoch uses the database. Only the kernel knows that reliably: it frees
the file locks of a dead process.

::

    jobs.db-epoch   the first line is the epoch; each process that uses jobs.db holds a shared flock on this file

A process that opens the database reads the file:

- If it contains its own epoch, the process takes the shared lock, and is done.
- If not, the process takes SQLite's write lock, so that only one process does this at a time, and tries for an
  exclusive lock on the file. If it gets that, no other process is left, and it writes its own epoch. If not, a living
  process of another epoch holds the shared lock, and this process is refused.

A process holds the shared lock only while the file contains its own epoch. So a refused exclusive lock proves that the
epoch in the file is that of a living process. A process that dies in between leaves no lock, and the next process
writes the file anew.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cronsensus.errors import StoreRefused, StoreUnavailable
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores.boot import lease_epoch
from cronsensus.stores.filesystems import is_network, kind_of
from cronsensus.stores.sql.sqlite import sqlite_errors
from cronsensus.stores.sql.sqlite.pipes import share_as

try:
    import fcntl
except ImportError:  # Windows
    _HAS_FLOCK = False
else:
    _HAS_FLOCK = True

_log = Logger("cronsensus.stores")
_CANNOT_LOCK = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TEXT = re.compile(rb"([!-~]{1,64})\n")
_NOTE = "Processes that use the database beside this file hold a lock on it: leave it where it is.\n"

WriteLock = Callable[[], AbstractContextManager[object]]
"""Returns a context manager that holds the database's write lock."""


@contextmanager
def hold_write_lock(driver: sqlite3.Connection) -> Iterator[None]:
    """Hold SQLite's write lock, without writing into the database."""
    driver.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        driver.execute("ROLLBACK")


_warned: set[Path] = set()


class Epoch:
    """Keeps a handle in its epoch, by a lock on the epoch's file. Safe to share between threads.

    Attributes:
        text: the epoch of this process, since ``enter_epoch``.
        why_not: why no lock is held, so that no process is refused; empty: a lock is held.
    """

    def __init__(self, database: Path, *, may_be_remote: bool = False) -> None:
        """Prepare for ``database``; nothing is opened before ``enter_epoch``.

        ``may_be_remote``: its file system may be a network's, whose locks may outlive a boot.
        """
        self._database = database
        self._path = database.with_name(database.name + "-epoch")
        self._may_be_remote = may_be_remote
        self._holds: list[weakref.finalize[..., Epoch]] = []
        """Each closes a file, which frees its lock. There are several if threads opened connections at once."""
        self.text = ""
        self.why_not = "no connection was opened yet"
        _epochs.add(self)

    def enter_epoch(self, write_lock: WriteLock) -> None:
        """Hold this process's epoch until ``leave_epoch``. Does nothing if this handle holds it already.

        ``write_lock()`` is entered for the part that only one process at a time may do.

        Raises:
            StoreRefused: a process of another epoch uses the database.
            StoreUnavailable: the file cannot be used.
        """
        self.text = lease_epoch()
        if self._holds or self._is_unavailable():
            return
        try:
            if not self._join_epoch():
                with write_lock():
                    self._begin_epoch()
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise self._explain_error(error) from error
            self.why_not = f"locks on files do not work there ({error.strerror})"
            self._warn_once()

    def leave_epoch(self) -> None:
        """Stop holding the epoch. Idempotent."""
        # Only close, because of forked children: LOCK_UN in a child would free the parent's lock.
        while self._holds:
            self._holds.pop()()

    def _is_unavailable(self) -> bool:
        """Whether no lock can be held: the file is read-only, or on a network file system."""
        if not _HAS_FLOCK:
            self.why_not = "this system has no flock"
        elif sqlite_errors.is_read_only(self._database):
            self.why_not = "this process may only read"
        elif self._may_be_remote and is_network(kind := kind_of(self._database.parent)):
            self.why_not = f"a network file system ({kind})"
        else:
            self.why_not = ""
        return bool(self.why_not)

    def _join_epoch(self) -> bool:
        """Take the shared lock if the file contains this process's epoch; return whether it does."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        joins = False
        try:
            # Checked before locking, too: a lock on the epoch of a dead process would look like a sign of its life.
            joins = self._is_own(file) and _try_lock(file, fcntl.LOCK_SH) and self._is_own(file)
        finally:
            self._keep_file(file) if joins else os.close(file)
        return joins

    def _begin_epoch(self) -> None:
        """Write this process's epoch, unless a living process holds another. Called under the write lock."""
        file = self._open_file()
        try:
            alone = _try_lock(file, fcntl.LOCK_EX)
            if not self._is_own(file):
                if not alone:
                    raise self._other_epoch_error(_read_epoch(file))
                _write_epoch(file, self.text)
            if not _try_lock(file, fcntl.LOCK_SH):
                raise StoreUnavailable(
                    f"{self._path} is locked by a program that is none of cronsensus; see which: "
                    f"fuser -v '{self._path}'"
                )
        except BaseException:
            os.close(file)
            raise
        self._keep_file(file)

    def _is_own(self, file: int) -> bool:
        return _read_epoch(file) == self.text

    def _keep_file(self, file: int) -> None:
        hold = weakref.finalize(self, os.close, file)
        hold.atexit = False
        self._holds.append(hold)

    def _other_epoch_error(self, text: str | None) -> StoreRefused:
        return StoreRefused(
            f"{self._database} is in use by processes with another boot id or monotonic clock ({text or 'unreadable'}) "
            f"than this one ({self.text}), as containers of one host may have: each would take the other's leases for "
            f"run out. Stop them (fuser -v '{self._path}'), or use a server for both (postgresql://…, mysql://…, "
            "redis://…)"
        )

    def _open_file(self) -> int:
        """Open the file; create it, for the users of the database, if it is missing. Called under the write lock."""
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._make_file()
        except PermissionError:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def _make_file(self) -> int:
        """Create the file, first under another name: a death in between leaves no file that others cannot open."""
        new = self._path.with_name(self._path.name + ".new")
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            share_as(new, self._database.stat())
            new.rename(self._path)
        except BaseException:
            os.close(file)
            raise
        return file

    def _warn_once(self) -> None:
        if self._path not in _warned:
            _warned.add(self._path)
            _log.warning(
                "%s: %s, so nobody is refused: containers with boot ids of their own that share this database would "
                "take each other for dead",
                self._path,
                self.why_not,
            )

    def _explain_error(self, error: OSError) -> Exception:
        if error.errno in _FULL:
            return sqlite_errors.disk_full_error(self._database)
        if error.errno in {errno.EACCES, errno.EPERM, errno.EBADF}:
            return StoreUnavailable(
                f"{self._path} may not be read and written by this user, who may write {self._database.name}; "
                f"allow both to the same users: chown --reference='{self._database}' '{self._path}' and "
                f"chmod --reference='{self._database}' '{self._path}'"
            )
        return StoreUnavailable(f"{self._path} cannot be used: {error.strerror or error}")


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_epoch(file: int) -> str | None:
    """Return the epoch in a file; ``None``: there is none, or only a part."""
    match = _TEXT.match(os.pread(file, 256, 0))
    return match[1].decode("ascii") if match else None


def _write_epoch(file: int, text: str) -> None:
    """Write the epoch. No sync: after a power cut any text is fine, because all locks are gone."""
    content = f"{text}\n{_NOTE}".encode()
    os.pwrite(file, content, 0)
    os.ftruncate(file, len(content))


_epochs: weakref.WeakSet[Epoch] = weakref.WeakSet()


def _in_child() -> None:
    """Close a forked child's copies of the parent's locks; its handles take their own with their first connection."""
    for epoch in list(_epochs):
        with contextlib.suppress(OSError):
            epoch.leave_epoch()


call_after_fork(_in_child)
