"""Acquire a key, or wait for it: one flow for threads and for event loops.

::

    acquire ──▶ acquired, or final: done
      └──▶ poll with backoff ──▶ after a while join the wait queue, poll once more, wait for a notification ──▶ poll

A waiting call also checks, without the store, whether the process that has the key is gone, and then takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeGuard

from cronsensus.errors import StoreError
from cronsensus.lock.drive import Flow, Pause
from cronsensus.lock.worker_pool import submit_act
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.once.call_key import CallKey
from cronsensus.once.claims import Claims
from cronsensus.once.waiters import JOIN_AFTER
from cronsensus.outside.owned_claim import OwnedClaim, Ticket
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.once")

FIRST_PAUSE = 0.002
GROWTH = 1.5
LONGEST_PAUSE = 0.25
"""First, growth and longest of the seconds between two polls of a call that is not notified."""
POLL_IN_QUEUE = 0.5
"""Seconds after which a call in the wait queue polls without a notification, which may be lost."""

AcquireResult = OwnedClaim | Occurrence | None


def acquire(  # noqa: PLR0917 - it is one call
    claims: Claims,
    call_key: CallKey,
    ticket: Ticket,
    patience: float | None,
    should_stop: Callable[[], bool] | None = None,
    chain: tuple[tuple[str, str], ...] = (),
) -> Flow[AcquireResult]:
    """Acquire the occurrence; or return it if it is final, or still runs after ``patience`` seconds.

    ``None``: it was pruned, or its job is paused.

    Args:
        claims: of this process.
        call_key: the occurrence.
        ticket: of the call that it is for.
        patience: seconds; ``None``: no limit.
        should_stop: whether to stop waiting; checked after each poll, and when ``Waiters.wake_all`` is called.
        chain: names of the claims that the caller itself holds.
    """
    result: AcquireResult = yield lambda: claims.acquire_claim(call_key, ticket)
    if not _is_open(result):
        return result
    wait = _Waiting(claims, result, patience, should_stop)
    try:
        if not wait.is_over:
            claims.note_waiting(chain, call_key.name)
        while _is_open(result):
            if (yield partial(wait.is_free, result)):
                result = yield lambda: claims.acquire_claim(call_key, ticket)
                if not _is_open(result):
                    break
            if wait.is_over:
                break
            yield from wait.wait_for_reason()
            result = yield partial(claims.read_occurrence, call_key)
            if result is None:
                result = yield lambda: claims.acquire_claim(call_key, ticket)
        if isinstance(result, OwnedClaim):
            wait.note_won()
        yield wait.stop_waiting
    finally:
        claims.end_waiting(chain, call_key.name)
        if not wait.is_ended:  # the caller is gone
            submit_act(wait.stop_waiting)
    return result


def release_claim(answer: object, claims: Claims) -> None:
    """Release the claim that was acquired for a cancelled caller."""
    if isinstance(answer, OwnedClaim):
        claims.settle_unneeded(answer)


def _is_open(result: AcquireResult) -> TypeGuard[Occurrence]:
    return isinstance(result, Occurrence) and not result.state.final


class _Waiting:
    """A caller's wait for an occurrence that another call runs."""

    def __init__(
        self, claims: Claims, occurrence: Occurrence, patience: float | None, should_stop: Callable[[], bool] | None
    ) -> None:
        self._claims = claims
        self._clock = claims.clock
        now = self._clock.monotonic()
        self._until = float("inf") if patience is None else now + patience
        self._should_stop = should_stop or (lambda: False)
        self._waiter = claims.waiters.add_waiter(occurrence.id)
        self._joins_at = now + JOIN_AFTER if claims.waiters.can_be_notified else float("inf")
        self._has_joined = self._has_won = self.is_ended = False
        self._pause = FIRST_PAUSE
        self._holder: SessionView | None = None
        self._holder_session: str | None = None
        self._read_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether to wait no longer: the time is over, or the caller should stop."""
        return self._clock.monotonic() >= self._until or self._should_stop()

    def is_free(self, occurrence: Occurrence) -> bool:
        """Whether the occurrence may be claimed: it has no holder, or its holder has died. Reads the store rarely."""
        if occurrence.state is State.PENDING:
            return True
        now = self._clock.monotonic()
        holder = self._holder
        stale = holder is None or now >= self._read_at + holder.expires_in.total_seconds()
        if occurrence.session != self._holder_session or stale:
            self._holder_session, self._read_at = occurrence.session, now
            self._holder = holder = self._claims.find_session(occurrence.session)
        return self._claims.reclaim_if_dead(holder)

    def wait_for_reason(self) -> Generator[Callable[[], None] | Pause, bool, None]:
        """Wait for a reason to poll: a notification, a dead holder, the next poll, or the timeout."""
        if not self._has_joined and self._clock.monotonic() >= self._joins_at:
            yield self._join_queue
            return  # it may have ended before the queue was joined
        poll_at = min(self._until, self._clock.monotonic() + (POLL_IN_QUEUE if self._has_joined else self._pause))
        self._pause = min(self._pause * GROWTH, LONGEST_PAUSE)
        while (seconds_left := poll_at - self._clock.monotonic()) > 0:
            if (yield Pause(self._waiter, min(seconds_left, self._waiter.nap))):
                self._has_joined = False  # a notification takes the waiter out of the queue
                return
            if self._should_stop() or self._claims.is_gone(self._holder):
                return

    def _join_queue(self) -> None:
        try:
            self._waiter.join_queue()
            self._has_joined = True
        except StoreError as error:
            _log.debug("this process cannot join the wait queue, and polls: %s", error)
            self._joins_at = float("inf")

    def note_won(self) -> None:
        """Record that the caller has acquired the occurrence; other waiters are notified when it ends."""
        self._has_won = True

    def stop_waiting(self) -> None:
        """Stop waiting, and pass an unused notification on."""
        self.is_ended = True
        self._claims.waiters.remove_waiter(self._waiter, pass_on=not self._has_won)
