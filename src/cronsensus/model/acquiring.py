"""What is asked and answered where another program names the times of jobs, and the store decides who acts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Literal

from cronsensus.model.occurrence import Named, name_of
from cronsensus.model.states import Reason, State
from cronsensus.timing.instants import as_utc

Intent = Literal["run", "full", "late"]
MOST_EARLY = timedelta(seconds=1)
"""The most by which a time may lie ahead of the store's clock and be won: clocks that are kept differ by less."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a process wants with nominal times of a job.

    Attributes:
        times: those that it runs one after another: the job's ``concurrency`` must allow one more run.
        intent: ``"run"`` them; or say that they will not run here: ``"full"``, because this process has no free slot,
            ``"late"``, because too much time has passed.
    """

    job: str
    times: tuple[datetime, ...]
    intent: Intent = "run"

    def checked(self) -> Ask:
        """Return it with all times in UTC.

        Raises:
            InvalidOption: one of them has no zone.
        """
        return Ask(self.job, tuple(as_utc(time, what="times") for time in self.times), self.intent)


@dataclass(frozen=True)
class AskNamed:
    """One occurrence that a process wants to run now, by its nominal time or by its key: exactly one of the two.

    Attributes:
        fingerprint: tells one payload from another; it is stored with the occurrence.
    """

    job: str
    _: KW_ONLY
    scheduled_for: datetime | None = None
    key: str | None = None
    fingerprint: str | None = None

    @cached_property
    def named(self) -> Named:
        """The occurrence.

        Raises:
            InvalidOption: not exactly one of the two is given, or one that cannot be.
        """
        return name_of(self.scheduled_for, self.key)

    @property
    def times(self) -> tuple[datetime, ...]:
        """The nominal times that are asked for, in UTC: one or none."""
        return () if self.named.scheduled_for is None else (self.named.scheduled_for,)

    def checked(self) -> AskNamed:
        """Return it.

        Raises:
            InvalidOption: as ``named`` raises it.
        """
        _ = self.named
        return self


class NotWon(StrEnum):
    """Why an occurrence was not won."""

    LOST = "lost"
    """It is decided, another process has it, it waits to be run again, or it cannot be acquired."""
    FULL = "full"
    """This call recorded that it is skipped(overlap): as much of the job runs as its ``concurrency`` allows."""
    LATE = "late"
    """This call recorded that it is missed(late)."""
    PAUSED = "paused"
    """This call recorded that it is skipped(paused)."""
    LEFT = "left"
    """It is undecided: the caller does not run it, and another process may."""
    EARLY = "early"
    """It is undecided: it lies more than ``MOST_EARLY`` ahead of the store's clock; ask again when that says it."""
    UNKNOWN = "unknown"
    """The store knows no such job, or it is retired."""
    PRUNED = "pruned"
    """It was named, and lies at or below the pruned horizon: it cannot be proved that it never ran."""


VERDICTS: dict[NotWon, tuple[State, Reason]] = {
    NotWon.FULL: (State.SKIPPED, Reason.OVERLAP),
    NotWon.LATE: (State.MISSED, Reason.LATE),
    NotWon.PAUSED: (State.SKIPPED, Reason.PAUSED),
}
"""What such an answer has recorded."""


def refusal(intent: Intent, *, paused: bool, below_limit: bool) -> NotWon | None:
    """Return why a nominal time that has no verdict yet is not won; ``None`` if it is won."""
    if paused:
        return NotWon.PAUSED
    if intent == "late":
        return NotWon.LATE
    if not below_limit:
        return NotWon.FULL
    return NotWon.LEFT if intent == "full" else None
