"""``StartupCoordinator``: named locks for programs that share out tasks at their start.

On a single host it uses two locks: on a file, which the kernel frees when its process dies, and in the store. So the
guarantee does not depend on the store there, even while only some workers can reach it. Without a store only the file
counts.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cronsensus.config import read_switch
from cronsensus.errors import ConfigurationError, InvalidOption, LeaseLost, StoreError, StoreUnavailable
from cronsensus.lock import Lease, Lock
from cronsensus.lock.clients import url_of
from cronsensus.lock.worker_pool import on_worker
from cronsensus.process.logger import Logger
from cronsensus.timing.durations import Duration

_log = Logger("cronsensus.startup")

LOCK_DIR = "TASK_LOCK_DIR"
SINGLE_INSTANCE = "SINGLE_INSTANCE_MODE"


class StartupCoordinator:
    """Gives a name to one worker at a time, until that worker releases it or dies.

    It remembers nothing: after the release another worker gets the name. For tasks that must run once, use
    ``Scheduler.startup``.

    Nothing is ever cleared by deleting keys. Names of a dead process of this host are free at once, because its death
    is noticed; names of a process of another host are free when their ``ttl`` is over.

    Args:
        where: the URL of a store such as ``redis://localhost``, or a client of redis-py (sync or asyncio). Any store's
            URL will do. ``None``: files alone, in ``lock_dir``, for the workers of one host; ``file:///var/lock/app``
            likewise, in that folder.
        lock_dir: of the lock files. Defaults to ``TASK_LOCK_DIR``, and else to a folder of this user's among the
            system's temporary files.
        fallback: ``"file"``: go on with files, with a warning, when the store cannot be reached. ``None``: raise.
        single_instance: all workers are on this host, so a dead one is seen at once. Defaults to
            ``SINGLE_INSTANCE_MODE``, and else to true. ``False``: several hosts; the lock is the store's, and only its
            TTL covers a crash.

    Raises:
        InvalidOption: no such place or option.
    """

    def __init__(
        self,
        where: Any,
        lock_dir: str | os.PathLike[str] | None = None,
        *,
        fallback: str | None = "file",
        single_instance: bool | None = None,
    ) -> None:
        if fallback not in {"file", None}:
            raise InvalidOption(f"fallback={fallback!r}: choose 'file' or None")
        # Resolved once, here: the program may change its working directory later.
        chosen_folder = lock_dir or os.environ.get(LOCK_DIR)
        self._folder = Path(chosen_folder or _own_folder()).expanduser().absolute()
        self._is_own_folder = not chosen_folder
        in_folder = f"file://{quote(str(self._folder))}"
        self._url = in_folder if where is None else where if isinstance(where, str) else url_of(where)
        # Then there is a single lock, and no fallback: a second lock in the same folder would lock this worker out.
        self._is_files_alone = self._url.startswith("file:")
        self._makes_folder = self._url == in_folder
        self._fallback = None if self._is_files_alone else fallback
        if single_instance is None:
            single_instance = read_switch(os.environ.get(SINGLE_INSTANCE, "").strip() or True, SINGLE_INSTANCE)
        if where is None and not single_instance:
            raise InvalidOption(
                "where=None locks files of this host, and single_instance=False says that there are several; give the "
                "URL of a store, such as redis://localhost, or leave single_instance out"
            )
        self.single_instance = single_instance
        self._held: dict[str, list[Lease]] = {}
        self._process = os.getpid()
        Lock(self._url, "checked now, used later")

    async def acquire(self, name: str, ttl: Duration = "30s") -> bool:
        """Return whether this worker has the name now; it keeps it until ``release``, or until it dies.

        Args:
            name: of the task.
            ttl: how long a worker keeps it that is gone without a trace; renewed while this worker lives.

        Raises:
            StoreUnavailable: the store cannot be reached, and there is no fallback.
            InvalidOption, InvalidDuration: no such name or time.
        """
        self._notice_fork()
        if name in self._held:
            return False
        locks: list[Lease] = []
        # Recorded before the first wait: two tasks of the same worker must not both go on from here.
        self._held[name] = locks
        try:
            acquired = await self._acquire(name, ttl, locks)
        except BaseException:
            await asyncio.shield(self._release(name))
            raise
        if not acquired:
            await self._release(name)
        return acquired

    async def release(self, name: str) -> bool:
        """Release the name; ``False``: this worker does not have it, and nothing changes.

        Raises:
            LeaseLost: another worker has it by now.
            StoreError: the store does not answer; the name is free when its ``ttl`` is over.
        """
        return await self._release(name)

    async def _acquire(self, name: str, ttl: Duration, locks: list[Lease]) -> bool:
        # If all are on one host, the file comes first, even while the store can be reached: of two workers one may
        # reach it and the other not.
        if self.single_instance and self._fallback is not None and not await self._acquire_file(name, ttl, locks):
            return False
        in_store = Lock(self._url, name, ttl=ttl, blocking=False)
        if self._makes_folder:
            try:
                await asyncio.to_thread(self._make_folder)
            except OSError as error:
                raise StoreUnavailable(
                    f"{self._folder} cannot hold lock files: {error}; name a folder with lock_dir= or {LOCK_DIR}"
                ) from error
        try:
            lease = await _won(in_store)
            if lease is None:
                return False
        except StoreUnavailable as error:
            if self._fallback is None:
                raise
            if not locks and not await self._acquire_file(name, ttl, locks):
                return False
            if not locks:
                raise
            _log.warning(
                "the store cannot be reached, so %r is only kept from other workers on this host, not from those on "
                "others: %s",
                name, error,
            )  # fmt: skip
        else:
            locks.append(lease)
        return True

    async def _acquire_file(self, name: str, ttl: Duration, locks: list[Lease]) -> bool:
        """Acquire the lock on a file; ``False``: another worker has it. If files cannot be locked, go on without."""
        on_file = Lock(f"file://{quote(str(self._folder))}", name, ttl=ttl, blocking=False)
        try:
            await asyncio.to_thread(self._make_folder)
            lease = await _won(on_file)
            if lease is None:
                return False
        except (StoreError, OSError) as error:
            _log.warning("%s cannot hold lock files, so there is nothing to fall back on: %s", self._folder, error)
        else:
            locks.append(lease)
        return True

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._is_own_folder:
            _require_ours(self._folder)

    async def _release(self, name: str) -> bool:
        self._notice_fork()
        locks = self._held.pop(name, None)
        if not locks:
            return False
        # Nothing else refers to them any more, so they are released even if the caller is cancelled.
        releasing = asyncio.ensure_future(on_worker(partial(_release_all, locks)))
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await asyncio.wait([releasing])
            raise
        return True

    def _notice_fork(self) -> None:
        """Leave the parent's locks to the parent; called in a forked child."""
        if self._process != os.getpid():
            self._process = os.getpid()
            _of_the_parent.append(self._held)
            self._held = {}


_of_the_parent: list[object] = []
"""Objects that only the parent of a forked process may release, kept from collection."""


def _release_all(locks: list[Lease]) -> None:
    first_error: Exception | None = None
    for lock in reversed(locks):
        try:
            lock.release()
        except (StoreError, ConfigurationError, LeaseLost) as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error


async def _won(lock: Lock) -> Lease | None:
    """Return the lease, which, unlike the lock, may be released by any task of this worker."""
    return lock.lease if await lock.aacquire() else None


def _own_folder() -> str:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return str(Path(tempfile.gettempdir()) / f"cronsensus-locks-{user}")


def _require_ours(folder: Path) -> None:
    """Raise unless only this user can write in a folder: its name is public, and anybody may have made it before.

    Raises:
        PermissionError: it is another user's, or others may write there, or it is a link.
    """
    status = folder.lstat()
    if hasattr(os, "getuid") and (
        not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022
    ):
        raise PermissionError(
            f"{folder} is not a folder of this user's alone (owner {status.st_uid}, mode "
            f"{stat.filemode(status.st_mode)}), so others could remove or redirect its lock files; remove it, or name "
            "another one with lock_dir= or "
            f"{LOCK_DIR}"
        )
