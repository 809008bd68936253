"""Events and conditions that stay intact if a signal handler raises.

CPython runs signal handlers in the main thread between any two calls, and they may raise there: Ctrl-C, Celery's soft
time limit. ``with lock`` is safe for a lock that is written in C: no handler runs between taking it and the block. The
``threading.Condition`` and ``threading.Event`` of the standard library take theirs in a method written in Python. A
handler that raises in there leaves the lock locked for ever, and with it all threads that notify or wait.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING


def new_lock() -> threading.Lock:
    """Return a lock of the present kind: gevent may have patched locks after this module was imported."""
    return threading.Lock()


class Event(threading.Event):
    """An event without a lock that could stay locked."""

    def __init__(self) -> None:
        self._set = False
        self._sleepers: list[threading.Lock] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'set' if self._set else 'unset'}>"

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it, and wake those that wait."""
        self._set = True
        for sleeper in list(self._sleepers):
            with suppress(RuntimeError):  # another thread has woken it
                sleeper.release()

    def clear(self) -> None:
        """Reset it."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds; return whether it was."""
        if self._set:
            return True
        sleeper = new_lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        try:
            # Checked once more: it may have been set before there was a thread to wake.
            return bool(self._set) or _sleep(sleeper, timeout)
        finally:
            self._sleepers.remove(sleeper)


class Condition(threading.Condition):
    """A condition that holds its lock exactly as long as its block. Do not wait while it is held twice."""

    if not TYPE_CHECKING:
        # The lock's own methods, which are called without a look for signals before the block has begun. They are got
        # without one, too, and without a call of Python's: conditions are entered ten times for each run.
        __enter__ = property(attrgetter("_lock.__enter__"))
        __exit__ = property(attrgetter("_lock.__exit__"))

    _lock: threading.Lock
    _waiters: list[threading.Lock]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until notified, or for so many seconds; return whether it was notified."""
        if not self._is_owned():  # type: ignore[attr-defined]
            raise RuntimeError("cannot wait on un-acquired lock")
        waiter = new_lock()
        waiter.acquire()
        self._waiters.append(waiter)
        notified = False
        try:
            self._lock.release()
            notified = _sleep(waiter, timeout)
            return notified
        finally:
            self._lock.acquire()
            if not notified:
                with suppress(ValueError):
                    self._waiters.remove(waiter)


def _sleep(locked: threading.Lock, timeout: float | None) -> bool:
    """Wait until another thread releases a lock; return whether it did."""
    if timeout is None:
        return locked.acquire()
    return locked.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
