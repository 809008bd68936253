"""What has become of the runs and of the nodes: one lane a node, one column a nominal second. Prints nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from cronsensus.cli.demo.trace import Line

TICK = "tick"
"""The job that has the columns; the others are named beside the lane while they run."""
SECOND = timedelta(seconds=1)

Mark = Literal["running", "finished", "killed", "taking", "taken"]


@dataclass(slots=True)
class Cut:
    """A run that a kill cut off at a moment (monotonic), and the run that took it over."""

    line: Line
    at: float
    taken: Line | None = None

    @property
    def seconds(self) -> float:
        """From the kill to the takeover; infinite if there is none."""
        return float("inf") if self.taken is None else self.taken.at - self.at


@dataclass(slots=True)
class Lane:
    """One node's part. ``state``: starting, alive, dead or stopped. ``running``: by token."""

    state: str = "starting"
    pid: int | None = None
    marks: dict[datetime, Mark] = field(default_factory=dict)
    running: dict[int, Line] = field(default_factory=dict)


class Lanes:
    """All lanes; changed by what the runs write and by what is done to the nodes.

    Attributes:
        cuts: what kills cut off, by occurrence.
        finished: how many runs have.
    """

    def __init__(self, names: list[str]) -> None:
        self.by_name = {name: Lane() for name in names}
        self.cuts: dict[tuple[str, str], Cut] = {}
        self.finished = 0

    def started(self, line: Line) -> Cut | None:
        """Show a run that started; return what it takes over."""
        cut = self.cuts.get(line.occurrence)
        self.by_name[line.node].running[line.token] = line
        self._mark(line, "taking" if cut else "running")
        if cut is not None and cut.taken is None:
            cut.taken = line
        return cut

    def ended(self, line: Line) -> None:
        """Show a run that finished, or was stopped."""
        self.by_name[line.node].running.pop(line.token, None)
        if line.event == "end":
            self.finished += 1
            self._mark(line, "taken" if line.occurrence in self.cuts else "finished")

    def node(self, name: str, state: str, pid: int | None = None) -> None:
        """Show a node's new state."""
        lane = self.by_name[name]
        lane.state, lane.pid = state, pid or lane.pid

    def killed(self, name: str, at: float) -> list[Line]:
        """Show a node that was killed; return the runs that it was in the middle of."""
        lane = self.by_name[name]
        cut, lane.state, lane.running = list(lane.running.values()), "dead", {}
        for line in cut:
            self.cuts[line.occurrence] = Cut(line, at)
            self._mark(line, "killed")
        return cut

    def columns(self, width: int) -> list[datetime]:
        """Return the nominal seconds that fit: from the first on, or the last ``width`` of them."""
        seconds = [second for lane in self.by_name.values() for second in list(lane.marks)]
        if not seconds:
            return []
        last = max(seconds)
        first = max(min(seconds), last - (width - 1) * SECOND)
        return [first + index * SECOND for index in range((last - first) // SECOND + 1)]

    def _mark(self, line: Line, mark: Mark) -> None:
        if line.job == TICK and line.scheduled_for is not None:
            self.by_name[line.node].marks[line.scheduled_for] = mark


def label(line: Line) -> str:
    """Return what names an occurrence in few characters: its job, and its nominal time by the clock of this place."""
    return line.job if line.scheduled_for is None else f"{line.job} {line.scheduled_for.astimezone():%H:%M:%S}"
