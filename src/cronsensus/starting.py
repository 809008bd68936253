"""Wait for a store that is not there yet: a server that starts beside the application, or is just being replaced.

What is tried is tried again only after an error that says that later may help; any other ends it at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from cronsensus.clock import SystemClock
from cronsensus.errors import StoreError
from cronsensus.logger import Logger

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
        """Note how a try ended; keep an error that later may not be one, as long as there is time."""
        self._succeeded = error is None
        left = self._until - _CLOCK.monotonic()
        if not isinstance(error, StoreError) or not error.retryable or left <= 0:
            return False
        self._failed += 1
        if self._failed == 1:
            _log.warning("the store is not there yet (%s); trying again for %.0f s", error, left)
        return True
