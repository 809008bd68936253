"""The past of one job as pictures: the worst verdict of each day or hour, and how long runs took."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any

from cronsensus.model.glance import Glance, Past
from cronsensus.model.states import State

MOST_READ = 3_000
"""The newest verdicts of a job, of which its calendar is made: 33 a day for 90 days, or one a minute for 48 hours."""
DAYS, HOURS = 90, 48
SIZE, STEP = 22, 26
_MOST_PLOTTED = 100
_WORST_FIRST = ("failed", "missed", "running", "pending", "succeeded", "skipped", "cancelled")
_TOP, _HEIGHT = 14, 130
_LEFT, _WIDTH = 9, 85
_MOST_LINES = 5
_STEPS_TO_30_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_STEPS_FROM_1_MINUTE = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


@dataclass(slots=True, kw_only=True)
class Cell:
    """A day or an hour that ends at ``until``: ``counts``, how often each verdict was given for a time in it."""

    at: datetime
    until: datetime
    x: int
    y: int
    counts: Counter[str] = field(default_factory=Counter)
    taken_over: int = 0

    @property
    def worst(self) -> str:
        """The verdict that matters most, or nothing."""
        return next((state for state in _WORST_FIRST if self.counts[state]), "")


@dataclass(frozen=True, slots=True)
class Calendar:
    """The cells, oldest first; ``since``: what is older was not read."""

    cells: tuple[Cell, ...]
    hourly: bool
    width: int
    height: int
    since: datetime | None

    @property
    def totals(self) -> Counter[str]:
        """How often each verdict was given."""
        return sum((cell.counts for cell in self.cells), Counter[str]())


@dataclass(frozen=True, slots=True)
class Point:
    """A run on the plot: ``x`` in percent, ``y`` in pixels."""

    run: int
    kind: str
    x: float
    y: float
    took: timedelta
    at: datetime


@dataclass(frozen=True, slots=True)
class Plot:
    """How long the last runs took.

    Attributes:
        lines: p50 and p95, each with its position.
        scale: durations of the axis with their positions, from the lowest.
        dates: moments of the other axis, in percent.
    """

    points: tuple[Point, ...]
    lines: tuple[tuple[str, float, timedelta], ...]
    scale: tuple[tuple[float, timedelta], ...]
    dates: tuple[tuple[float, datetime], ...]
    height: int = _TOP + _HEIGHT + 24


def draw_calendar(past: Past, now: datetime, zone: tzinfo) -> Calendar:
    """Return 90 days, or 48 hours of a job whose newest verdicts do not reach so far back."""
    oldest = max(_moments(past), default=None)
    hourly = oldest is not None and oldest > now - timedelta(days=DAYS)
    cells = _hours(now, zone) if hourly else _days(now, zone)
    keys = [_key(cell.at, zone, hourly=hourly) for cell in cells]
    by_key = dict(zip(keys, cells, strict=True))
    for glance in past.glances:
        cell = by_key.get(_key(glance.scheduled_for or glance.due_at, zone, hourly=hourly))
        if cell is not None:
            cell.counts[str(glance.state)] += 1
            cell.taken_over += glance.crashes > 0
    for ledger_range in past.ranges:
        verdicts = ledger_range.range
        begin = bisect_left(keys, _key(verdicts.first, zone, hourly=hourly))
        touched = cells[begin : bisect_right(keys, _key(verdicts.last, zone, hourly=hourly))]
        for number, cell in enumerate(reversed(touched)):
            # How they are spread over the cells is not on record. Each cell gets one, and the last gets the rest.
            cell.counts[str(verdicts.state)] += max(1, (verdicts.count or 1) - len(touched) + 1) if number == 0 else 1
    width = max(cell.x for cell in cells) + STEP
    height = max(cell.y for cell in cells) + STEP
    return Calendar(tuple(cells), hourly, width, height, oldest)


def plot_durations(past: Past, p50: timedelta | None, p95: timedelta | None) -> Plot | None:
    """Return the plot of how long the last runs took; ``None``: none has ended."""
    runs = [(glance, duration) for glance in past.glances if (duration := _took(glance)) is not None][:_MOST_PLOTTED]
    if not runs:
        return None
    durations = [duration for _, duration in runs] + [percentile for percentile in (p50, p95) if percentile is not None]
    scale = _scale(min(durations), max(durations))
    times = [glance.begun_at for glance, _ in runs if glance.begun_at is not None]
    begin, span = min(times), (max(times) - min(times)) or timedelta(seconds=1)
    points = []
    for glance, duration in runs:
        at = glance.begun_at or begin
        kind = "fail" if glance.state is State.FAILED else "take" if glance.crashes else "ok"
        points.append(Point(glance.id, kind, _x(at, begin, span), _y(duration, scale), duration, at))
    lines = [
        (name, _y(duration, scale), duration) for name, duration in (("p50", p50), ("p95", p95)) if duration is not None
    ]
    dates = [begin + span * share for share in (0.0, 0.5, 1.0)] if len(runs) > 1 else [begin]
    return Plot(
        tuple(points),
        tuple(lines),
        tuple((_y(duration, scale), duration) for duration in scale),
        tuple((_x(at, begin, span), at) for at in dates),
    )


def _scale(least: timedelta, most: timedelta) -> list[timedelta]:
    """Return round durations at equal distances, from below the least to above the most."""
    step = next(
        (
            step
            for step in (*_STEPS_TO_30_SECONDS, *_STEPS_FROM_1_MINUTE)
            if _count_steps(least, most, step) < _MOST_LINES
        ),
        most.total_seconds() / (_MOST_LINES - 1) or 1,
    )
    low = int(least.total_seconds() / step)
    high = max(low + 1, math.ceil(most.total_seconds() / step))
    return [timedelta(seconds=number * step) for number in range(low, high + 1)]


def _count_steps(least: timedelta, most: timedelta, step: float) -> int:
    return math.ceil(most.total_seconds() / step) - int(least.total_seconds() / step)


def _x(at: datetime, begin: datetime, span: timedelta) -> float:
    return round(_LEFT + _WIDTH * ((at - begin) / span), 2)


def _y(duration: timedelta, scale: Sequence[timedelta]) -> float:
    return round(_TOP + _HEIGHT * (1 - (duration - scale[0]) / (scale[-1] - scale[0])), 1)


def _took(glance: Glance) -> timedelta | None:
    if glance.state not in {State.SUCCEEDED, State.FAILED} or glance.begun_at is None or glance.finished_at is None:
        return None
    return glance.finished_at - glance.begun_at


def _moments(past: Past) -> Iterator[datetime]:
    """Yield the oldest time of each list that was cut. Both lists reach back to the later of them."""
    if len(past.glances) >= MOST_READ:
        yield past.glances[-1].scheduled_for or past.glances[-1].due_at
    if len(past.ranges) >= MOST_READ:
        yield past.ranges[-1].range.last


def _days(now: datetime, zone: tzinfo) -> list[Cell]:
    today = now.astimezone(zone).date()
    first_day = today - timedelta(days=DAYS - 1)
    monday = first_day - timedelta(days=first_day.weekday())
    days = [first_day + timedelta(days=number) for number in range(DAYS)]
    return [
        Cell(
            at=datetime(day.year, day.month, day.day, 12, tzinfo=zone),
            until=datetime.combine(day + timedelta(days=1), time.min, zone),
            x=34 + (day - monday).days // 7 * STEP,
            y=18 + day.weekday() * STEP,
        )
        for day in days
    ]


def _hours(now: datetime, zone: tzinfo) -> list[Cell]:
    """Return the last hours. An hour that a clock change repeats has two cells."""
    last = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [last - timedelta(hours=number) for number in reversed(range(HOURS))]
    return [
        Cell(
            at=hour.astimezone(zone),
            until=hour + timedelta(hours=1),
            x=64 + number % 24 * STEP,
            y=18 + number // 24 * STEP,
        )
        for number, hour in enumerate(hours)
    ]


def _key(at: datetime, zone: tzinfo, *, hourly: bool) -> Any:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) if hourly else at.astimezone(zone).date()
