"""Locks held by a majority of independent Redis masters: the algorithm Redlock, with a token.

::

    take    all at once: SET the lock unless it is taken; each answers with the highest token it knows
            ├─ a majority has it: the token is one more than the highest of theirs
            └─ no majority can have it: free it everywhere
    note    all at once: keep that token, where the lock is still ours; a majority must
    valid   for TTL - what this took - a margin that is wider than the clocks drift apart in that time

Why the token grows from holder to holder: the next holder's majority shares a server with the majority that kept this
holder's token. On that server the next holder got the lock after this holder's time was over, so it reads the token. A
server that was restarted empty has lost both. Then its clock stands in: no token is less than the time in microseconds,
so the token grows as long as the servers' clocks differ by less than the time between two holders.

The limits are in ``docs/locks.md``: nothing here is safe against clocks that jump, or a server that loses data.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from cronsensus.errors import StoreUnavailable
from cronsensus.integrations.redlock_client import SLOWEST, Masters, RedlockQueues, Round, Script
from cronsensus.lock.backend import LockBackend, LockRequest
from cronsensus.lock.lease import RENEWALS, Lease, LeaseRef
from cronsensus.lock.local_queue import LocalQueue, QueuedWaiter
from cronsensus.lock.waiter import Waiter
from cronsensus.lock.worker_pool import submit_renewal
from cronsensus.membership.lease_monitor import LeaseMonitor
from cronsensus.membership.liveness import is_gone, started_at
from cronsensus.membership.timer import Deadline
from cronsensus.model.job import check_name
from cronsensus.stores.base import Store
from cronsensus.stores.boot import host_identity
from cronsensus.stores.wait_queues import WaitQueues
from cronsensus.timing.clock import Clock, SystemClock

RETRY_INTERVAL = 0.25
"""Seconds after which a waiter tries without a notification: it may be lost, or the holder may be dead."""
AFTER_A_TIE = (0.003, 0.03)
"""Bounds of the random seconds before the next try after a tie: several had some masters each, and none a majority.
The upper bound doubles with each tie, so that the same processes do not collide again."""
MOST_TIES = 4
TOKEN_KEPT = timedelta(days=7)
"""The time for which a server keeps the last token of an unused lock; then its clock stands in."""
_MILLISECOND = timedelta(milliseconds=1)

# KEYS: the lock, its last token, its channel. A lock's value names its holder.
_TAKE = Script("""
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return { 0, holder }
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
local known = tonumber(redis.call('GET', KEYS[2]) or 0)
return { 1, string.format('%.0f', math.max(known, time[1] * 1000000 + time[2])) }
""")
_NOTE = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if tonumber(redis.call('GET', KEYS[2]) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
""")
# If a server has lost the lock, it is set anew but does not count: others may have had it there meanwhile.
_EXTEND = Script("""
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
if not holder then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 0
""")
_FREE = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.call('PUBLISH', KEYS[3], ARGV[2])
end
return 1
""")
_LOOK = Script("return redis.call('GET', KEYS[1])")


class RedlockBackend(LockBackend):
    """The locks of a set of masters in a namespace."""

    def __init__(self, urls: Sequence[str], namespace: str = "default", clock: Clock | None = None) -> None:
        """Use the masters that ``urls`` name for locks; nothing is connected yet.

        Raises:
            InvalidOption: a URL without a server, or servers that cannot make a majority.
        """
        super().__init__()
        self.clock = clock or SystemClock()
        self._masters = Masters(urls, self.clock)
        digest = hashlib.blake2b(check_name(namespace, what="namespace").encode(), digest_size=8).hexdigest()
        self._space = f"{{{self._masters.urls[0].prefix}:redlock:{digest}}}"
        self._process = f"{host_identity()} {os.getpid()} {started_at(os.getpid()) or 0}"
        self._monitor = LeaseMonitor(self.clock)
        self._renewals: dict[LeaseRef, Deadline] = {}
        self._listened = itertools.count()
        self._queue = LocalQueue(lambda: self)

    def close(self) -> None:
        """Close connections."""
        self._queue.close()
        self._monitor.close()
        self._masters.close()

    # --- taking -------------------------------------------------------------------------------------------------------

    def try_lock(self, request: LockRequest, waiter: Waiter | None = None, *, look: bool = True) -> Lease | None:  # noqa: ARG002 - costs nothing
        """Try to acquire the lock at a majority; if it is refused, check whether its holders live."""
        lease, holders = self._try(request)
        if self._reclaim_dead(request.name, holders):
            lease, holders = self._try(request)
        if lease is None and isinstance(waiter, RedlockWaiter):
            waiter.at_most = waiter.after(tie=max(holders.values(), default=0) < self._masters.quorum)
        return lease

    def _try(self, request: LockRequest) -> tuple[Lease | None, Counter[str]]:
        """Return the lease, or else the other holders, each with the number of its masters."""
        me = f"{self._process} {secrets.token_hex(10)}"
        asked_at = self.clock.monotonic()
        patience = _patience(request.ttl)
        keys, mine = self._keys(request.name), me.encode()
        # A process that has some masters and waits for slow ones blocks all others, so it hurries.
        taken = self._masters.ask(
            _TAKE,
            keys,
            mine,
            _millis(request.ttl),
            enough=self._decided(_granted),
            worth_asking_for=patience,
            hurried=True,
        )
        granted = [int(answer[1]) for answer in taken.said.values() if _granted(answer)]
        if len(granted) >= self._masters.quorum:
            token = max(granted) + 1
            noted = self._masters.ask(
                _NOTE,
                keys,
                mine,
                b"%d" % token,
                _millis(TOKEN_KEPT),
                enough=self._decided(bool),
                worth_asking_for=patience,
            )
            if self._count(noted, bool) >= self._masters.quorum:
                lease = self._held(request, me, token, asked_at)
                if lease.trusted:
                    return lease, Counter()
                lease.end()
        self._masters.ask(_FREE, keys, mine, b"", enough=lambda _: True, worth_asking_for=request.ttl.total_seconds())
        self._require_majority(taken)
        return None, Counter(answer[1].decode() for answer in taken.said.values() if not _granted(answer))

    def _held(self, request: LockRequest, me: str, token: int, asked_at: float) -> Lease:
        holder = self.name_holder(f"{socket.gethostname()}:{os.getpid()}")
        lease = request.lease_of_grant(self, me, holder=holder, token=token, asked_at=asked_at)
        lease.register(self._monitor.monitor_lease)
        if request.renew:
            lease.register(lambda ref: self._renew_in(ref, request.ttl.total_seconds() / RENEWALS))
        return lease

    def _renew_in(self, lease: LeaseRef, seconds: float) -> None:
        def step() -> None:
            wait = lease.renew_when_due()
            if lease in self._renewals:
                if lease.lost:
                    del self._renewals[lease]
                else:
                    self._renew_in(lease, wait)

        # The timer's thread must not wait for servers, so renewals have their own threads.
        self._renewals[lease] = self._monitor.timer.call_after(seconds, lambda: submit_renewal(step))

    def _reclaim_dead(self, name: str, holders: Counter[str]) -> bool:
        """Free the locks of processes of this host that are gone; ``True``: there was such a lock."""
        dead = [holder for holder in holders if _is_dead(holder)]
        for holder in dead:
            self._masters.ask(_FREE, self._keys(name), holder.encode(), b"", enough=self._decided(lambda _: True))
        return bool(dead)

    # --- holding ------------------------------------------------------------------------------------------------------

    def free_lock(self, lease: Lease) -> bool:
        """Free a lock everywhere; it was ours if it was so at a majority.

        Raises:
            StoreUnavailable: too few masters answered to say.
        """
        freed = self._masters.ask(
            _FREE,
            self._keys(lease.name),
            _holder(lease),
            lease.name.encode(),
            enough=self._decided(bool),
            worth_asking_for=lease.ttl.total_seconds(),
        )
        return self._majority_of(freed)

    def extend_lock(self, lease: Lease, ttl: timedelta, *, by: Store | None = None) -> bool:  # noqa: ARG002 - no such thing
        """Extend a lock, at a majority.

        Raises:
            StoreUnavailable: too few masters answered to say.
        """
        keys, mine = self._keys(lease.name), _holder(lease)
        extended = self._masters.ask(
            _EXTEND, keys, mine, _millis(ttl), enough=self._decided(bool), worth_asking_for=SLOWEST
        )
        if self._majority_of(extended):
            return True
        self._masters.ask(_FREE, keys, mine, b"", enough=lambda _: True, worth_asking_for=ttl.total_seconds())
        return False

    def watch_lease(self, lease: LeaseRef) -> None:
        """Have the monitor notice its end."""
        self._monitor.monitor_lease(lease)

    def forget_lease(self, lease: LeaseRef) -> None:
        """Renew and watch this no more."""
        self._monitor.drop_lease(lease)
        renewal = self._renewals.pop(lease, None)
        if renewal is not None:
            renewal.cancel()

    def is_held(self, lease: Lease) -> bool:
        """Whether a majority says that it is ours."""
        mine = _holder(lease)
        seen = self._masters.ask(_LOOK, self._keys(lease.name), enough=self._decided(lambda holder: holder == mine))
        self._require_majority(seen)
        return self._count(seen, lambda holder: holder == mine) >= self._masters.quorum

    def count_holders(self, name: str) -> int:
        """Return 1 if it is taken at a majority."""
        seen = self._masters.ask(_LOOK, self._keys(name), enough=lambda so_far: not so_far.pending)
        self._require_majority(seen)
        votes = Counter(holder for holder in seen.said.values() if holder)
        return int(max(votes.values(), default=0) >= self._masters.quorum)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def make_waiter(self, name: str) -> Waiter:
        """Return a waiter."""
        return RedlockWaiter(self.clock, self._queue, name, at_most=RETRY_INTERVAL)

    def wait_queues(self) -> WaitQueues:
        """Return the wait queues, on one of the masters; on another one each time."""
        urls, first = self._masters.urls, next(self._listened)
        return RedlockQueues([urls[(first + number) % len(urls)] for number in range(len(urls))], self._keys("")[2])

    def wake_next(self, name: str) -> None:
        """Do nothing: an unlock notifies all waiters."""

    # --- majorities ---------------------------------------------------------------------------------------------------

    def _keys(self, name: str) -> tuple[bytes, bytes, bytes]:
        return (
            f"{self._space}:lock:{name}".encode(),
            f"{self._space}:token:{name}".encode(),
            f"{self._space}:free".encode(),
        )

    def _decided(self, is_yes: Callable[[Any], bool]) -> Callable[[Round], bool]:
        """Return what says whether a majority has said yes; or none can any more, as a majority has made sure."""

        def decided(so_far: Round) -> bool:
            quorum, said, yes = self._masters.quorum, len(so_far.said), self._count(so_far, is_yes)
            if yes + so_far.pending >= quorum:
                return yes >= quorum
            return said >= quorum or said + so_far.pending < quorum

        return decided

    @staticmethod
    def _count(asked: Round, is_yes: Callable[[Any], bool]) -> int:
        return sum(is_yes(answer) for answer in asked.said.values())

    def _majority_of(self, asked: Round) -> bool:
        """Whether a majority said yes.

        Raises:
            StoreUnavailable: too few answered to say.
        """
        yes = self._count(asked, bool)
        if yes >= self._masters.quorum:
            return True
        if len(asked.said) - yes > len(self._masters) - self._masters.quorum:
            return False
        raise self._too_few(asked)

    def _require_majority(self, asked: Round) -> None:
        if len(asked.said) < self._masters.quorum:
            raise self._too_few(asked)

    def _too_few(self, asked: Round) -> StoreUnavailable:
        said, quorum = len(asked.said), self._masters.quorum
        what = "nothing can be locked until they do" if said < quorum else "they do not agree, so the others decide"
        silent = [
            f"{url.where} ({asked.failed.get(number, 'no answer in time')})"
            for number, url in enumerate(self._masters.urls)
            if number not in asked.said
        ]
        return StoreUnavailable(
            f"{said} of {len(self._masters)} masters answered, and a majority is {quorum}; {what}. Without an answer: "
            f"{'; '.join(silent)}"
        )


class RedlockWaiter(QueuedWaiter):
    """A waiter for a majority."""

    _ties = 0

    def after(self, *, tie: bool) -> float:
        """Return the seconds until the next try: after a ``tie`` soon, and random, unlike those of other waiters."""
        self._ties = min(self._ties + 1, MOST_TIES) if tie else 0
        return random.uniform(AFTER_A_TIE[0], AFTER_A_TIE[1] * 2 ** (self._ties - 1)) if tie else RETRY_INTERVAL


def _granted(answer: Any) -> bool:
    return bool(answer[0])


def _millis(time: timedelta) -> bytes:
    return b"%d" % max(1, time // _MILLISECOND)  # Redis refuses a key that lasts for no time


def _patience(ttl: timedelta) -> float:
    """Return the seconds after which a server's yes comes too late to be of use."""
    return min(SLOWEST, ttl.total_seconds() / 4)


def _holder(lease: Lease) -> bytes:
    return str(lease.grant).encode()


def _is_dead(holder: str) -> bool:
    """Whether the process that a lock's value names is certainly gone."""
    host, pid, started, *_ = [*holder.split(" "), "", "", ""]
    return pid.isdigit() and started.isdigit() and is_gone(host, int(pid), int(started))
