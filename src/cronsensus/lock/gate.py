"""Where a lock is held: what ``Lock`` asks of a store, of a majority of Redis servers, of files."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from datetime import timedelta

from cronsensus.lock.lease import Lease, Place
from cronsensus.lock.seat import Seat
from cronsensus.lock.working import submit


class Trying:
    """What is under way to acquire a lock, so that nothing of it is left if an exception comes in between."""

    __slots__ = ("lease", "seat")

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.seat: Seat | None = None

    def give_up(self, *, wait: bool = False) -> None:
        """Free what was acquired, and wait no more: the caller was interrupted. Without ``wait`` in the background."""
        if self.seat is not None:
            self.seat.give_up()
        if self.lease is None:
            return
        if wait:
            self.lease.abandon_now()
        else:
            submit(self.lease.abandon)


@dataclass(slots=True, kw_only=True)  # not frozen: one is made for each acquire, and that takes four times as long
class Wanted:
    """Which lock is wanted, and how. Not changed once it is made.

    Attributes:
        ttl: how long it lasts without a renewal.
        limit: how many may hold it.
        renew: keep it for as long as this process lives.
        bound: to the thread that asks.
        trying: what becomes of it.
    """

    name: str
    ttl: timedelta
    limit: int
    renew: bool
    bound: bool
    trying: Trying = field(default_factory=Trying, compare=False)

    def by(self, trying: Trying, *, bound: bool) -> Wanted:
        """Return the same, for one caller; ``dataclasses.replace`` takes five times as long."""
        return Wanted(name=self.name, ttl=self.ttl, limit=self.limit, renew=self.renew, bound=bound, trying=trying)


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
