"""The last 24 hours by job: the worst verdict of each half hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import is_internal
from cronsensus.model.plan import VerdictRange

CELL_TIME = timedelta(minutes=30)
CELLS = 48
HEAD, ROW = 26, 22
_MOST_ROWS = 40
_WORST_FIRST = ("failed", "missed", "running", "pending", "succeeded", "cancelled", "skipped")
_TROUBLE = {"failed": 0, "missed": 1}


@dataclass(slots=True)
class HalfHour:
    """The verdicts of a job's times in half an hour; ``run``: the newest with the worst verdict."""

    x: float
    at: datetime
    counts: Counter[str] = field(default_factory=Counter)
    runs: dict[str, int] = field(default_factory=dict)
    taken_over: bool = False

    @property
    def worst(self) -> str:
        """The verdict that matters most."""
        return next(state for state in _WORST_FIRST if self.counts[state])

    @property
    def run(self) -> int | None:
        """A run with this verdict; ``None``: there is no occurrence."""
        return self.runs.get(self.worst)


@dataclass(slots=True)
class DayRow:
    """A job, with the half hours in which it had times."""

    job: str
    y: int
    cells: list[HalfHour]


@dataclass(frozen=True, slots=True)
class Day:
    """The picture; ``read_from``: runs that ended earlier were not read."""

    rows: tuple[DayRow, ...]
    more: int
    height: int
    width: float
    ticks: tuple[tuple[float, datetime], ...]
    read_from: datetime | None


def draw_day(now: datetime, pasts: Mapping[str, Past], ran: Sequence[Glance], *, complete: bool) -> Day:
    """Return the last 24 hours, the jobs in trouble first, else by name.

    Args:
        now: the store's clock.
        pasts: the newest verdicts of some jobs.
        ran: the runs of all jobs that ended in the last day.
        complete: whether these are all of them.
    """
    last_cell = now - (now - datetime.min.replace(tzinfo=now.tzinfo)) % CELL_TIME
    first_cell = last_cell - (CELLS - 1) * CELL_TIME
    by_job: dict[str, list[tuple[str, datetime, Glance | VerdictRange]]] = {}
    for glance in _once(ran, pasts):
        at = glance.scheduled_for or glance.begun_at or glance.due_at
        if at >= first_cell and (glance.state.final or glance.begun_at is not None):
            by_job.setdefault(glance.job, []).append((verdict_of(glance), at, glance))
    for name, past in pasts.items():
        ranges = (ledger_range.range for ledger_range in past.ranges if ledger_range.range.last >= first_cell)
        by_job.setdefault(name, []).extend(
            (str(ledger_range.state), ledger_range.last, ledger_range) for ledger_range in ranges
        )
    order = sorted(
        (job for job, verdicts in by_job.items() if verdicts and not is_internal(job)),
        key=lambda job: (min(_TROUBLE.get(state, 2) for state, _, _ in by_job[job]), job),
    )
    rows = tuple(
        DayRow(job, HEAD + ROW * number, _half_hours(by_job[job], first_cell))
        for number, job in enumerate(order[:_MOST_ROWS])
    )
    ticks = [(_x(number), first_cell + number * CELL_TIME) for number in range(CELLS)]
    return Day(
        rows=rows,
        more=max(0, len(order) - len(rows)),
        height=HEAD + ROW * max(len(rows), 1),
        width=_x(1),
        ticks=tuple(tick for tick in ticks if not tick[1].minute and tick[1].hour % 3 == 0),
        read_from=None if complete or not ran else min(glance.finished_at or glance.created_at for glance in ran),
    )


def verdict_of(glance: Glance) -> str:
    """Return the verdict or state of an occurrence: a batch whose items run is running."""
    return "running" if glance.is_batch and not glance.state.final else str(glance.state)


def _once(ran: Iterable[Glance], pasts: Mapping[str, Past]) -> Iterable[Glance]:
    by_id = {glance.id: glance for past in pasts.values() for glance in past.glances}
    by_id |= {glance.id: glance for glance in ran if glance.parent is None}
    return by_id.values()


def _half_hours(
    verdicts: Iterable[tuple[str, datetime, Glance | VerdictRange]], first_cell: datetime
) -> list[HalfHour]:
    """Return the half hours in which something happened, in order."""
    cells: dict[int, HalfHour] = {}
    for state, at, outcome in verdicts:
        number = (at - first_cell) // CELL_TIME
        if number >= CELLS:
            continue
        cell = cells.get(number)
        if cell is None:
            cell = cells[number] = HalfHour(_x(number), first_cell + number * CELL_TIME)
        if isinstance(outcome, Glance):
            cell.counts[state] += 1
            cell.runs[state] = max(outcome.id, cell.runs.get(state, 0))
            cell.taken_over |= outcome.crashes > 0
        else:
            cell.counts[state] += outcome.count or 1
    return [cells[number] for number in sorted(cells)]


def _x(number: int) -> float:
    return round(100 * number / CELLS, 3)
