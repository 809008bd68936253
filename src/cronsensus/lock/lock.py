"""``Lock``: mutual exclusion between processes, with a fencing token against holders that lost their lease.

The methods have the names and behaviour of ``redis.lock.Lock``, if it has them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType, NoneType, TracebackType
from typing import Any, Literal, Never

from cronsensus.errors import CronsensusError, InvalidOption, LeaseLost, LockHeld, NotTheHolder, StoreError
from cronsensus.lock.acquiring import aacquire, acquire
from cronsensus.lock.backend import LockBackend, LockRequest
from cronsensus.lock.lease import Lease, Lost
from cronsensus.lock.opening import Where, backend_of
from cronsensus.lock.options import (
    OPTIONS,
    read_limit,
    read_on_store_loss,
    read_timeout,
    read_ttl,
    unknown_option_error,
)
from cronsensus.lock.ownership import (
    Kind,
    OwnedLease,
    OwnedLeases,
    frame_of_caller,
    kind_of_here,
    refuse_self_wait,
)
from cronsensus.lock.worker_pool import on_worker
from cronsensus.model.job import check_name
from cronsensus.process.logger import Logger
from cronsensus.process.twins import twin
from cronsensus.timing.durations import Duration

_log = Logger("cronsensus.lock")

_BLOCKING = {
    False: ("acquire() of a lock that others hold", "write `await lock.aacquire()`, or `acquire(blocking=False)`"),
    True: ("`with` a lock that others hold", "write `async with lock`"),
}
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Lock:
    """A named lock that a single process holds at a time, or up to ``limit`` of them.

    It is renewed while it is held, and free at once when its process dies on the same host. Any number of threads and
    tasks may use an object: each of them holds the lock for itself, and none of them twice.

    Not prevented: a process that is frozen, or cut off from the store, may wake up after its lease was lost and go on
    for a moment. The protected resource can refuse it by ``lease.token``.

    Example:
        >>> from cronsensus import Lock
        >>> lock = Lock("memory://", "reindex", ttl="30s")
        >>> with lock as lease:
        ...     lease.token > 0 and not lease.lost.is_set()
        True

    Args:
        where: the URL of a store (``redis://…``, ``postgresql://…``, ``sqlite:///…``) or of a directory
            (``file:///var/lock/app``), an open ``Store``, a client of redis-py (only its address is used), or
            a list of ``redis://`` URLs of independent masters. (Or a function that returns a ``LockBackend``.)
        name: of the lock, within ``namespace``.
        ttl: how long it lasts after its last renewal. (On files: for as long as the process lives.)
        limit: how many may hold it.
        renew: renew it while it is held, at a third of ``ttl``.
        blocking: whether ``acquire`` waits by default.
        blocking_timeout: for how long at most; ``None``: no limit.
        namespace: separates applications on the same store.
        on_store_loss: if the store was emptied while this process used it: ``"warn"`` logs it and locks in the empty
            store, ``"stop"`` logs it and raises ``StoreEmptied`` instead of locking. Only for stores.

    Raises:
        InvalidOption, InvalidDuration: an unknown or invalid option.
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
        on_store_loss: Literal["warn", "stop"] = "warn",
        **unknown: Never,
    ) -> None:
        for option in unknown:
            raise unknown_option_error(option, OPTIONS, "Lock")
        self.name: str = check_name(name, what="lock name")
        self._request = LockRequest(
            name=self.name, ttl=read_ttl(ttl, renew=renew), limit=read_limit(limit), renew=renew, bound=False
        )
        self._bound = replace(self._request, bound=True)
        self._blocking = blocking
        self._patience = read_timeout(blocking_timeout)
        self._backend = backend_of(where, namespace, stop=read_on_store_loss(on_store_loss))
        if limit != 1 and isinstance(where, (list, tuple)):
            raise InvalidOption(f"limit={limit}: a majority of masters locks for one holder; use one store for several")
        self._owned = OwnedLeases()

    # --- what is held -------------------------------------------------------------------------------------------------

    @property
    def lease(self) -> Lease | None:
        """The lease of this thread, task or run; ``None`` if it holds none."""
        held = self._owned.find_lease()
        return None if held is None or not held.lease.is_ours else held.lease

    @property
    def token(self) -> int:
        """The fencing token of the lease of this thread, task or run.

        Raises:
            NotTheHolder: it holds nothing.
        """
        return self._required_lease().lease.token

    @property
    def lost(self) -> Lost:
        """The event of the lease of this thread, task or run: set before another holder can have the lock.

        Raises:
            NotTheHolder: it holds nothing.
        """
        return self._required_lease().lease.lost

    def _required_lease(self) -> OwnedLease:
        held = self._held_lease()
        held.lease.require_holder()
        return held

    def _held_lease(self) -> OwnedLease:
        held = self._owned.find_lease()
        if held is not None:
            return held
        holders = [owned.lease.holder for owned in self._owned if not owned.lease.released]
        held_by = f"; it is held by {', '.join(holders)}" if holders else ""
        raise NotTheHolder(
            f"the lock {self.name!r} is not held by this {kind_of_here()}{held_by}. acquire() it first, and release or "
            "extend it where it was acquired"
        )

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001 - redis-py's
        blocking_timeout: Duration | None = None,
        **unknown: Never,
    ) -> bool:
        """Acquire the lock; return whether that succeeded.

        Args:
            blocking: whether to wait while others hold it. Defaults to the lock's own option.
            blocking_timeout: for how long at most. Defaults to the lock's own option.
            unknown: any other option is refused, with what to write instead.

        Raises:
            StoreError: the store cannot be used; nothing is held.
            NotTheHolder: this thread holds it already.
            ConfigurationError: it has to wait, and would block an event loop on which jobs run.
            InvalidOption, InvalidDuration: an unknown or invalid option.
        """
        return self._acquire_lease("thread", self._patience_of(blocking, blocking_timeout, unknown)) is not None

    def _acquire_lease(self, kind: Kind, patience: float | None, frame: int = 0) -> Lease | None:
        request = self._bound if kind == "thread" else self._request
        self._owned.refuse_twice(self.name)
        backend = self._backend()
        if patience is None:
            refuse_self_wait(backend, request)
        lease = acquire(backend, request, patience, *_BLOCKING[kind == "block"])
        return self._hold_lease(kind, backend, request, lease, frame)

    def _hold_lease(
        self, kind: Kind, backend: LockBackend, request: LockRequest, lease: Lease | None, frame: int
    ) -> Lease | None:
        if lease is not None:
            owned = OwnedLease(kind, backend, request, lease, frame)
            try:
                self._owned.add_lease(owned)
            except BaseException:  # from a signal handler: nobody would release it, and it would be renewed
                self._owned.remove_lease(owned)
                raise
        elif kind == "block":
            raise self._not_to_be_had()
        return lease

    async def aacquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001
        blocking_timeout: Duration | None = None,
        **unknown: Never,
    ) -> bool:
        """Do what ``acquire`` does without blocking the event loop; the lease belongs to this ``Lock`` object."""
        return await self._aacquire_lease("object", self._patience_of(blocking, blocking_timeout, unknown)) is not None

    async def _aacquire_lease(self, kind: Kind, patience: float | None, frame: int = 0) -> Lease | None:
        self._owned.refuse_twice(self.name)
        backend = await on_worker(self._backend)
        if patience is None:
            refuse_self_wait(backend, self._request)
        lease = await aacquire(backend, self._request, patience)
        return self._hold_lease(kind, backend, self._request, lease, frame)

    def _patience_of(
        self,
        blocking: bool | None = None,  # noqa: FBT001
        timeout: Duration | None = None,
        unknown: Mapping[str, object] = _NOTHING,
    ) -> float | None:
        for option in unknown:
            raise unknown_option_error(option, {"blocking", "blocking_timeout"}, "acquire")
        if not isinstance(blocking, (bool, NoneType)):
            raise InvalidOption(
                f"blocking={blocking!r}: True or False; for how long to wait is said by blocking_timeout='5s'"
            )
        if not (self._blocking if blocking is None else blocking):
            return 0.0
        return self._patience if timeout is None else read_timeout(timeout)

    def __enter__(self) -> Lease:
        return self._acquire_lease("block", self._patience_of(), frame_of_caller())  # type: ignore[return-value]  # it raises

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        # Not a coroutine itself: it could not see the frame of the block.
        return self._aacquire_lease("block", self._patience_of(), frame_of_caller())  # type: ignore[return-value]

    def _not_to_be_had(self) -> LockHeld:
        how = "" if not self._blocking or self._patience is None else f" within {self._patience:g} s"
        return LockHeld(
            f"the lock {self.name!r} is held by others and was not to be had{how}; wait longer (blocking_timeout=), or "
            "use acquire(), which returns False. Who holds it: cronsensus locks list"
        )

    # --- releasing ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Free the lock that this thread holds.

        Raises:
            LeaseLost: the lock had been lost; its present holder keeps it.
            NotTheHolder: this thread holds nothing.
            StoreError: the store cannot be used; the lock ends with its TTL.
        """
        held = None
        try:
            held = self._held_lease()
            held.lease.release()
            if held.kind != "block":  # a block removes its lease at its end
                self._owned.remove_lease(held)
        except CronsensusError:
            raise
        except BaseException:  # from a signal handler
            if (held := held or self._owned.find_lease()) is not None:
                held.lease.abandon_now()
            raise

    async def arelease(self) -> None:
        """Do what ``release`` does without blocking the event loop."""
        await self._required_lease().lease.arelease()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended: list[OwnedLease] = []
        try:
            self._owned.end_block(frame_of_caller(), ended)
            if ended and not ended[0].lease.released:  # else the block has released it
                with _releasing_at_end(ended[0].lease, failed=error is not None):
                    ended[0].lease.release()
        except CronsensusError:
            raise
        except BaseException:  # out of a signal handler
            if not ended:
                self._owned.end_block(frame_of_caller(), ended)
            for owned in ended:
                self._owned.remove_lease(owned)
                owned.lease.abandon_now()
            raise

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        return self._exit_async(frame_of_caller(), failed=error is not None)

    async def _exit_async(self, frame: int, *, failed: bool) -> None:
        ended: list[OwnedLease] = []
        self._owned.end_block(frame, ended)
        if ended and not ended[0].lease.released:
            with _releasing_at_end(ended[0].lease, failed=failed):
                await ended[0].lease.arelease()

    # --- the held lease -----------------------------------------------------------------------------------------------

    def extend(self, additional_time: Duration, replace_ttl: bool = False) -> bool:  # noqa: FBT001, FBT002 - redis-py's
        """Extend this thread's lease; see ``Lease.extend``."""
        return self._required_lease().lease.extend(additional_time, replace_ttl)

    async def aextend(self, additional_time: Duration, replace_ttl: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Do what ``extend`` does without blocking the event loop."""
        return await self._required_lease().lease.aextend(additional_time, replace_ttl)

    def reacquire(self) -> bool:
        """Extend this thread's lease to its whole TTL from now on; see ``Lease.reacquire``."""
        return self._required_lease().lease.reacquire()

    async def areacquire(self) -> bool:
        """Do what ``reacquire`` does without blocking the event loop."""
        return await self._required_lease().lease.areacquire()

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
        return self._backend().count_holders(self.name) >= self._request.limit

    @twin(locked, on_worker)
    def alocked(self) -> None:
        """Do what ``locked`` does without blocking the event loop."""

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"


@contextmanager
def _releasing_at_end(lease: Lease, *, failed: bool) -> Iterator[None]:
    """Release at the end of a block; raise no error that would hide a more important one.

    An error of the block itself comes first. A block that was protected to its end has done its work: a release that
    fails then delays others until the TTL ends, and is no reason to do the work again.
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
