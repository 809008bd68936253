"""Requests and answers of ``Store.acquire``, for jobs whose times another program names."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Literal

from cronsensus.model.occurrence import OccurrenceKey, occurrence_key
from cronsensus.model.states import Reason, State
from cronsensus.timing.instants import as_utc

Intent = Literal["run", "full", "late"]
MOST_EARLY = timedelta(seconds=1)
"""How far a time may lie ahead of the store's clock and still be won: synchronised clocks differ by less."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A process's request for nominal times of a job.

    Attributes:
        times: these run one after another, so the job's ``concurrency`` must allow a single further run.
        intent: ``"run"`` them; or record that they do not run here: ``"full"``, because this process has no free slot,
            ``"late"``, because too much time has passed.
    """

    job: str
    times: tuple[datetime, ...]
    intent: Intent = "run"

    def checked(self) -> Ask:
        """Return the request with all times in UTC.

        Raises:
            InvalidOption: a time has no zone.
        """
        return Ask(self.job, tuple(as_utc(time, what="times") for time in self.times), self.intent)


@dataclass(frozen=True)
class AskNamed:
    """A request to run a single occurrence now, by its nominal time or by its key: exactly one of the two.

    Attributes:
        fingerprint: a hash that distinguishes payloads under the same key; it is stored with the occurrence.
    """

    job: str
    _: KW_ONLY
    scheduled_for: datetime | None = None
    key: str | None = None
    fingerprint: str | None = None

    @cached_property
    def named(self) -> OccurrenceKey:
        """The occurrence.

        Raises:
            InvalidOption: not exactly one of the two is given, or it is invalid.
        """
        return occurrence_key(self.scheduled_for, self.key)

    @property
    def times(self) -> tuple[datetime, ...]:
        """The nominal time that is requested, in UTC; empty for a key."""
        return () if self.named.scheduled_for is None else (self.named.scheduled_for,)

    def checked(self) -> AskNamed:
        """Return the request, validated.

        Raises:
            InvalidOption: as ``named`` does.
        """
        _ = self.named
        return self


class NotWon(StrEnum):
    """Why an occurrence was not won (claimed)."""

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
    """It is undecided: it lies more than ``MOST_EARLY`` ahead of the store's clock; ask again later."""
    UNKNOWN = "unknown"
    """The store knows no such job, or it is retired."""
    PRUNED = "pruned"
    """An ``AskNamed`` whose time lies at or below the pruned horizon: it cannot be proved that it never ran."""


VERDICTS: dict[NotWon, tuple[State, Reason]] = {
    NotWon.FULL: (State.SKIPPED, Reason.OVERLAP),
    NotWon.LATE: (State.MISSED, Reason.LATE),
    NotWon.PAUSED: (State.SKIPPED, Reason.PAUSED),
}
"""The verdict that has been recorded with such an answer."""


def refusal(intent: Intent, *, paused: bool, below_limit: bool) -> NotWon | None:
    """Return why a nominal time that has no verdict yet is not won; ``None`` if it is won."""
    if paused:
        return NotWon.PAUSED
    if intent == "late":
        return NotWon.LATE
    if not below_limit:
        return NotWon.FULL
    return NotWon.LEFT if intent == "full" else None
