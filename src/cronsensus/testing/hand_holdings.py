"""The locks and guarded calls of a process of a test: of a node, or of the test itself.

They are those of a real process, each with its own session. The agenda renews and ends them, and a waiter lets virtual
time pass. Locks and claims of a process that died stay held until their lease ends, as after ``kill -9`` on another
host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from cronsensus.lock.backend import LockRequest
from cronsensus.lock.in_store import StoreLockBackend
from cronsensus.lock.lease import Lease
from cronsensus.lock.local_queue import LocalQueue, QueuedWaiter
from cronsensus.lock.waiter import Waiter
from cronsensus.membership.heartbeat import LONGEST_WAIT, SHORTEST_WAIT, Heartbeat, Member
from cronsensus.membership.lease import SessionLease
from cronsensus.membership.lease_monitor import LeaseMonitor
from cronsensus.membership.timer import Timer
from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim, Settled
from cronsensus.model.session import LockView, SessionView
from cronsensus.node.run import current_run
from cronsensus.once.claims import Claims
from cronsensus.once.waiters import Waiters
from cronsensus.outside.claims import Owned
from cronsensus.outside.owned_claim import OwnedClaim, Ticket
from cronsensus.process.interrupts import Event
from cronsensus.testing.hand_executor import Died
from cronsensus.testing.virtual_time import FAR, Crank, Deadlines

if TYPE_CHECKING:
    from cronsensus.testing.stage import HandTurned, Stage

RETRY_INTERVAL = 60.0
"""Most seconds of virtual time between two tries to get a lock; a release and the end of a lease wake the waiter."""
_SHORTEST = 2e-6
"""Time is whole microseconds: a shorter wait would be repeated for ever without any time passing."""
LONGEST_WAIT_FOR_OTHERS = 86_400.0
"""Seconds of virtual time after which a wait for a lock or a key counts as endless."""


class HandHoldings:
    """The locks and claims of a process of a test; made at its first lock or guarded call."""

    def __init__(self, kit: Stage, process: HandTurned) -> None:
        self._kit = kit
        self._process = process
        self._heartbeat = _HandHeartbeat(kit, process)
        self._locks: HandLockBackend | None = None
        self._claims: HandClaims | None = None

    def lock_backend(self) -> StoreLockBackend:
        """Return the holder of its locks."""
        if self._locks is None:
            self._locks = HandLockBackend(self._kit, self._process, self._heartbeat)
        return self._locks

    def claims(self) -> Claims:
        """Return the holder of its claims of guarded functions."""
        if self._claims is None:
            self._claims = HandClaims(self._kit, self._process, self._heartbeat)
        return self._claims

    def close(self) -> None:
        """Release all locks and claims, unless the process has died."""
        if self._process.gone:
            return
        for holder in (self._locks, self._claims):
            if holder is not None:
                holder.close()


class HandLockBackend(StoreLockBackend):
    """The locks of a process."""

    def __init__(self, kit: Stage, process: HandTurned, heartbeat: Heartbeat) -> None:
        super().__init__(kit.store, kit.clock, name=process.name, heartbeat=heartbeat)
        self._kit = kit
        self._process = process
        self._host.monitor = _make_monitor(kit, process)

    def try_lock(self, request: LockRequest, waiter: Waiter | None = None, *, look: bool = True) -> Lease | None:
        """Try to acquire the lock."""
        _refuse_dead(self._process)
        return super().try_lock(request, waiter, look=look)

    def free_lock(self, lease: Lease) -> bool:
        """Free a lock, unless the process that should do so has died: then it ends with its lease."""
        if self._process.gone:
            return True
        freed = super().free_lock(lease)
        self._kit.wake_waiters(lease.name)
        return freed

    def make_waiter(self, name: str) -> Waiter:
        """Return a waiter."""
        return HandWaiter(self._kit, name, f"the lock {name!r}")

    def _reclaim_dead(self, holders: Sequence[LockView]) -> bool:
        del holders  # the pid of a dead process of a test is that of the test, which lives
        return False


class HandClaims(Claims):
    """The guarded calls of a process."""

    def __init__(self, kit: Stage, process: HandTurned, heartbeat: Heartbeat) -> None:
        self._kit = kit
        self._process = process
        super().__init__(
            kit.store,
            kit.clock,
            name=process.name,
            heartbeat=heartbeat,
            release=lambda: kit.scheduler.release,
            lease=kit.scheduler.settings.lease,
            fast_evidence=False,
        )

    def _set_up(self) -> None:
        super()._set_up()
        self.waiters = self._kit.call_waiters
        self._host.monitor = self._monitor = _make_monitor(self._kit, self._process)

    def close(self) -> None:
        """Close the session; the waiters are the kit's."""
        self._host.close()

    def _request_claims(
        self, asks: Sequence[Ask | AskNamed], make_ticket: Callable[[], Ticket]
    ) -> list[list[Owned | NotWon]]:
        _refuse_dead(self._process)
        return super()._request_claims(asks, make_ticket)

    def _hold_claim(self, claim: Claim, session: SessionLease, ticket: Ticket) -> Owned:
        held, ticket = super()._hold_claim(claim, session, ticket)
        self._kit.note_guarded(held.run, self._process)
        return held, ticket

    def record_end(self, held: OwnedClaim, end: End) -> Settled:
        """Record how it ended, unless the process has died."""
        _refuse_dead(self._process)
        return super().record_end(held, end)

    def settle_unneeded(self, held: OwnedClaim) -> None:
        """Record an end that nobody here waits for, unless the process has died."""
        if not self._process.gone:
            super().settle_unneeded(held)

    def drop_claim(self, held: OwnedClaim) -> None:
        """Drop a claim."""
        self._kit.drop_guarded(held.run)
        super().drop_claim(held)

    def is_gone(self, session: SessionView | None) -> bool:
        """Answer no: the end of its lease says it."""
        del session
        return False


class HandWaiters(Waiters):
    """The waits of guarded calls for one another, over all processes of a kit."""

    can_be_notified = False

    def __init__(self, kit: Stage) -> None:
        super().__init__(kit.clock, lambda: kit.store)
        self._kit = kit

    def add_waiter(self, occurrence: int) -> QueuedWaiter:
        """Return a waiter for the end of an occurrence."""
        waiter = HandWaiter(self._kit, f" once {occurrence}", "the end of a guarded call")
        with self._lock:
            self._waiters.setdefault(occurrence, set()).add(waiter)
        return waiter


class HandWaiter(QueuedWaiter):
    """Waits in virtual time; woken when what it waits for is freed in any process of the kit."""

    nap = RETRY_INTERVAL

    def __init__(self, kit: Stage, name: str, what: str) -> None:
        super().__init__(kit.clock, cast("LocalQueue", None), name, at_most=RETRY_INTERVAL)
        self._kit = kit
        self._what = what
        self._since = kit.clock.monotonic()

    def join_queue(self) -> None:
        """Wake this waiter from now on."""
        self._kit.waiters.setdefault(self.name, set()).add(self)

    def leave_queue(self) -> None:
        """Wake this waiter no more."""
        self._kit.waiters.get(self.name, set()).discard(self)

    def give_up(self) -> None:
        """Leave; who is next was woken, too."""
        self.leave_queue()

    def note_acquired(self) -> None:
        """Leave."""
        self.leave_queue()

    def is_abandoned(self) -> bool:
        """Answer no: the end of its lease says it."""
        return False

    def wait(self, seconds: float) -> bool:
        """Let virtual time pass until it is woken, or until the timeout."""
        until = self._clock.monotonic() + max(seconds, _SHORTEST)
        while not self._woken.is_set() and (left := until - self._clock.monotonic()) > 0:
            self._refuse_endless()
            self._kit.pass_while_blocked(max(left, _SHORTEST), self._what)
        return self._was_woken()

    async def await_(self, seconds: float) -> bool:
        """Do the same in a coroutine."""
        self._refuse_endless()
        if current_run() is not None:  # timers of a job are virtual
            return await super().await_(max(seconds, _SHORTEST))
        until = self._clock.monotonic() + seconds
        while not self._woken.is_set() and (left := until - self._clock.monotonic()) > 0:
            await self._kit.apass_time(max(left, _SHORTEST))
        return self._was_woken()

    def _was_woken(self) -> bool:
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def _refuse_endless(self) -> None:
        if self._clock.monotonic() - self._since > LONGEST_WAIT_FOR_OTHERS:
            self._kit.fail(f"{self._what} was waited for for a day of virtual time, and nobody frees it")


class _HandHeartbeat(Heartbeat):
    """Renews by the agenda, without a thread."""

    def __init__(self, kit: Stage, process: HandTurned) -> None:
        super().__init__(kit.store, kit.clock)
        self._wake = cast("Event", Crank(kit.agenda, process, self._beat, SHORTEST_WAIT))

    def add_member(self, member: Member) -> None:
        """Renew the session of ``member`` from now on."""
        self._members[member] = None
        self._wake.set()

    def remove_member(self, member: Member) -> Callable[[float], None]:
        """Renew it no more."""
        self._members.pop(member, None)
        return lambda _: None

    def _beat(self) -> float:
        if not self._members:
            return FAR
        wait = self.renew_due(self._given)
        self._beats_at = self._clock.monotonic() + wait
        return min(wait, LONGEST_WAIT)


def _make_monitor(kit: Stage, process: HandTurned) -> LeaseMonitor:
    timer: Any = Deadlines(kit.agenda, process)
    return LeaseMonitor(kit.clock, cast("Timer", timer))


def _refuse_dead(process: HandTurned) -> None:
    """End the code of a dead process where it would reach the store."""
    if process.gone:
        raise Died
