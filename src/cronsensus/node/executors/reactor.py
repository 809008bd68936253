"""One thread that waits for pipes, timers, and what other threads hand to it.

Failure handling: an action that raises is logged, and the others go on.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable

from cronsensus.clock import Clock
from cronsensus.logger import Logger

logger = Logger(__name__)

Action = Callable[[], None]


class Reactor:
    """A thread that is started by the first ``post`` and ends by ``finish``.

    The methods that do not say otherwise are for that thread only.

    Args:
        round_off: called after each turn.
    """

    def __init__(self, name: str, clock: Clock, *, round_off: Action) -> None:
        self._name = name
        self._clock = clock
        self._round_off = round_off
        self._lock = threading.Lock()
        self._inbox: deque[Action] = deque()
        self._thread: threading.Thread | None = None
        self._ring = -1
        self._finished = False
        self._selector: selectors.BaseSelector
        self._timers: list[tuple[float, int, Action]] = []
        self._order = itertools.count()

    def post(self, action: Action) -> None:
        """Have ``action`` called soon. From any thread; never blocks. After ``finish`` nothing is called any more."""
        with self._lock:
            if self._finished:
                return
            self._inbox.append(action)
            if self._thread is None:
                self._selector = selectors.DefaultSelector()
                bell, self._ring = os.pipe()
                os.set_blocking(bell, False)
                os.set_blocking(self._ring, False)
                self._selector.register(bell, selectors.EVENT_READ, lambda: os.read(bell, 4096))
                self._thread = threading.Thread(target=self._turn, args=(bell,), name=self._name, daemon=True)
                self._thread.start()
            with contextlib.suppress(BlockingIOError):  # full: it rings already
                os.write(self._ring, b"\0")

    def join(self, timeout: float) -> None:
        """Wait for the thread's end. From any thread; at once from its own, or if it never started."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    @property
    def started(self) -> bool:
        """Whether there is, or was, a thread."""
        return self._thread is not None

    def watch(self, descriptor: int, action: Action, *, write: bool = False) -> None:
        """Call ``action`` whenever the descriptor can be read (or written)."""
        event = selectors.EVENT_WRITE if write else selectors.EVENT_READ
        with contextlib.suppress(KeyError):  # watched already
            self._selector.register(descriptor, event, action)

    def unwatch(self, descriptor: int) -> None:
        """Stop that; needed before the descriptor is closed."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(descriptor)

    def after(self, seconds: float, action: Action) -> None:
        """Call ``action`` in so many seconds."""
        heapq.heappush(self._timers, (self._clock.monotonic() + seconds, next(self._order), action))

    def finish(self) -> None:
        """End the thread after this turn."""
        with self._lock:
            self._finished = True

    def _turn(self, bell: int) -> None:
        try:
            while not self._finished:
                for key, _ in self._selector.select(self._nap()):
                    self._do(key.data)
                while self._timers and self._timers[0][0] <= self._clock.monotonic():
                    self._do(heapq.heappop(self._timers)[2])
                while self._inbox:
                    self._do(self._inbox.popleft())
                self._do(self._round_off)
        finally:
            with self._lock:
                self._finished = True
                self._selector.close()
                os.close(bell)
                os.close(self._ring)

    def _nap(self) -> float | None:
        if not self._timers:
            return None
        return max(0.0, min(self._timers[0][0] - self._clock.monotonic(), 3600.0))

    def _do(self, action: Action) -> None:
        try:
            action()
        except Exception:
            logger.exception("%s: an action failed", self._name)
