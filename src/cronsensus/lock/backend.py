"""The backend of a ``Lock``: a store, a majority of Redis servers, or files."""

from __future__ import annotations

import itertools
import threading
from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cronsensus.lock.lease import Lease, LeaseBackend
from cronsensus.lock.waiter import Waiter
from cronsensus.model.session import LONGEST_HOLDER


@dataclass(slots=True, kw_only=True)  # not frozen: each acquire makes one, and a frozen one takes four times as long
class LockRequest:
    """Which lock to acquire, and how. Treat as immutable.

    Attributes:
        ttl: how long it lasts without a renewal.
        limit: how many may hold it.
        renew: renew it for as long as this process lives.
        bound: to the thread that asks.
    """

    name: str
    ttl: timedelta
    limit: int
    renew: bool
    bound: bool

    def lease_of_grant(
        self, backend: LeaseBackend, grant: object, *, holder: str, token: int, asked_at: float, **more: Any
    ) -> Lease:
        """Return the lease of a grant; ``more``: as ``Lease``."""
        return Lease(
            backend,
            name=self.name,
            holder=holder,
            token=token,
            asked_at=asked_at,
            bound=self.bound,
            grant=grant,
            **{"ttl": self.ttl, "renew": self.renew, **more},
        )


class LockBackend(LeaseBackend):
    """Where locks are held. Safe to share between threads; its clock is that of this process."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def name_holder(self, process: str) -> str:
        """Return a name for a holder: of the process, the thread, and the call."""
        return f"{process}/{threading.current_thread().name}/{next(self._numbers)}"[-LONGEST_HOLDER:]

    @abstractmethod
    def try_lock(self, request: LockRequest, waiter: Waiter | None = None, *, look: bool = True) -> Lease | None:
        """Try once to take the lock; ``None``: it is held elsewhere, and ``waiter`` learns by which sessions.

        A lock of a dead process is free. With ``look``, holders on this host are checked at once; a caller that tries
        again soon need not check on its first try.

        Raises:
            StoreError: it cannot be asked.
        """

    @abstractmethod
    def count_holders(self, name: str) -> int:
        """Return how many hold the lock."""

    @abstractmethod
    def make_waiter(self, name: str) -> Waiter:
        """Return a waiter, which is woken when the lock may be free."""

    @abstractmethod
    def close(self) -> None:
        """Release all that is held and close connections. Idempotent."""
