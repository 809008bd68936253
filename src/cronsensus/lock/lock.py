"""``Lock``: mutual exclusion between processes, with a token that protects what time cannot. Floor 5.

Names and behaviour of the methods are those of ``redis.lock.Lock`` where that has them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType, NoneType, TracebackType
from typing import Never

from cronsensus.durations import Duration, format_duration, parse_duration
from cronsensus.errors import InvalidOption, LeaseLost, LockHeld, NotTheHolder, StoreError
from cronsensus.lock.acquiring import acquiring, give_back
from cronsensus.lock.conversing import adrive, drive
from cronsensus.lock.gate import Wanted
from cronsensus.lock.lease import Lease, Lost
from cronsensus.lock.opening import Where, gates_of
from cronsensus.lock.working import on_worker
from cronsensus.logger import Logger
from cronsensus.model.job import check_name, unknown_option

_log = Logger("cronsensus.lock")

TTL_BOUNDS = (timedelta(seconds=1), timedelta(days=1))
SHORTEST_UNRENEWED = timedelta(milliseconds=100)
MOST_HOLDERS = 1000
_OPTIONS = {"ttl", "limit", "renew", "blocking", "blocking_timeout", "namespace"}
_NOTHING: Mapping[str, object] = MappingProxyType({})
_ELSEWHERE = {
    "timeout": "ttl='30s', which is renewed while the lock is held",
    "sleep": "nothing: who waits is told, and does not poll",
    "thread_local": "nothing: each thread and each task holds what it acquired itself",
    "token": "nothing: the store gives the token, which grows with every holder; read it from lock.token",
    "raise_on_release_error": "nothing: a lease that was lost is an error only if the block itself did not fail",
}


class Lock:
    """A named lock that one process at a time holds, or up to ``limit`` of them.

    It is renewed while it is held, and free at once when its process dies on the same host. One object may be used by
    any number of threads and tasks: each of them holds for itself, and none of them twice.

    Not prevented: a process that is frozen, or cut off from the store, may wake up after its lease was lost and go on
    for a moment. ``lease.token`` is what the protected resource can refuse it by.

    Example:
        >>> from cronsensus import Lock
        >>> lock = Lock("memory://", "reindex", ttl="30s")
        >>> with lock as lease:
        ...     lease.token > 0 and not lease.lost.is_set()
        True

    Args:
        where: the URL of a store (``redis://…``, ``postgresql://…``, ``sqlite:///…``) or of a directory
            (``file:///var/lock/app``), an open ``Store``, a client of redis-py (of which only the address is used), or
            a list of ``redis://`` URLs of independent masters. (Or a function that returns a ``Gate``.)
        name: of the lock, within ``namespace``.
        ttl: how long it lasts once nobody renews it any more. (On files: for as long as the process lives.)
        limit: how many may hold it.
        renew: renew it while it is held, at a third of ``ttl``.
        blocking: whether ``acquire`` waits, unless it is told otherwise.
        blocking_timeout: for how long at most; ``None``: until it gets it.
        namespace: keeps applications on one store apart.

    Raises:
        InvalidOption, InvalidDuration: an unknown or impossible option.
        UnknownStore, MissingExtra: as ``open_store``.
    """

    def __init__(
        self,
        where: Where,
        name: str,
        *,
        ttl: Duration = "30s",
        limit: int = 1,
        renew: bool = True,
        blocking: bool = True,
        blocking_timeout: Duration | None = None,
        namespace: str | None = None,
        **unknown: Never,
    ) -> None:
        for option in unknown:
            raise _unknown(option, _OPTIONS, "Lock")
        self.name = check_name(name, what="lock name")
        self._wanted = Wanted(
            name=self.name, ttl=_read_ttl(ttl, renew=renew), limit=_read_limit(limit), renew=renew, bound=True
        )
        self._blocking = blocking
        self._patience = _read_timeout(blocking_timeout)
        self._gate = gates_of(where, namespace)
        if limit != 1 and isinstance(where, (list, tuple)):
            raise InvalidOption(f"limit={limit}: a majority of masters locks for one holder; use one store for several")
        self._guard = threading.Lock()
        self._leases: dict[object, Lease] = {}

    # --- what is held -------------------------------------------------------------------------------------------------

    @property
    def lease(self) -> Lease | None:
        """What this thread, or this task, holds; ``None``: nothing."""
        lease = self._leases.get(_here())
        return None if lease is None or lease.released or not lease.is_ours else lease

    @property
    def token(self) -> int:
        """The fencing token of what this thread, or this task, holds.

        Raises:
            NotTheHolder: it holds nothing.
        """
        return self._required().token

    @property
    def lost(self) -> Lost:
        """The event that is set before anybody else can hold what this thread, or this task, holds.

        Raises:
            NotTheHolder: it holds nothing.
        """
        return self._required().lost

    def _required(self) -> Lease:
        lease = self._leases.get(_here())
        if lease is not None and not lease.released:
            lease.require_holder()
            return lease
        others = [other.holder for other in list(self._leases.values()) if not other.released]
        where = f"; it is held by {', '.join(others)}" if others else ""
        raise NotTheHolder(
            f"the lock {self.name!r} is not held by this {_kind()}{where}. acquire() it first, and release or extend "
            "it where it was acquired"
        )

    def _take_in(self, lease: Lease) -> Lease:
        with self._guard:
            self._leases[_here()] = lease
        return lease

    def _let_go(self) -> Lease:
        lease = self._required()
        with self._guard:
            del self._leases[_here()]
        return lease

    def _refuse_twice(self) -> None:
        if self.lease is not None:
            raise NotTheHolder(
                f"this {_kind()} holds the lock {self.name!r} already, and would wait for itself: it is not re-entrant"
            )

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001 - redis-py's
        blocking_timeout: Duration | None = None,
        **unknown: Never,
    ) -> bool:
        """Take the lock; return whether it was to be had.

        Args:
            blocking: whether to wait while others hold it. Defaults to what the lock was made with.
            blocking_timeout: for how long at most. Defaults to what the lock was made with.
            unknown: refused, with what to write instead.

        Raises:
            StoreError: the store cannot be asked; nothing is held.
            NotTheHolder: this thread holds it already.
            InvalidOption, InvalidDuration: an unknown or impossible option.
        """
        return self._acquire(self._patience_of(blocking, blocking_timeout, unknown)) is not None

    def _acquire(self, patience: float | None) -> Lease | None:
        self._refuse_twice()
        lease = drive(acquiring(self._gate(), self._wanted, patience))
        return None if lease is None else self._take_in(lease)

    async def aacquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001
        blocking_timeout: Duration | None = None,
        **unknown: Never,
    ) -> bool:
        """Do what ``acquire`` does without blocking the event loop; what is acquired is held by this task."""
        return await self._aacquire(self._patience_of(blocking, blocking_timeout, unknown)) is not None

    async def _aacquire(self, patience: float | None) -> Lease | None:
        self._refuse_twice()
        gate = await on_worker(self._gate)
        lease = await adrive(acquiring(gate, replace(self._wanted, bound=False), patience), give_back)
        return None if lease is None else self._take_in(lease)

    def _patience_of(
        self,
        blocking: bool | None = None,  # noqa: FBT001
        timeout: Duration | None = None,
        unknown: Mapping[str, object] = _NOTHING,
    ) -> float | None:
        for option in unknown:
            raise _unknown(option, {"blocking", "blocking_timeout"}, "acquire")
        if not isinstance(blocking, (bool, NoneType)):
            raise InvalidOption(
                f"blocking={blocking!r}: True or False; for how long to wait is said by blocking_timeout='5s'"
            )
        if not (self._blocking if blocking is None else blocking):
            return 0.0
        return self._patience if timeout is None else _read_timeout(timeout)

    def __enter__(self) -> Lease:
        lease = self._acquire(self._patience_of())
        if lease is None:
            raise self._not_to_be_had()
        return lease

    async def __aenter__(self) -> Lease:
        lease = await self._aacquire(self._patience_of())
        if lease is None:
            raise self._not_to_be_had()
        return lease

    def _not_to_be_had(self) -> LockHeld:
        how = "" if not self._blocking or self._patience is None else f" within {self._patience:g} s"
        return LockHeld(
            f"the lock {self.name!r} is held by others and was not to be had{how}; wait longer (blocking_timeout=), or "
            "use acquire(), which returns False. Who holds it: cronsensus locks list"
        )

    # --- releasing ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Free what this thread holds.

        Raises:
            LeaseLost: it was not ours any more; whoever holds it now keeps it.
            NotTheHolder: this thread holds nothing.
            StoreError: the store cannot be asked; the lock ends with its TTL.
        """
        self._let_go().release()

    async def arelease(self) -> None:
        """Do what ``release`` does without blocking the event loop, for what this task holds."""
        await self._let_go().arelease()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = self._leases.get(_here())
        if lease is not None and not lease.released:  # else the block has released it
            with _leaving(lease, failed=error is not None):
                self.release()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = self._leases.get(_here())
        if lease is not None and not lease.released:
            with _leaving(lease, failed=error is not None):
                await self.arelease()

    # --- holding ------------------------------------------------------------------------------------------------------

    def extend(self, additional_time: Duration, replace_ttl: bool = False) -> bool:  # noqa: FBT001, FBT002 - redis-py's
        """Let what this thread holds last longer; see ``Lease.extend``."""
        return self._required().extend(additional_time, replace_ttl)

    async def aextend(self, additional_time: Duration, replace_ttl: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Do what ``extend`` does without blocking the event loop."""
        return await self._required().aextend(additional_time, replace_ttl)

    def reacquire(self) -> bool:
        """Let what this thread holds last for its whole TTL from now on; see ``Lease.reacquire``."""
        return self._required().reacquire()

    async def areacquire(self) -> bool:
        """Do what ``reacquire`` does without blocking the event loop."""
        return await self._required().areacquire()

    def owned(self) -> bool:
        """Ask the store whether this thread, or this task, still holds the lock.

        Raises:
            StoreError: it cannot be asked.
        """
        lease = self.lease
        return lease is not None and lease.owned()

    async def aowned(self) -> bool:
        """Do what ``owned`` does without blocking the event loop."""
        lease = self.lease
        return lease is not None and await lease.aowned()

    def locked(self) -> bool:
        """Ask the store whether as many hold the lock as may.

        Raises:
            StoreError: it cannot be asked.
        """
        return self._gate().holders(self.name) >= self._wanted.limit

    async def alocked(self) -> bool:
        """Do what ``locked`` does without blocking the event loop."""
        return await on_worker(self.locked)

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"


@contextmanager
def _leaving(lease: Lease, *, failed: bool) -> Iterator[None]:
    """Release at the end of a block without hiding what matters more.

    An error of the block's own comes first. And a block that was protected to its end has done its work: that the store
    cannot be told so now delays others until the TTL ends, and is no reason to do the work again.
    """
    try:
        yield
    except LeaseLost as error:
        if not failed:
            raise
        _log.warning("%s", error)
    except StoreError as error:
        if not failed and not lease.trusted:
            raise
        _log.warning("the lock %r could not be released, it ends with its TTL: %s", lease.name, error)


def _here() -> object:
    """Return who holds: the task that is running, or the thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - cheap, and never raises
        task = asyncio.current_task()
        if task is not None:
            return task
    return threading.get_ident()


def _kind() -> str:
    return "thread" if isinstance(_here(), int) else "task"


# --- what may be asked for -------------------------------------------------------------------------------------------


def _unknown(option: str, known: set[str], where: str) -> InvalidOption:
    if option in _ELSEWHERE:
        return InvalidOption(f"unknown option {option!r} for {where}; write {_ELSEWHERE[option]}")
    return unknown_option(option, known, where=where)


def _read_ttl(ttl: Duration | None, *, renew: bool) -> timedelta:
    if ttl is None:
        raise InvalidOption(
            "ttl=None: a lock without a TTL would be held for ever by a process that died; write ttl='30s', and it is "
            "renewed for as long as it is held"
        )
    read = parse_duration(ttl, what="ttl")
    least, most = TTL_BOUNDS if renew else (SHORTEST_UNRENEWED, TTL_BOUNDS[1])
    if not least <= read <= most:
        why = (
            "a shorter one could not be renewed in time, over a slow commit or a busy machine"
            if renew and read < least
            else "a longer one would outlive a crash by far; what is held longer is renewed"
            if read > most
            else "a shorter one would be over before it is answered for"
        )
        raise InvalidOption(f"ttl={ttl!r}: from {format_duration(least)} to {format_duration(most)}; {why}")
    return read


def _read_limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_HOLDERS:
        raise InvalidOption(f"limit={limit!r}: a whole number from 1 to {MOST_HOLDERS}")
    return limit


def _read_timeout(timeout: Duration | None) -> float | None:
    return None if timeout is None else parse_duration(timeout, what="blocking_timeout").total_seconds()
