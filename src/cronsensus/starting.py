"""One start of a node, and its tries while the store is not there yet.

A server may start beside the application, or be replaced just now. A start is tried again only after an error that says
that later may help; any other ends it at once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cronsensus.clock import SystemClock
from cronsensus.errors import StoreError, StoreUnavailable
from cronsensus.interrupts import Event
from cronsensus.logger import Logger

if TYPE_CHECKING:
    from cronsensus.node.node import Node

_log = Logger("cronsensus.scheduler")
_CLOCK = SystemClock()
FIRST, LONGEST = 0.1, 2.0
"""First and longest pause between two tries, seconds."""


class Tries:
    """Counts the tries that a wait allows: ``for`` each, ``with tries:`` what is tried.

    Example:
        >>> for pause in (tries := Tries(0.0)):
        ...     with tries:
        ...         pass
    """

    def __init__(self, seconds: float) -> None:
        """Allow tries until ``seconds`` have passed; with 0 there is one."""
        self._until = _CLOCK.monotonic() + seconds
        self._succeeded = False
        self._failed = 0

    def __iter__(self) -> Iterator[float]:
        """Yield the seconds to wait before each try, until one succeeds."""
        pause = 0.0
        while not self._succeeded:
            yield pause
            # Replicas that start together spread over the pause.
            longest = min(LONGEST, FIRST * 2.0**self._failed) * random.uniform(0.5, 1.0)
            pause = max(0.0, min(longest, self._until - _CLOCK.monotonic()))

    def __enter__(self) -> None:
        """Begin a try."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Note the end of a try; keep an error that may pass, as long as there is time."""
        self._succeeded = error is None
        left = self._until - _CLOCK.monotonic()
        if not isinstance(error, StoreError) or not error.retryable or left <= 0:
            return False
        self._failed += 1
        if self._failed == 1:
            _log.warning("the store is not there yet (%s); trying again for %.0f s", error, left)
        return True


def briefly(error: StoreUnavailable) -> StoreUnavailable:
    """Return ``error`` without its stack, to be raised ``from None``; with its causes that is logged on ``DEBUG``.

    A program that ends with it shows the sentence that it is, not some 80 lines of a driver above that.
    """
    _log.debug("the store cannot be used: %s", error, exc_info=error)
    return error.with_traceback(None)


class Start:
    """One start, as the caller sees it that asks for it, and may be gone before there is a node.

    Attributes:
        node: what it started; ``None``: nothing yet, or it was given up before.
        over: set while nothing is under way.
    """

    def __init__(self) -> None:
        """Ask for one; nothing is begun."""
        self.node: Node | None = None
        self.over = Event()
        self.over.set()
        self.is_given_up = False
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Begin it; ``False``: it was given up."""
        with self._lock:
            if not self.is_given_up:
                self.over.clear()
            return not self.is_given_up

    def take(self, node: Node) -> bool:
        """Take the started node; ``False``: it was given up, and the node is to be stopped."""
        with self._lock:
            if not self.is_given_up:
                self.node = node
            return not self.is_given_up

    def give_up(self) -> None:
        """Give the start up. A node that it has started is still to be stopped."""
        with self._lock:
            self.is_given_up = True
