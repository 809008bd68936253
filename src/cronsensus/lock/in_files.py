"""Locks on files, held by the kernel: no server, a single host, free the moment their process dies.

::

    /var/lock/app/  reindex-5c1f….0.lock   one for each place, with its holder's limit; locked while it is held
                    reindex-5c1f….token    the last token; locked for each acquire and each read of the holders

The library filelock does the locking: it lets go in a forked child without taking the lock from the parent, and checks
that the file that it has locked is still the one under that name.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from cronsensus.errors import InvalidOption, MissingExtra, StoreBusy, StoreUnavailable
from cronsensus.lock.backend import LockBackend, LockRequest
from cronsensus.lock.lease import Lease, LeaseRef
from cronsensus.lock.waiter import Waiter
from cronsensus.model.job import check_name, unknown_option
from cronsensus.stores.base import Store
from cronsensus.stores.filesystems import is_network, kind_of
from cronsensus.timing.clock import Clock, SystemClock
from cronsensus.timing.instants import to_micros

try:
    from filelock import FileLock, Timeout
except ImportError as error:
    raise MissingExtra(
        f'locks on files need the library filelock ({error}); pip install "cronsensus[files]"'
    ) from error

_OPTIONS = {"allow_network_fs"}
_CANNOT_LOCK = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
RETRY_INTERVAL = 0.01
"""Seconds between two tries of a waiter."""
TOKEN_FILE_PATIENCE = 5.0
"""Seconds to wait for the token file; each user of it keeps it for microseconds."""
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]")


class FileLockBackend(LockBackend):
    """The locks in one directory and namespace."""

    def __init__(self, url: str, namespace: str = "default", clock: Clock | None = None) -> None:
        """Open the directory that ``url`` names for locks; nothing is made yet.

        Raises:
            InvalidOption: it names no directory, or an option that does not exist.
        """
        super().__init__()
        self.clock = clock or SystemClock()
        self._directory, self._allow_network = _read_url(url)
        self._namespace = check_name(namespace, what="namespace")
        self._is_ready = False

    def close(self) -> None:
        """Do nothing: the holders release what they hold."""

    # --- taking -------------------------------------------------------------------------------------------------------

    def try_lock(self, request: LockRequest, waiter: Waiter | None = None, *, look: bool = True) -> Lease | None:  # noqa: ARG002 - the kernel frees it
        """Lock the file of the first place that is free, if no more hold the lock than it and they allow.

        Safe when two do so at the same instant: the token file is locked, so one follows the other.
        """
        with self._errors_explained():
            self._make_ready()
            with self._token_file(request.name) as turn:
                limits_of_held = self._list_places(request.name)
                if len(limits_of_held) >= min(
                    [request.limit, *(most for most in limits_of_held.values() if most is not None)]
                ):
                    return None
                place = next(place for place in range(request.limit) if place not in limits_of_held)
                files: list[int] = []
                path = self._path_of(request.name, f".{place}.lock")
                lock = FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=files.append)
                try:
                    lock.acquire(blocking=False)
                except Timeout:  # another program has it, which takes no turns
                    return None
                try:
                    os.pwrite(files[0], b"%-15d\n" % request.limit, 0)
                    return self._lease_of_file(request, lock, files[0], self._next_token(turn))
                except BaseException:
                    lock.release()
                    raise

    def _lease_of_file(self, request: LockRequest, lock: FileLock, file: int, token: int) -> Lease:
        holder, asked_at = self.name_holder(f"{socket.gethostname()}:{os.getpid()}"), self.clock.monotonic()
        grant = (lock, os.fstat(file).st_ino)
        return request.lease_of_grant(self, grant, holder=holder, token=token, asked_at=asked_at, ttl=None, renew=False)

    @contextmanager
    def _token_file(self, name: str) -> Iterator[int]:
        """Lock the token file, which excludes all other users of this lock's files; gives its descriptor."""
        path = self._path_of(name, ".token")
        files: list[int] = []
        lock = FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=files.append, poll_interval=0.001)
        try:
            lock.acquire(timeout=TOKEN_FILE_PATIENCE)
        except Timeout:
            raise StoreBusy(
                f"{path} was locked by another process for {TOKEN_FILE_PATIENCE:g} s, which takes microseconds unless "
                f"that process is stopped; see which: fuser {path}"
            ) from None
        try:
            yield files[0]
        finally:
            lock.release()

    def _next_token(self, turn: int) -> int:
        """Take a token: higher than the last, and than the time, in case the file was removed.

        Safe when two do so at the same instant: the token file is locked. A process that dies in between leaves the
        old number or the new one, because a number is one write.
        """
        last = os.pread(turn, 32, 0).strip(b"\0\n ")
        token = max(int(last) + 1 if last.isdigit() else 1, to_micros(self.clock.now()))
        os.pwrite(turn, b"%-31d\n" % token, 0)
        return token

    def _list_places(self, name: str) -> dict[int, int | None]:
        """Return for each locked place the limit that its holder has written.

        Call it inside ``_token_file``: a check locks a file for a moment, and an acquire in that moment would be
        refused.
        """
        limits: dict[int, int | None] = {}
        for path in self._directory.glob(f"{self._file_stem(name)}.*.lock"):
            place = path.name.split(".")[-2]
            file = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                limit_text = os.pread(file, 16, 0).strip(b"\0\n ")
                limits[int(place)] = int(limit_text) if limit_text.isdigit() else None
            finally:
                os.close(file)
        return limits

    # --- holding ------------------------------------------------------------------------------------------------------

    def free_lock(self, lease: Lease) -> bool:
        """Unlock the file."""
        held = self.is_held(lease)
        with self._errors_explained():
            _grant_of(lease)[0].release()
        return held

    def extend_lock(self, lease: Lease, ttl: timedelta, *, by: Store | None = None) -> bool:  # noqa: ARG002 - it has no end
        """Do nothing: the kernel holds it for as long as the process lives."""
        return self.is_held(lease)

    def watch_lease(self, lease: LeaseRef) -> None:
        """Do nothing: it ends when it is released, or with this process."""

    def forget_lease(self, lease: LeaseRef) -> None:
        """Do nothing: nothing is renewed."""

    def is_held(self, lease: Lease) -> bool:
        """Whether the file is locked, and still the one that others would lock."""
        lock, number = _grant_of(lease)
        with suppress(FileNotFoundError):
            return lock.is_locked and Path(lock.lock_file).stat().st_ino == number
        return False

    def count_holders(self, name: str) -> int:
        """Return how many places are locked."""
        with self._errors_explained():
            if not self._path_of(name, ".token").exists():
                return 0
            with self._token_file(name):
                return len(self._list_places(name))

    def make_waiter(self, name: str) -> Waiter:  # noqa: ARG002 - all alike
        """Return a waiter that polls: a try costs a system call, and no server is asked."""
        return Waiter(self.clock, at_most=RETRY_INTERVAL)

    # --- files --------------------------------------------------------------------------------------------------------

    def _make_ready(self) -> None:
        """Make the directory, and see whether a lock in it would hold."""
        if self._is_ready:
            return
        kind = kind_of(self._directory)
        if is_network(kind) and not self._allow_network:
            raise StoreUnavailable(
                f"{self._directory} lies on a network file system ({kind}), where the locks of one host mean nothing "
                "to another; use a local directory, or a server (redis://…). If only one host uses it: "
                "?allow_network_fs=1"
            )
        self._directory.mkdir(exist_ok=True)
        self._is_ready = True

    def _file_stem(self, name: str) -> str:
        """Return how a lock's files begin; names may hold any character, and file names may be case-blind."""
        digest = hashlib.blake2b(f"{self._namespace}\0{name}".encode(), digest_size=8).hexdigest()
        return f"{_UNSAFE_CHARACTER.sub('_', name)[:60]}-{digest}"

    def _path_of(self, name: str, end: str) -> Path:
        return self._directory / (self._file_stem(name) + end)

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(self._meaning_of(error)) from error

    def _meaning_of(self, error: OSError) -> str:
        if error.errno in _CANNOT_LOCK:
            return (
                f"the file system of {self._directory} ({kind_of(self._directory) or 'of a kind unknown'}) cannot lock "
                f"files ({error.strerror}); use a directory on a local disk, such as file:///var/lock/app"
            )
        if isinstance(error, FileNotFoundError):
            return f"there is no directory for {self._directory}; make it: mkdir -p {self._directory}"
        if isinstance(error, PermissionError):
            return (
                f"this user may not write in {self._directory} ({error.strerror}: {error.filename}); give the "
                "directory to the group of all who lock there, or use another one"
            )
        return f"{self._directory}: {error}"


def _grant_of(lease: Lease) -> tuple[FileLock, int]:
    grant: tuple[FileLock, int] = lease.grant  # type: ignore[assignment]
    return grant


def _read_url(url: str) -> tuple[Path, bool]:
    rest, _, query = url.removeprefix("file:").partition("?")
    host, slash, path = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or host not in {"", "localhost"} or not slash or not path.strip("/"):
        raise InvalidOption(f"{url!r} names no directory; write file:///var/lock/app")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for option in options:
        if option not in _OPTIONS:
            raise unknown_option(option, _OPTIONS, where="a file: URL")
    return Path("/" + unquote(path)), options.get("allow_network_fs", "0") in {"1", "true", "yes"}
