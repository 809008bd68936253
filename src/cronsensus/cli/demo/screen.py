"""The screen of the demo: a lane for each node, a column for each nominal second; without a terminal, log lines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

import click

from cronsensus.cli.demo.trace import Line
from cronsensus.model.batch import shown_key

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

TICK = "tick"
"""The job that is drawn in columns; the others are named beside the lane while they run."""
SHRINK = "shrink"
"""The job of the batch, whose items are too many for a line each."""
PICTURES = 90
SECOND = timedelta(seconds=1)
STRIP = 34
"""Most columns of a lane; with names and what runs it fits into 80."""
MOST_EVENTS = 7

Mark = Literal["running", "finished", "killed", "taken", "taking"]
_MARKS: dict[Mark | None, tuple[str, str, str, str]] = {
    "running": ("▸", ">", "bold cyan", "running"),
    "finished": ("●", "o", "green", "finished"),
    "killed": ("✗", "x", "bold red", "cut off by kill -9"),
    "taken": ("◆", "T", "bold yellow", "taken over"),
    "taking": ("▸", ">", "bold yellow", ""),
    None: ("·", ".", "dim", ""),
}
"""As Unicode, as ASCII, the style, and the words of the legend."""


@dataclass(slots=True)
class Cut:
    """A run that a kill cut off at a moment (monotonic), and the run that took it over."""

    line: Line
    at: float
    taken: Line | None = None

    @property
    def seconds(self) -> float:
        """The time from the kill to the takeover; infinite without a takeover."""
        return float("inf") if self.taken is None else self.taken.at - self.at


@dataclass(slots=True)
class Lane:
    """The lane of a node. ``state``: starting, alive, dead or stopped. ``running``: by token."""

    state: str = "starting"
    pid: int | None = None
    marks: dict[datetime, Mark] = field(default_factory=dict)
    running: dict[int, Line] = field(default_factory=dict)

    def mark(self, line: Line, mark: Mark) -> None:
        """Put a mark into the column of a tick."""
        if line.job == TICK and line.scheduled_for is not None:
            self.marks[line.scheduled_for] = mark

    def describe_work(self) -> tuple[str, str]:
        """Return what the node does, and the style."""
        if self.state != "alive":
            return (f"killed (pid {self.pid})", "bold red") if self.state == "dead" else (self.state, "dim")
        runs = list(self.running.values())  # at once: another thread changes it
        return ("runs " + ", ".join(map(occurrence_label, runs)), "cyan") if runs else ("waits", "dim")


class Lanes(dict[str, Lane]):
    """The lanes by node, updated by the lines of the runs and by the acts on the nodes.

    Attributes:
        cuts: the runs that the kill cut off, by occurrence.
        finished: how many runs have finished.
    """

    def __init__(self, names: list[str]) -> None:
        super().__init__({name: Lane() for name in names})
        self.cuts: dict[tuple[str, str], Cut] = {}
        self.finished = 0

    def show_start(self, line: Line) -> Cut | None:
        """Show a run that started; return the cut run that it takes over."""
        cut = self.cuts.get(line.occurrence)
        self[line.node].running[line.token] = line
        self[line.node].mark(line, "taking" if cut else "running")
        if cut is not None and cut.taken is None:
            cut.taken = line
        return cut

    def show_end(self, line: Line) -> None:
        """Show a run that finished, or was stopped."""
        self[line.node].running.pop(line.token, None)
        if line.event == "end":
            self.finished += 1
            self[line.node].mark(line, "taken" if line.occurrence in self.cuts else "finished")

    def show_kill(self, name: str, at: float) -> list[Line]:
        """Show a node that was killed; return the runs that it was in the middle of."""
        lane = self[name]
        cut, lane.state, lane.running = list(lane.running.values()), "dead", {}
        for line in cut:
            self.cuts[line.occurrence] = Cut(line, at)
            lane.mark(line, "killed")
        return cut

    def columns(self, width: int) -> list[datetime]:
        """Return the nominal seconds that fit: from the first on, or the last ``width`` of them."""
        seconds = [second for lane in self.values() for second in list(lane.marks)]
        if not seconds:
            return []
        first = max(min(seconds), max(seconds) - (width - 1) * SECOND)
        return [first + index * SECOND for index in range((max(seconds) - first) // SECOND + 1)]


def occurrence_label(line: Line) -> str:
    """Return a short name of an occurrence: its job, and its nominal time in the local zone, or its item."""
    if line.job == SHRINK:
        return f"{line.job} {shown_key(line.key)}"
    return line.job if line.scheduled_for is None else f"{line.job} {line.scheduled_for.astimezone():%H:%M:%S}"


@dataclass(slots=True)
class Screen:
    """The output of the demo: drawn by rich in a terminal; without a terminal, a line for each event.

    Attributes:
        live: whether it is drawn.
        to_stderr: whether the lines go to stderr, because data goes to stdout.
    """

    lanes: Lanes
    title: str
    live: bool = False
    to_stderr: bool = False
    events: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))

    def add_event(self, at: float, text: str, style: str = "", *, in_lanes: bool = False) -> None:
        """Show an event, ``at`` seconds after the beginning; with ``in_lanes`` it needs no line in a terminal."""
        if not self.live:
            click.echo(f"{at:6.2f} s  {text}", err=self.to_stderr)
        elif not in_lanes:
            self.events.append((at, text, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        def drawn(mark: Mark | None) -> tuple[str, str]:
            unicode, ascii_, style, _ = _MARKS[mark]
            return (ascii_ if options.ascii_only else unicode), style

        yield Text.assemble("\n  ", ("cronsensus demo", "bold"), "   " + self.title, no_wrap=True)
        yield Text("  One column a second: the job `tick` is due, and one mark says which node ran it.\n", "dim")
        width = max(20, min(options.max_width, 100))
        names = max(map(len, self.lanes))
        strip = max(10, min(STRIP, width - names - 36))
        columns = self.lanes.columns(strip)
        axis = " " * (names + 4)
        for number, column in enumerate(columns):
            if column.second % 10 == 0 and number + 8 <= strip:
                axis = axis.ljust(names + 4 + number) + f"{column.astimezone():%H:%M:%S}"
        yield Text(axis, "dim")
        for name, lane in self.lanes.items():
            title = f"  {name:<{names}}  ", "bold" if lane.state == "alive" else "dim"
            marks = [drawn(lane.marks.get(column)) for column in columns]
            row = Text.assemble(title, *marks, " " * (strip - len(columns) + 2), lane.describe_work(), no_wrap=True)
            row.truncate(width, overflow="ellipsis")
            yield row
        legend = Text("\n  ")
        for mark, (*_, words) in _MARKS.items():
            if words:
                legend.append(*drawn(mark)).append(f" {words}   ", "dim")
        yield legend.append(f"{self.lanes.finished} runs done\n", "bold")
        for at, text, style in self.events:
            yield Text.assemble((f"  {at:5.1f} s  ", "dim"), (text, style), overflow="fold")
