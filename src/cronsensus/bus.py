"""Deliver events to subscribers, even if a subscriber raises or blocks.

::

    emit() ──▶ queue ──▶ a thread of its own ──▶ subscribers, one after the other
                 │
                 └── full: dropped, counted and logged

A node's rounds, its heartbeat and executors' threads emit. So ``emit`` neither calls subscribers nor waits for them.
The thread exists only while there are events, and is a daemon: a subscriber that never returns holds up no exit.
"""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from cronsensus.events import Event, StoreVerb, Subscriber, kinds_of
from cronsensus.process.interrupts import Event as Signal
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import Clock, SystemClock

MOST_WAITING = 10_000
"""Events that wait for subscribers at most; further events are dropped."""
IDLE_SECONDS = 10.0
"""Seconds that the thread stays without events."""
LOG_EVERY = 60.0
"""Seconds between two lines of the log about dropped events."""

_log = Logger("cronsensus.events")


class Bus:
    """The subscribers of one scheduler, and the events that wait for them.

    Attributes:
        dropped: how many events were dropped so far, because subscribers did not keep up.
    """

    def __init__(self, clock: Clock | None = None, node: Callable[[], str] = str) -> None:
        """Make a bus without subscribers.

        Args:
            clock: measures the verbs of the store.
            node: gives the node's name for the events of these verbs.
        """
        self._clock = clock or SystemClock()
        self._node = node
        self._subscribers: dict[type[Event], tuple[Subscriber, ...]] = {}
        self._raised: list[tuple[Subscriber, type[Event]]] = []
        self.forked()

    def forked(self) -> None:
        """Start anew in a forked child, with the same subscribers: it has neither the thread nor its events."""
        # Reentrant: a signal handler may call the store in the middle of an ``emit``.
        self._lock = threading.RLock()
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread_ended: Signal | None = None
        self._thread: int | None = None
        self._busy: Subscriber | None = None
        self.dropped: int = 0
        self._logged_dropped = 0
        self._logged_at = -LOG_EVERY

    # --- subscribers -------------------------------------------------------------------------------------------------

    def on(self, event: str | type[Event], function: Subscriber) -> None:
        """Call ``function`` with each such event from now on; once, however often it is subscribed.

        Raises:
            InvalidOption: there is no such event.
        """
        kinds = kinds_of(event)
        with self._lock:
            subscribers = self._subscribers
            added = {
                kind: (*subscribers.get(kind, ()), function)
                for kind in kinds
                if function not in subscribers.get(kind, ())
            }
            self._subscribers = {**subscribers, **added}

    def off(self, event: str | type[Event], function: Subscriber) -> bool:
        """Call ``function`` no more with such events; ``False``: it was not subscribed.

        Raises:
            InvalidOption: there is no such event.
        """
        kinds = kinds_of(event)
        with self._lock:
            subscribers = self._subscribers
            kept = {
                kind: tuple(subscribed for subscribed in functions if kind not in kinds or subscribed != function)
                for kind, functions in subscribers.items()
            }
            self._subscribers = {kind: functions for kind, functions in kept.items() if functions}
            self._raised = [
                subscribed for subscribed in self._raised if subscribed[0] in self._subscribers.get(subscribed[1], ())
            ]
            return self._subscribers != subscribers

    def has_subscribers(self, kind: type[Event]) -> bool:
        """Whether a kind of event has subscribers. Without them, callers do not even make the event."""
        return kind in self._subscribers

    # --- events ------------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Queue an event for the subscribers, who are called on another thread; never blocks."""
        with self._lock:
            if self._queue.qsize() >= MOST_WAITING:
                self.dropped += 1
            else:
                self._queue.put(event)
            if self._thread_ended is None:
                self._start_thread()
        self._log_dropped()

    @property
    def span(self) -> Callable[[str], AbstractContextManager[object]] | None:
        """The context manager that measures the store's verbs, for ``Store.span``; ``None``: nobody subscribed."""
        return self._measured if self.has_subscribers(StoreVerb) else None

    def _measured(self, verb: str) -> AbstractContextManager[object]:
        # A subscriber that calls the store would get an event of that call, and call again, for ever.
        return nullcontext() if threading.get_ident() == self._thread else self._measure(verb)

    @contextmanager
    def _measure(self, verb: str) -> Iterator[None]:
        begun_at, error = self._clock.monotonic(), None
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            seconds = self._clock.monotonic() - begun_at
            self.emit(StoreVerb(node=self._node(), verb=verb, seconds=seconds, error=error))

    # --- the thread --------------------------------------------------------------------------------------------------

    def close(self, timeout: float) -> None:
        """Let the thread end after the queued events; wait for that, at most so many seconds."""
        with self._lock:
            ended = self._thread_ended
            if ended is not None:
                self._queue.put(None)
        if ended is not None and threading.get_ident() != self._thread:  # a subscriber may stop its scheduler
            ended.wait(timeout)

    def _start_thread(self) -> None:
        try:
            # A call in C that does not wait. The start of a ``Thread`` waits until it runs.
            _thread.start_new_thread(self._start, ())
        except RuntimeError:  # the interpreter is at its end, or no more threads can be had
            return
        # Set it last: a caller that is interrupted in between leaves a spare thread, not a missing thread.
        self._thread_ended = Signal()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._deliver_next, name="cronsensus-events", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._thread_ended = None

    def _deliver_next(self) -> None:
        self._thread = threading.get_ident()
        while True:
            event = None
            with suppress(queue.Empty):
                event = self._queue.get(timeout=IDLE_SECONDS)
            if event is not None:
                self._deliver_event(event)
                continue
            with self._lock:
                if not self._queue.empty():
                    continue
                ended, self._thread_ended, self._thread = self._thread_ended, None, None
            if ended is not None:
                ended.set()
            return

    def _deliver_event(self, event: Event) -> None:
        kind = type(event)
        for function in self._subscribers.get(kind, ()):
            self._busy = function
            try:
                function(event)
            except BaseException:  # noqa: BLE001 - logged; this thread has nothing else to do
                if (function, kind) not in self._raised:
                    self._raised.append((function, kind))
                    template = "%s raised when it was told of %s; it goes on being told, and this is not logged again"
                    _log.exception(template, _name(function), kind.name)
        self._busy = None
        self._log_dropped()

    def _log_dropped(self) -> None:
        if self.dropped == self._logged_dropped:
            return
        with self._lock:
            now, busy = self._clock.monotonic(), self._busy
            if now - self._logged_at < LOG_EVERY:
                return
            self._logged_dropped, self._logged_at = self.dropped, now
        _log.aside.warning(
            "%d events were dropped so far, because subscribers do not keep up%s",
            self._logged_dropped, f"; now {_name(busy)} is being called" if busy is not None else "",
        )  # fmt: skip


def _name(function: Subscriber) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
