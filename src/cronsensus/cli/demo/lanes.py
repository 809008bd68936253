"""What the lanes show: one lane a node, one column a nominal second. Prints nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from cronsensus.cli.demo.trace import Line

TICK = "tick"
"""The job that has the columns; the others are named beside the lane while they run."""

Mark = Literal["running", "finished", "killed", "taking", "taken"]


@dataclass(slots=True)
class Lane:
    """One node's part. ``state``: starting, alive, dead or stopped."""

    name: str
    state: str = "starting"
    pid: int | None = None
    marks: dict[datetime, Mark] = field(default_factory=dict)
    running: dict[int, Line] = field(default_factory=dict)
    """By token."""

    def doing(self) -> str:
        """Say what runs now."""
        return ", ".join(f"{line.job} {label(line)}" for line in self.running.values())


class Lanes:
    """All lanes; changed by what the runs write and by what is done to the nodes."""

    def __init__(self, names: list[str]) -> None:
        self.by_name = {name: Lane(name) for name in names}
        self.numbers: Counter[str] = Counter()
        self.first: datetime | None = None
        self.last: datetime | None = None
        self._cut: set[tuple[str, str]] = set()

    def started(self, line: Line) -> bool:
        """Show a run that started; return whether it is a takeover of one that was cut off."""
        lane = self.by_name[line.node]
        lane.running[line.token] = line
        taken = line.occurrence in self._cut
        self._mark(lane, line, "taking" if taken else "running")
        self.numbers["taken over"] += taken
        return taken

    def ended(self, line: Line) -> None:
        """Show a run that finished."""
        lane = self.by_name[line.node]
        lane.running.pop(line.token, None)
        self._mark(lane, line, "taken" if line.occurrence in self._cut else "finished")
        self.numbers["finished"] += 1

    def broken(self, line: Line) -> None:
        """Show a run that was stopped."""
        self.by_name[line.node].running.pop(line.token, None)

    def node(self, name: str, state: str, pid: int | None = None) -> None:
        """Show a node's new state."""
        lane = self.by_name[name]
        lane.state = state
        lane.pid = pid or lane.pid

    def killed(self, name: str) -> list[Line]:
        """Show a node that was killed; return the runs that it was in the middle of."""
        lane = self.by_name[name]
        lane.state = "dead"
        cut, lane.running = list(lane.running.values()), {}
        for line in cut:
            self._cut.add(line.occurrence)
            self._mark(lane, line, "killed")
        self.numbers["cut off"] += len(cut)
        return cut

    @property
    def running(self) -> int:
        """How many runs are under way."""
        return sum(len(lane.running) for lane in self.by_name.values())

    def columns(self, width: int) -> list[datetime]:
        """Return the nominal seconds that fit: from the first on, or the last ``width`` of them."""
        if self.first is None or self.last is None:
            return []
        number = int((self.last - self.first) / timedelta(seconds=1)) + 1
        begin = self.first + timedelta(seconds=max(0, number - width))
        return [begin + timedelta(seconds=index) for index in range(min(number, width))]

    def _mark(self, lane: Lane, line: Line, mark: Mark) -> None:
        if line.job != TICK or line.scheduled_for is None:
            return
        at = line.scheduled_for
        lane.marks[at] = mark
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)


def label(line: Line) -> str:
    """Return what names an occurrence in few characters: its nominal time, or what follows the colon in its key."""
    if line.scheduled_for is None:
        return "#" + line.key.rpartition(":")[2]
    return clock_time(line.scheduled_for)


def clock_time(instant: datetime) -> str:
    """Return an instant as the wall clock of this place shows it."""
    return f"{instant.astimezone():%H:%M:%S}"
