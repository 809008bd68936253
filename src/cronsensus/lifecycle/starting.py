"""Start a node, and try again while the store cannot be reached yet.

A server may start beside the application, or be replaced just now. A start is tried again only after an error that may
pass; any other error ends it at once. If the caller does not wait, ``StoreWait`` makes the further tries.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import SystemRandom
from typing import TYPE_CHECKING

from cronsensus.errors import StoreError, StoreRefused, StoreUnavailable
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

if TYPE_CHECKING:
    from cronsensus.node.node import Node

_log = Logger("cronsensus.scheduler")
_CLOCK = SystemClock()
_RANDOM = SystemRandom()  # without a state: a program may have seeded ``random``, and a fork would share its state
FIRST, LONGEST = 0.1, 2.0
"""First and longest pause between two tries, seconds."""
WITHOUT_END = 366 * 86_400.0
"""Seconds from which a wait counts as endless."""


class Tries:
    """Counts the tries that a wait allows: a ``for`` loop over them, and ``with tries:`` around each try.

    Example:
        >>> for pause in (tries := Tries(0.0)):
        ...     with tries:
        ...         pass
    """

    def __init__(self, seconds: float) -> None:
        """Allow tries until ``seconds`` have passed; with 0 a single try."""
        self._until = _CLOCK.monotonic() + seconds
        self._succeeded = False
        self._failed = 0

    def __iter__(self) -> Iterator[float]:
        """Yield the seconds to wait before each try, until one succeeds."""
        pause = 0.0
        while not self._succeeded:
            yield pause
            pause = max(0.0, min(pause_before(self._failed + 1), self._until - _CLOCK.monotonic()))

    def __enter__(self) -> None:
        """Begin a try."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Record the end of a try; suppress an error that may pass, as long as there is time."""
        self._succeeded = error is None
        remaining = self._until - _CLOCK.monotonic()
        if remaining <= 0 or not may_come(error):
            return False
        self._failed += 1
        if self._failed == 1:
            how_long = "until it is" if remaining > WITHOUT_END else f"for {remaining:.0f} s"
            _log.warning("the store is not there yet (%s); trying again %s", error, how_long)
        return True


def pause_before(number: int) -> float:
    """Return the seconds before a try. They are random, so that replicas that start together spread out.

    Args:
        number: of the try, counted from 1 for the first after a failed try.
    """
    return min(LONGEST, FIRST * 2.0 ** min(number - 1, 10)) * _RANDOM.uniform(0.5, 1.0)


def may_come(error: BaseException | None) -> bool:
    """Whether the store may become available with nothing changed here."""
    return isinstance(error, StoreError) and error.retryable and not isinstance(error, StoreRefused)


def without_stack(error: StoreUnavailable) -> StoreUnavailable:
    """Return ``error`` without its stack, to be raised ``from None``; the stack and its causes are logged on ``DEBUG``.

    A program that ends with it shows its sentence, without some 80 lines of a driver above that.
    """
    _log.debug("the store cannot be used: %s", error, exc_info=error)
    return error.with_traceback(None)


class Start:
    """A start for a caller that may give it up before there is a node.

    Attributes:
        node: the started node; ``None``: not yet, or the start was given up before.
        over: set while no start is under way.
    """

    def __init__(self) -> None:
        """Prepare a start; nothing is begun."""
        self.node: Node | None = None
        self.over = Event()
        self.over.set()
        self.is_given_up = False
        self._lock = threading.Lock()

    def begin_start(self) -> bool:
        """Begin it; ``False``: it was given up."""
        with self._lock:
            if not self.is_given_up:
                self.over.clear()
            return not self.is_given_up

    def take_node(self, node: Node) -> bool:
        """Take the started node; ``False``: it was given up, and the node is to be stopped."""
        with self._lock:
            if not self.is_given_up:
                self.node = node
            return not self.is_given_up

    def give_up(self) -> None:
        """Give the start up. A node that it has started is still to be stopped."""
        with self._lock:
            self.is_given_up = True
