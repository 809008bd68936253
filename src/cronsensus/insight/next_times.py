"""The next times at which a trigger fires, each with a note where clocks change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo

from cronsensus.insight.clock_changes import describe_local_time
from cronsensus.insight.sentences import Sentence
from cronsensus.triggers.base import Trigger


@dataclass(frozen=True, slots=True)
class NextTime:
    """A nominal time to come.

    Attributes:
        local: the same instant on the wall clock of the requested zone.
        note: how a clock change affects it; ``None``: not at all.
    """

    utc: datetime
    local: datetime
    note: Sentence | None


def next_times(trigger: Trigger, start: datetime, count: int, zone: tzinfo) -> list[NextTime]:
    """Return up to ``count`` nominal times after ``start``."""
    found: list[NextTime] = []
    previous = start
    for nominal in times_after(trigger, start, count):
        found.append(NextTime(nominal, nominal.astimezone(zone), describe_local_time(trigger, nominal, previous)))
        previous = nominal
    return found


def times_after(trigger: Trigger | None, start: datetime, count: int) -> Iterator[datetime]:
    """Yield up to ``count`` nominal times after ``start``."""
    for _ in range(count):
        following = None if trigger is None else trigger.next_after(start)
        if following is None:
            return
        yield following
        start = following
