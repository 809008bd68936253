"""The last 24 hours by job: the worst that became of each half hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobView, is_internal

CELL = timedelta(minutes=30)
CELLS = 48
HEAD, ROW = 26, 22
_MOST_ROWS = 40
_WORST = ("failed", "missed", "running", "pending", "succeeded", "cancelled", "skipped")
_TROUBLE = {"failed": 0, "missed": 1}


@dataclass(slots=True)
class HalfHour:
    """What became of a job's times in half an hour; ``run``: the newest of the worst."""

    x: float
    at: datetime
    counts: Counter[str] = field(default_factory=Counter)
    runs: dict[str, int] = field(default_factory=dict)
    taken_over: bool = False

    @property
    def worst(self) -> str:
        """The verdict that matters most."""
        return next(state for state in _WORST if self.counts[state])

    @property
    def run(self) -> int | None:
        """A run that shows it; ``None``: nothing was made."""
        return self.runs.get(self.worst)


@dataclass(slots=True)
class DayRow:
    """A job, with the half hours in which it had times."""

    job: str
    y: int
    cells: list[HalfHour]


@dataclass(frozen=True, slots=True)
class Day:
    """The picture; ``read_from``: what ended before that was not read."""

    rows: tuple[DayRow, ...]
    more: int
    height: int
    width: float
    ticks: tuple[tuple[float, datetime], ...]
    read_from: datetime | None


def draw_day(
    now: datetime, views: Sequence[JobView], pasts: Mapping[str, Past], ran: Sequence[Glance], *, whole: bool
) -> Day:
    """Return the last 24 hours, the jobs in trouble first, else by name.

    Args:
        now: the store's clock.
        views: jobs, with their ``pasts``.
        pasts: the newest verdicts of these.
        ran: what ended in the last day, of all jobs.
        whole: whether that is all of it.
    """
    last = now - (now - datetime.min.replace(tzinfo=now.tzinfo)) % CELL
    first = last - (CELLS - 1) * CELL
    names = {view.spec.name for view in views}
    cells: dict[str, dict[int, HalfHour]] = {name: {} for name in names}
    for one in _once(ran, pasts):
        if is_internal(one.job) or not (one.state.final or one.begun_at is not None):
            continue
        cell = _cell_at(cells, one.job, first, one.scheduled_for or one.begun_at or one.due_at)
        if cell is not None:
            state = verdict_of(one)
            cell.counts[state] += 1
            cell.runs[state] = max(one.id, cell.runs.get(state, 0))
            cell.taken_over |= one.crashes > 0
    for name, past in pasts.items():
        for kept in (one.range for one in past.ranges):
            cell = _cell_at(cells, name, first, kept.last)
            if cell is not None:
                cell.counts[str(kept.state)] += kept.count or 1
    order = sorted(
        (job for job, some in cells.items() if some),
        key=lambda job: (min(_TROUBLE.get(cell.worst, 2) for cell in cells[job].values()), job),
    )
    rows = tuple(
        DayRow(job, HEAD + ROW * number, [cells[job][at] for at in sorted(cells[job])])
        for number, job in enumerate(order[:_MOST_ROWS])
    )
    ticks = [(_x(number), first + number * CELL) for number in range(CELLS)]
    return Day(
        rows=rows,
        more=max(0, len(order) - len(rows)),
        height=HEAD + ROW * max(len(rows), 1),
        width=_x(1),
        ticks=tuple(tick for tick in ticks if not tick[1].minute and tick[1].hour % 3 == 0),
        read_from=None if whole or not ran else min(one.finished_at or one.created_at for one in ran),
    )


def verdict_of(one: Glance) -> str:
    """Return what became of an occurrence, or where it stands: a batch whose items run is running."""
    return "running" if one.is_batch and not one.state.final else str(one.state)


def _once(ran: Iterable[Glance], pasts: Mapping[str, Past]) -> Iterable[Glance]:
    seen = {one.id: one for past in pasts.values() for one in past.glances}
    seen |= {one.id: one for one in ran if one.parent is None}
    return seen.values()


def _cell_at(cells: dict[str, dict[int, HalfHour]], job: str, first: datetime, at: datetime) -> HalfHour | None:
    """Return the half hour of a moment, made where it is missing; ``None``: it is not of this day."""
    number = (at - first) // CELL
    if not 0 <= number < CELLS:
        return None
    return cells.setdefault(job, {}).setdefault(number, HalfHour(_x(number), first + number * CELL))


def _x(number: int) -> float:
    return round(100 * number / CELLS, 3)
