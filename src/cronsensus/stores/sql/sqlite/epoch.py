"""To which life of the lease clock do sessions and locks in a database belong? See ADR 22.

::

    jobs.db-epoch   its first line names the epoch; each process that uses jobs.db holds a shared flock on the file

A lease of another epoch has run out, whatever it says. So an epoch may end only when none of its processes is alive,
and the kernel alone knows that: it frees the lock of a process that is gone. A boot id is not enough. Two containers
on one kernel may have two, and would take each other for dead.

A process that opens the database

- reads its own boot id in the file: takes the shared lock, and that is all;
- reads anything else: takes its turn, and tries for the exclusive lock. If it gets that, no process is left, and its
  own boot id becomes the epoch. If not, a living process holds the shared one, and the epoch in the file is adopted.

Safe when two do so at the same instant, as only one has its turn. The shared lock is taken only by a process that knows
the text to be of this life of the kernel, so a refused exclusive lock proves that it is. A process that dies in between
leaves no lock behind, and a text that the next one to have both writes anew. A turn is SQLite's write lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cronsensus.errors import StoreUnavailable
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import start_anew
from cronsensus.stores.boot import boot_id
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
_TRIES = 10
"""How often a file is opened that another program removes at the same time."""

Turn = Callable[[], AbstractContextManager[object]]


@contextmanager
def write_turn(driver: sqlite3.Connection) -> Iterator[None]:
    """Have SQLite's write lock, and write nothing into the database."""
    driver.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        driver.execute("ROLLBACK")


class _Held:
    """A process's lock on one epoch file. It ends with the last handle that uses it."""

    def __init__(self, file: int, text: str) -> None:
        self.text = text
        self.hold(file)

    def hold(self, file: int) -> None:
        self.file: int | None = file
        found = os.fstat(file)
        self._place = (found.st_dev, found.st_ino)
        # Closing is enough, and in a forked child all that may be done: LOCK_UN would free the parent's lock.
        self._end = weakref.finalize(self, os.close, file)
        self._end.atexit = False

    def is_at(self, path: Path | str) -> bool:
        """Whether the file is still the one that others would lock."""
        try:
            found = os.stat(path)  # noqa: PTH116 - half the time, and asked at each write
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._place

    def release_hold(self) -> None:
        self._end()
        self.file = None


_lock = threading.RLock()
"""Around each change of a lock: no process is forked in the middle of one. Nothing is waited for under it. A signal
handler may fork, so the thread that has it may have it again."""
_held: weakref.WeakValueDictionary[Path, _Held] = weakref.WeakValueDictionary()
"""One for each file."""
_warned: set[Path] = set()


class Epoch:
    """One handle's part in it. Safe to share between threads.

    Attributes:
        text: the epoch, since ``enter_epoch``.
        why_not: why no lock can be held here, and the own boot id has to do; empty: one is held.
    """

    def __init__(self, database: Path, *, may_be_remote: bool = False) -> None:
        """Take part for ``database``; nothing is opened before ``enter_epoch``.

        ``may_be_remote``: its file system may be a network's, whose locks may outlive a boot.
        """
        self._database = database
        self._path = database.with_name(database.name + "-epoch")
        self._name = str(self._path)
        self._may_be_remote = may_be_remote
        self._held: _Held | None = None
        self.text = ""
        self.why_not = "no connection was opened yet"

    def enter_epoch(self, turn: Turn) -> None:
        """Find out the epoch, and hold it until ``leave_epoch``; at once, if this process does so already.

        ``turn()`` is entered where one process after the other must do so.

        Raises:
            StoreUnavailable: it cannot be told, or not be held.
        """
        if self._is_held() or self._share_held():
            return
        if self._is_unavailable():
            self.text = boot_id()
            return
        try:
            if not self._join_epoch(boot_id()):
                with turn():
                    self._begin_or_adopt(boot_id())
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise self._explain_error(error) from error
            self.text, self.why_not = boot_id(), f"locks on files do not work there ({error.strerror})"
            self._warn_once()

    def leave_epoch(self) -> None:
        """Hold it no more, unless another handle of this process does. Idempotent."""
        with _lock:
            self._held = None

    def mend_file(self) -> None:
        """Lock the file that is under the name now, if the other one was removed. In one's turn.

        Raises:
            StoreUnavailable: meanwhile another epoch has begun.
        """
        held = self._held
        if held is None or held.is_at(self._name):
            return
        try:
            with _lock:
                self._replace_file(held)
        except OSError as error:
            raise self._explain_error(error) from error

    # --- which one ----------------------------------------------------------------------------------------------------

    def _is_held(self) -> bool:
        held = self._held
        return held is not None and held.file is not None

    def _is_unavailable(self) -> bool:
        """Whether to go by the boot id alone: nothing is written here, or the kernel's locks are not its alone."""
        if not _HAS_FLOCK:
            self.why_not = "this system has no flock"
        elif sqlite_errors.is_read_only(self._database):
            self.why_not = "this process may only read"
        elif self._may_be_remote and is_network(kind := kind_of(self._database.parent)):
            self.why_not = f"a network file system ({kind})"
        else:
            self.why_not = ""
        return bool(self.why_not)

    def _share_held(self) -> bool:
        """Hold what this process holds already."""
        with _lock:
            held = _held.get(self._path)
            if held is None or not held.is_at(self._path):
                return False
            self._held, self.text, self.why_not = held, held.text, ""
            return True

    def _join_epoch(self, own: str) -> bool:
        """Hold an epoch that is of the own boot id; ``False``: another one is, or none."""
        with _lock:
            if _held.get(self._path) is not None:
                return self._share_held()
            try:
                file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return False
            try:
                # Before the lock is taken, too: none may be held by a process that does not know the text to be good.
                joins = _read_epoch(file) == own and _try_lock(file, fcntl.LOCK_SH) and _read_epoch(file) == own
                if joins:
                    self._keep_file(file, own)
                    return True
            except BaseException:
                os.close(file)
                raise
            os.close(file)
            return False

    def _begin_or_adopt(self, own: str) -> None:
        with _lock:
            held = _held.get(self._path)
            if held is None:
                self._keep_file(*self._lock_in_turn(own))
            else:
                self._replace_file(held)
                self._share_held()

    def _replace_file(self, held: _Held) -> None:
        """Hold the file that is under the name now with the same text, in place of one that was removed."""
        if held.is_at(self._path):
            return
        file, text = self._lock_in_turn(held.text)
        if text != held.text:
            os.close(file)
            raise StoreUnavailable(
                f"{self._path} was replaced while in use and names another epoch, in which this process has no lease; "
                "restart this process"
            )
        held.release_hold()
        held.hold(file)

    def _keep_file(self, file: int, text: str) -> None:
        self._held = _held[self._path] = _Held(file, text)
        self.text = text

    def _lock_in_turn(self, wanted: str) -> tuple[int, str]:
        """Lock the file in one's turn; return it, and its text: ``wanted`` if no process holds it."""
        for _ in range(_TRIES):
            file = self._open_file()
            try:
                text = _read_epoch(file)
                if _try_lock(file, fcntl.LOCK_EX):
                    if text != wanted:
                        _write_epoch(file, wanted)
                    text = wanted
                elif text is None:
                    raise StoreUnavailable(
                        f"{self._path} was changed or emptied while processes use {self._database.name}, and they "
                        f"alone know what it said; stop them all (fuser -v '{self._path}'), then start again"
                    )
                if not _try_lock(file, fcntl.LOCK_SH):
                    raise StoreUnavailable(
                        f"{self._path} is locked by a program that is none of cronsensus; see which: "
                        f"fuser -v '{self._path}'"
                    )
                found = os.fstat(file)
                if found.st_nlink:
                    return file, text
            except BaseException:
                os.close(file)
                raise
            os.close(file)
        raise StoreUnavailable(f"{self._path} is removed as often as it is made; see which program does that")

    def _open_file(self) -> int:
        """Open the file; make it, for the users of the database, if there is none. In one's turn."""
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._make_file()
        except PermissionError:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def _make_file(self) -> int:
        """Make the file under another name first: a death in between leaves none that others may not open."""
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
                "%s: %s, so leases are judged by the boot id: containers with boot ids of their own that share this "
                "database would take each other for dead",
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
    """Return the epoch in a file; ``None``: there is none, or not a whole one."""
    found = _TEXT.match(os.pread(file, 256, 0))
    return found[1].decode("ascii") if found else None


def _write_epoch(file: int, text: str) -> None:
    """Write the epoch. No sync: after a power cut the text may be any, as its locks are gone."""
    content = f"{text}\n{_NOTE}".encode()
    os.pwrite(file, content, 0)
    os.ftruncate(file, len(content))


def _in_child() -> None:
    """In a forked child: close the copies of the parent's locks; its handles take their own with a first connection."""
    global _lock  # noqa: PLW0603 - the parent's thread that holds it does not exist here
    for held in list(_held.values()):
        with contextlib.suppress(OSError):
            held.release_hold()
    _held.clear()
    _lock = threading.RLock()


def _before_fork() -> None:
    _lock.acquire()


def _in_parent() -> None:
    _lock.release()


start_anew(_in_child, before=_before_fork, in_parent=_in_parent)
