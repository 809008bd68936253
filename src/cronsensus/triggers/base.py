"""The base class of triggers, and the union of several. No state, no I/O, no clock.

A trigger is a pure rule that gives nominal times. Every search that a planner needs is built here on ``next_after``
alone; a trigger overrides one where its own arithmetic does it better. The union lives here too, because every trigger
makes one with ``|``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cronsensus.errors import InvalidTrigger
from cronsensus.timing.durations import Duration
from cronsensus.timing.instants import as_utc, to_micros
from cronsensus.triggers.bounds import bounds_in_words, bounds_to_json, quoted, read_duration
from cronsensus.triggers.zones import at_wall

ZERO = timedelta(0)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_STEP = timedelta(seconds=1)
_MOST_PARTS = 64


def search_latest(
    next_after: Callable[[datetime], datetime | None], instant: datetime, after: datetime
) -> datetime | None:
    """Return the last time t that ``next_after`` gives with ``after < t <= instant``, or None.

    Looks back from ``instant`` in growing steps, then halves the step: O(log gap) calls of ``next_after``, so a gap of
    years at one time per second costs no more than a gap of a minute.
    """
    top, bottom = as_utc(instant), as_utc(after, what="after")
    quiet_from = top  # no nominal time in (quiet_from, top]
    step = _FIRST_STEP
    while True:
        low = top - step if step < top - bottom else bottom
        if low >= top:
            return None
        latest = next_after(low)
        if latest is not None and latest <= top:
            break
        if low == bottom:
            return None
        quiet_from = low
        step *= 8
    while True:
        following = next_after(latest)
        if following is None or following > top:
            return latest
        latest = following
        middle = latest + (quiet_from - latest) // 2
        if middle <= latest:
            continue
        beyond = next_after(middle)
        if beyond is None or beyond > top:
            quiet_from = middle
        else:
            latest = beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(ABC):
    """Give nominal times: aware UTC datetimes in whole microseconds.

    Triggers are values: immutable, hashable, equal when they say the same. The kinds are a closed set, so that
    any node can rebuild a stored one; make them with ``cron``, ``every``, ``at`` and ``any_of``.
    """

    jitter: timedelta = ZERO
    """The most by which a run may start after its nominal time, to spread the load. Nominal times do not change."""

    walls: tuple[str, ...] = ()
    """Which of its instants were given as text without a zone. They are of UTC until ``in_zone`` says of which."""

    @abstractmethod
    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first nominal time strictly after ``instant``, or None when there is none.

        Raises:
            InvalidOption: ``instant`` is naive.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the trigger in plain English."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what ``trigger_from_json`` reads back as an equal trigger; equal triggers return equal data."""

    def latest_until(self, instant: datetime, after: datetime) -> datetime | None:
        """Return the last nominal time t with ``after < t <= instant``, or None; see ``search_latest``."""
        return search_latest(self.next_after, instant, after)

    def count_between(self, after: datetime, until: datetime, limit: int) -> int | None:
        """Return how many nominal times t have ``after < t <= until``; None when more than ``limit``.

        The work is bounded by ``limit``, whatever the range.
        """
        position: datetime | None = as_utc(after, what="after")
        last = as_utc(until, what="until")
        for count in range(limit + 1):
            position = self.next_after(position) if position is not None else None
            if position is None or position > last:
                return count
        return None

    @property
    def zone(self) -> str | None:
        """The name of the time zone in which it thinks; of a union that of its first ``cron``. ``None``: in none."""
        parts: tuple[Trigger, ...] = getattr(self, "parts", (self,))
        return next((name for part in parts if (name := getattr(part, "tz", None)) is not None), None)

    @property
    def zones(self) -> frozenset[str]:
        """The names of the time zones whose rules decide its nominal times; UTC, which has none, is left out."""
        parts: tuple[Trigger, ...] = getattr(self, "parts", (self,))
        return frozenset(name for part in parts if (name := getattr(part, "tz", "UTC")) != "UTC")

    def in_zone(self, zone: str) -> Trigger:
        """Return the trigger with ``zone`` wherever it goes by a wall clock and names no zone of its own.

        Raises:
            InvalidTrigger: one of its times does not exist there, or its end is then before its start.
        """
        if not self.walls:
            return self
        instants_of_walls: dict[str, Any] = {name: at_wall(getattr(self, name), zone, name) for name in self.walls}
        start, end = (instants_of_walls.get(name, getattr(self, name, None)) for name in ("start", "end"))
        if start is not None and end is not None and end < start:
            raise InvalidTrigger(f"end={end.isoformat()} is before start={start.isoformat()}; write a later end")
        return replace(self, **instants_of_walls, walls=())

    def delay_for(self, job: str, scheduled_for: datetime) -> timedelta:
        """Return by how much ``jitter`` delays this occurrence: 0 or more, less than ``jitter``.

        A hash of the job's name and the nominal time, so that every node computes the same and none has to store it.
        """
        import hashlib  # loads OpenSSL, and most triggers have no jitter

        span = self.jitter // _MICROSECOND
        if span == 0:
            return ZERO
        text = f"{to_micros(as_utc(scheduled_for, what='scheduled_for'))} {job}"
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return timedelta(microseconds=int.from_bytes(digest, "big") * span >> 64)

    def __or__(self, other: object) -> Trigger:
        return any_of(self, other) if isinstance(other, Trigger) else NotImplemented

    def __str__(self) -> str:
        return self.describe()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf(Trigger):
    """Give the nominal times of all parts, each once. Made by ``any_of`` and by ``|``."""

    parts: tuple[Trigger, ...]
    """Two or more that differ, in one order for one set; none is itself a union or has jitter."""

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first nominal time of any part after ``instant``."""
        return min((time for part in self.parts if (time := part.next_after(instant)) is not None), default=None)

    def latest_until(self, instant: datetime, after: datetime) -> datetime | None:
        """Return the last nominal time of any part in (after, instant]."""
        times = (part.latest_until(instant, after) for part in self.parts)
        return max((time for time in times if time is not None), default=None)

    def in_zone(self, zone: str) -> Trigger:
        """Return the union of the parts in that zone."""
        return any_of(*(part.in_zone(zone) for part in self.parts), jitter=self.jitter)

    def describe(self) -> str:
        """Return the parts in words, one after the other."""
        return "; and ".join(part.describe() for part in self.parts) + bounds_in_words(None, None, self.jitter)

    def to_json(self) -> dict[str, Any]:
        """Return the kind ``any_of`` with its parts."""
        parts = [part.to_json() for part in self.parts]
        return {"kind": "any_of", "parts": parts, **bounds_to_json(None, None, self.jitter)}


def any_of(*triggers: Trigger, jitter: Duration | None = None) -> Trigger:
    """Return a trigger for the nominal times of all ``triggers``, sorted, each once.

    The order of the arguments does not matter, a union inside is opened, and a single trigger comes back as itself.

    Args:
        triggers: one or more; start and end stay with each of them.
        jitter: one for the whole union, because a nominal time may come from several parts. Defaults to the largest
            of the parts.

    Raises:
        InvalidTrigger: no trigger, more than 64, something that is not a trigger, or a bad jitter.
    """
    parts: dict[str, Trigger] = {}
    delay = ZERO
    for position, trigger in enumerate(triggers, start=1):
        if not isinstance(trigger, Trigger):
            raise InvalidTrigger(
                f"any_of: argument {position} is {quoted(trigger)}, not a trigger; write cron(…), every(…) or at(…)"
            )
        delay = max(delay, trigger.jitter)
        for part in trigger.parts if isinstance(trigger, AnyOf) else (trigger,):
            bare = replace(part, jitter=ZERO)
            # One that takes its zone from elsewhere is not the same as one that names it.
            parts[f"{bare.to_json()} {getattr(bare, 'names_zone', True)}"] = bare
    if not parts:
        raise InvalidTrigger("any_of() needs at least one trigger; write any_of(cron(…), every(…))")
    if len(parts) > _MOST_PARTS:
        raise InvalidTrigger(f"any_of: {len(parts)} triggers are too many; write at most {_MOST_PARTS}")
    if jitter is not None:
        delay = read_duration(jitter, "jitter")
    if len(parts) == 1:
        return replace(next(iter(parts.values())), jitter=delay)
    return AnyOf(parts=tuple(parts[text] for text in sorted(parts)), jitter=delay)
