"""The options of a consumer, in the form that its parts use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobSpec

QueueType = Literal["quorum", "classic"]
Acknowledge = Literal["done", "stored"]
DELAY_TTL = timedelta(seconds=5)
"""How long the delay queue keeps a message, the same for all: a message that expires later would block the next."""
LONGEST_BACKOFF = timedelta(minutes=1)
THREADS = 8
FETCHED_PER_THREAD = 3
"""Messages for each thread that are acquired ahead: with fewer, threads wait for a server that syncs its disk."""
MOST_PREFETCH = 65535
"""The bound of the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a consumer; see ``consumer``."""

    queue: str
    spec: JobSpec
    attempts: int
    backoff: timedelta
    dead_letter: str
    threads: int
    room: int
    prefetch: int
    type: QueueType
    declare: bool
    transaction: bool = False

    @property
    def held_queue(self) -> str:
        """The name of the delay queue."""
        return f"{self.queue}.held"

    def backoff_after(self, failures: int) -> timedelta:
        """Return how long to wait after so many failed attempts, at least one."""
        return min(LONGEST_BACKOFF, self.backoff * (1 << min(failures - 1, 20)))


def resolve_sizes(threads: int | None, room: int | None, prefetch: int | None) -> tuple[int, int, int]:
    """Return how many messages run, are held, and are fetched in a process; ``None``: the default.

    Raises:
        InvalidOption: impossible numbers, or fewer are fetched than may run and be held.
    """
    threads = THREADS if threads is None else threads
    if room is None:
        room = threads if prefetch is None else max(0, min(threads, prefetch - threads))
    for name, number, least in (("threads", threads, 1), ("room", room, 0)):
        if isinstance(number, bool) or number < least:
            raise InvalidOption(f"{name}={number!r}: a whole number, at least {least}")
    prefetch = (1 + FETCHED_PER_THREAD) * threads + room if prefetch is None else prefetch
    if isinstance(prefetch, bool) or not threads + room <= prefetch <= MOST_PREFETCH:
        raise InvalidOption(
            f"prefetch={prefetch!r}: a whole number from threads + room, which is {threads + room}, to {MOST_PREFETCH}"
        )
    return threads, room, prefetch
