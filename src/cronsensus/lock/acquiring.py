"""Acquire a lock, and wait while it is held elsewhere. Threads and event loops share the code of the wait."""

from __future__ import annotations

from collections.abc import Generator

from cronsensus.lock.backend import LockBackend, LockRequest
from cronsensus.lock.drive import Flow, Pause, adrive_flow, drive_flow
from cronsensus.lock.lease import Lease
from cronsensus.lock.waiter import Waiter
from cronsensus.lock.worker_pool import on_worker


def acquire(
    backend: LockBackend, request: LockRequest, patience: float | None, what: str, instead: str
) -> Lease | None:
    """Take the lock; wait up to ``patience`` seconds (``None``: without end) while it is held elsewhere.

    Raises:
        StoreError: as ``LockBackend.try_lock``.
        ConfigurationError: as ``drive_flow``, which gets the rest.
    """
    waits = patience is None or patience > 0
    lease = backend.try_lock(request, look=not waits)
    if lease is not None or not waits:
        return lease
    return drive_flow(_acquire_by_waiting(backend, request, patience), what, instead)


async def aacquire(backend: LockBackend, request: LockRequest, patience: float | None) -> Lease | None:
    """Do what ``acquire`` does without blocking the event loop."""
    waits = patience is None or patience > 0
    lease = await on_worker(lambda: backend.try_lock(request, look=not waits), _release_grant)
    if lease is not None or not waits:
        return lease
    return await adrive_flow(_acquire_by_waiting(backend, request, patience), _release_grant)


def _acquire_by_waiting(backend: LockBackend, request: LockRequest, patience: float | None) -> Flow[Lease | None]:
    """Wait for a lock that was refused, and acquire it."""
    lease: Lease | None
    until = float("inf") if patience is None else backend.clock.monotonic() + patience
    waiter = backend.make_waiter(request.name)
    try:
        while True:
            yield waiter.join_queue
            lease = yield lambda: _try_lock(backend, request, waiter)
            if lease is not None or backend.clock.monotonic() >= until:
                return lease
            yield from _wait_for_reason(backend, waiter, until)
    finally:
        waiter.give_up()


def _try_lock(backend: LockBackend, request: LockRequest, waiter: Waiter) -> Lease | None:
    news, waiter.news = waiter.news, False  # a later release sends a new notification
    try:
        lease = backend.try_lock(request, waiter)
    except BaseException:
        waiter.news = news
        raise
    if lease is not None:
        waiter.note_acquired()
    return lease


def _wait_for_reason(backend: LockBackend, waiter: Waiter, until: float) -> Generator[Pause, bool, None]:
    """Wait for a reason to try again: a notification, a dead holder, the next poll, or the timeout."""
    look_at = min(until, backend.clock.monotonic() + waiter.seconds_to_retry)
    while (left := look_at - backend.clock.monotonic()) > 0:
        if (yield Pause(waiter, min(left, waiter.nap))) or waiter.is_abandoned():
            return


def _release_grant(answer: object) -> None:
    """Release what was acquired for a caller that was cancelled."""
    if isinstance(answer, Lease):
        answer.abandon()
