"""The effects of clock changes on a cron expression, in words.

The words are made of the trigger's own answers around the change, not of its policy, so they describe what it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsensus.insight.sentences import Clause, Sentence
from cronsensus.insight.time_words import brief_duration, offset_text
from cronsensus.triggers.base import AnyOf, Trigger
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.fields import read_cron
from cronsensus.triggers.wall import WallClock
from cronsensus.triggers.zones import load_zone

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_MOST_SHOWN = 3
_MOST_COUNTED = 100_000


@dataclass(frozen=True, slots=True)
class Change:
    """A moment at which a zone's offset from UTC goes from ``before`` to ``after``."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def forward(self) -> bool:
        """Whether the clocks are put forward, so that wall-clock times are missing."""
        return self.after > self.before

    def describe(self) -> str:
        """Return the change as people read it on a clock."""
        wall_before, wall_after = _wall(self.at, self.before), _wall(self.at, self.after)
        direction = "forward" if self.forward else "back"
        return (
            f"{wall_before:%a %Y-%m-%d %H:%M} → {wall_after:%H:%M} (clocks go {direction} by "
            f"{brief_duration(abs(self.after - self.before))})"
        )


def list_crons(trigger: Trigger | None) -> tuple[Cron, ...]:
    """Return the cron parts of a trigger."""
    parts = trigger.parts if isinstance(trigger, AnyOf) else (trigger,)
    return tuple(part for part in parts if isinstance(part, Cron))


def zone_of(trigger: Trigger | None, default: tzinfo = UTC) -> tzinfo:
    """Return the zone of a trigger: that of its first cron part, else ``default``."""
    crons = list_crons(trigger)
    return load_zone(crons[0].tz) if crons else default


def find_changes(zone: tzinfo, since: datetime, until: datetime) -> Iterator[Change]:
    """Yield the changes in (since, until], looking day by day."""
    position, before = since, _offset(since, zone)
    while position < until:
        probe = min(position + _DAY, until)
        after = _offset(probe, zone)
        if after != before:
            low, high = position, probe
            while high - low > _MICROSECOND:
                middle = low + (high - low) // 2
                low, high = (low, middle) if _offset(middle, zone) != before else (middle, high)
            yield Change(high, before, _offset(high, zone))
            before = after
        position = probe


def describe_local_time(trigger: Trigger, nominal: datetime, previous: datetime | None) -> Sentence | None:
    """Return what is special about the local time of ``nominal``; ``None``: nothing is."""
    for cron in list_crons(trigger):
        zone = load_zone(cron.tz)
        if cron.next_after(nominal - _MICROSECOND) != nominal:
            continue
        local = nominal.astimezone(zone)
        first_offset, second_offset = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
        if first_offset is not None and second_offset is not None and first_offset > second_offset:
            clause = Clause.SECOND_OF_TWO if local.fold else Clause.FIRST_OF_TWO
            return clause(time=f"{local:%H:%M}")
        before = _offset(nominal - _MICROSECOND, zone)
        after = _offset(nominal, zone)
        if before < after:
            change = Change(nominal, before, after)
            clock = WallClock.of(read_cron(cron.expression))
            wall_after = _wall(nominal, after)
            if not clock.count(wall_after, wall_after + _SECOND):
                return Clause.AFTER_THE_GAP(times=_times(cron, _wall(nominal, before), wall_after))
            return Clause.CLOCKS_GO_FORWARD(time=change.after - change.before)
        if previous is not None and _offset(previous, zone) != after:
            return Clause.CLOCKS_HAVE_CHANGED(offset=offset_text(local))
    return None


def describe_effect(cron: Cron, change: Change) -> str:
    """Return what a change does to a cron expression, as a sentence."""
    wall_before, wall_after = _wall(change.at, change.before), _wall(change.at, change.after)
    low, high = (wall_before, wall_after) if change.forward else (wall_after, wall_before)
    count = WallClock.of(read_cron(cron.expression)).count(low, high)
    kind = "skipped" if change.forward else "repeated"
    if not count:
        return f"Nothing of it falls into the {kind} time {low:%H:%M}-{high:%H:%M}: it runs as on any day."
    times = _times(cron, low, high)
    is_single = count == 1
    if change.forward:
        missing = f"{times} {'does' if is_single else 'do'} not exist that day"
        if not read_cron(cron.expression).fixed:
            return f"{missing}: no time passes there, so nothing is lost."
        if cron.next_after(change.at - _MICROSECOND) != change.at:
            return f"{missing}: not run."
        if not WallClock.of(read_cron(cron.expression)).count(wall_after, wall_after + _SECOND):
            return f"{missing}: it runs once, right after the gap, at {wall_after:%H:%M}."
        pronoun = "it" if is_single else "them"
        return (
            f"{missing}: not run."
            if cron.dst == "skip"
            else f"{missing}: the run at {wall_after:%H:%M} stands for {pronoun}."
        )
    length = change.before - change.after
    second_pass = cron.count_between(change.at - _MICROSECOND, change.at + length - _MICROSECOND, _MOST_COUNTED)
    repeated = f"{times} {'comes' if is_single else 'come'} twice that day"
    return f"{repeated}: it runs {'the first time only' if second_pass == 0 else 'both times'}."


def _times(cron: Cron, low: datetime, high: datetime) -> str:
    """Return the matching wall-clock times from ``low`` to before ``high``: "02:00, 02:15, … 02:45"."""
    clock = WallClock.of(read_cron(cron.expression))
    times: list[datetime] = []
    position: datetime | None = clock.at_or_after(low)
    while position is not None and position < high and len(times) <= _MOST_SHOWN:
        times.append(position)
        position = clock.at_or_after(position + _SECOND)
    texts = [f"{wall:%H:%M:%S}".removesuffix(":00") for wall in times]
    if len(texts) <= _MOST_SHOWN:
        return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    return f"{', '.join(texts[:2])}, … ({clock.count(low, high)} times before {high:%H:%M})"


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _wall(instant: datetime, offset: timedelta) -> datetime:
    return instant.astimezone(UTC).replace(tzinfo=None) + offset
