"""A job's nominal times over its whole life, computed only from its triggers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta

from cronsensus.model.job import Era, Stretch

MICROSECOND = timedelta(microseconds=1)
MOST_COUNTED = 50_000_000
"""Most nominal times that are counted at once; only unions and tiny intervals ever come near."""


class Nominals:
    """The nominal times of a job's eras: each era holds from its ``since`` to that of the next era."""

    def __init__(self, eras: Sequence[Era], *, retired: bool) -> None:
        """Take the eras, oldest first; ``retired``: the last era is a retirement, which has no times."""
        self._eras = list(eras)
        self._ends: list[datetime | None] = [era.since for era in self._eras[1:]] + [None]
        self._since = [era.since for era in self._eras]
        self._retired = retired

    @property
    def defined_since(self) -> datetime | None:
        """Return since when the present definition holds."""
        return self._since[-1] if self._since else None

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first nominal time after ``instant``, or None."""
        for index in range(max(0, self._index(instant + MICROSECOND)), len(self._eras)):
            era, end = self._eras[index], self._ends[index]
            if era.trigger is None:
                continue
            nominal = era.trigger.next_after(max(instant, era.since))
            if nominal is not None and (end is None or nominal <= end):
                return nominal
        return None

    def list_times(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the first ``limit`` nominal times t with ``after < t <= until``."""
        times: list[datetime] = []
        position = after
        while len(times) < limit:
            following = self.next_after(position)
            if following is None or following > until:
                break
            times.append(following)
            position = following
        return times

    def count_times(self, after: datetime, until: datetime, limit: int = MOST_COUNTED) -> int | None:
        """Count the nominal times in (after, until], by arithmetic where the trigger can; None: over ``limit``."""
        total = 0
        for era, end in zip(self._eras, self._ends, strict=True):
            if era.trigger is None:
                continue
            bottom = max(after, era.since)
            top = until if end is None else min(until, end)
            if bottom >= top:
                continue
            count = era.trigger.count_between(bottom, top, limit - total)
            if count is None:
                return None
            total += count
        return total

    def is_nominal(self, instant: datetime) -> bool:
        """Whether ``instant`` is a nominal time."""
        return self.next_after(instant - MICROSECOND) == instant

    def due_time_of(self, job: str, nominal: datetime) -> datetime:
        """Return when the run of a nominal time may start: the nominal time and its jitter."""
        index = self._index(nominal)
        trigger = self._eras[index].trigger if index >= 0 else None
        return nominal if trigger is None else nominal + trigger.delay_for(job, nominal)

    def named_elsewhere(self, instant: datetime) -> bool:
        """Whether another program named the times then (``acquire``): the job had no trigger, and was not retired."""
        index = max(0, self._index(instant))
        if not self._eras or self._eras[index].trigger is not None:
            return False
        return not (self._retired and index == len(self._eras) - 1)

    def _index(self, instant: datetime) -> int:
        """Return the era with ``since < instant <= end``; -1: before the job's life."""
        return bisect_left(self._since, instant) - 1


def split_at_pauses(
    after: datetime, until: datetime, pauses: Sequence[Stretch]
) -> list[tuple[datetime, datetime, bool]]:
    """Split (after, until] into live and paused parts: (after, until, paused). A pause includes both of its ends."""
    parts: list[tuple[datetime, datetime, bool]] = []
    position = after
    for pause in sorted(pauses, key=lambda pause: pause.start):
        begin = min(max(pause.start - MICROSECOND, position), until)
        end = until if pause.end is None else min(max(pause.end, begin), until)
        if begin > position:
            parts.append((position, begin, False))
        if end > begin:
            parts.append((begin, end, True))
        position = max(position, end)
    if position < until:
        parts.append((position, until, False))
    return parts
