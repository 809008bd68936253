"""What a consumer was declared with, as its parts use it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from cronsensus.model.job import JobSpec

QueueType = Literal["quorum", "classic"]
Acknowledge = Literal["done", "stored"]
HELD_FOR = timedelta(seconds=5)
"""How long the delay queue keeps a message. One time for all: a message that expires later holds up those behind it."""
LONGEST_BACKOFF = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one consumer; see ``consumer``."""

    queue: str
    spec: JobSpec
    attempts: int
    backoff: timedelta
    dead_letter: str
    threads: int
    room: int
    type: QueueType
    declare: bool
    transaction: bool = False

    @property
    def held(self) -> str:
        """The name of the delay queue."""
        return f"{self.queue}.held"

    def backoff_after(self, failures: int) -> timedelta:
        """Return how long to wait after so many failed attempts, at least one."""
        return min(LONGEST_BACKOFF, self.backoff * (1 << min(failures - 1, 20)))
