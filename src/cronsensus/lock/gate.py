"""Where a lock is held: what ``Lock`` asks of a store, of a majority of Redis servers, of files. Floor 5."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from cronsensus.lock.lease import Lease, Place
from cronsensus.lock.seat import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lock is wanted, and how.

    Attributes:
        ttl: how long it lasts without a renewal.
        limit: how many may hold it.
        renew: keep it for as long as this process lives.
        bound: to the thread that asks.
    """

    name: str
    ttl: timedelta
    limit: int
    renew: bool
    bound: bool


class Gate(Place):
    """One place where locks are held. Safe to share between threads; its clock is this process's."""

    @abstractmethod
    def take(self, wanted: Wanted, seat: Seat | None = None, *, look: bool = True) -> Lease | None:
        """Try to take the lock, once; ``None``: it is held by others, as who waits in ``seat`` may know.

        What a dead process held is free; where this host can tell, it is so at once, unless ``look`` says that the
        caller will come again to look.

        Raises:
            StoreError: it cannot be asked.
        """

    @abstractmethod
    def holders(self, name: str) -> int:
        """Return how many hold the lock."""

    @abstractmethod
    def seat(self, name: str) -> Seat:
        """Return a place to wait in until the lock may be free."""

    @abstractmethod
    def close(self) -> None:
        """Free all that is held, and let go of connections. Idempotent."""
