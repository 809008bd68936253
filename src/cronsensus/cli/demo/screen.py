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
"""How many items the batch has."""
SECOND = timedelta(seconds=1)
MOST_COLUMNS = 34
"""Most columns of a lane: with the node's name and what it runs, a line fits into 80 characters."""
MOST_EVENTS = 7
"""How many of the newest events are shown below the lanes."""

Mark = Literal["running", "finished", "killed", "taken", "taking"]
_MARKS: dict[Mark | None, tuple[str, str, str, str]] = {
    "running": ("▸", ">", "bold cyan", "running"),
    "finished": ("●", "o", "green", "finished"),
    "killed": ("✗", "x", "bold red", "cut off by kill -9"),
    "taken": ("◆", "T", "bold yellow", "taken over"),
    "taking": ("▸", ">", "bold yellow", ""),
    None: ("·", ".", "dim", ""),
}
"""Of each mark the Unicode character, the ASCII character, the style, and its words in the legend."""


@dataclass(slots=True)
class Cut:
    """A run that the kill cut off, and its takeover.

    Attributes:
        line: the start of the cut run.
        at: when its node was killed, by the monotonic clock.
        takeover: the start of the run on another node; ``None``: not yet.
    """

    line: Line
    at: float
    takeover: Line | None = None

    @property
    def seconds(self) -> float:
        """The time from the kill to the takeover; infinite without a takeover."""
        return float("inf") if self.takeover is None else self.takeover.at - self.at


@dataclass(slots=True)
class Lane:
    """The lane of a node.

    Attributes:
        state: ``starting``, ``alive``, ``dead`` or ``stopped``.
        marks: by nominal time.
        running: the starts of what it runs, by token.
    """

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
        runs = list(self.running.values())  # a copy: another thread changes it
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
        if cut is not None and cut.takeover is None:
            cut.takeover = line
        return cut

    def show_end(self, line: Line) -> None:
        """Show a run that finished, or was stopped."""
        self[line.node].running.pop(line.token, None)
        if line.event == "end":
            self.finished += 1
            self[line.node].mark(line, "taken" if line.occurrence in self.cuts else "finished")

    def show_kill(self, name: str, at: float) -> list[Line]:
        """Show that a node was killed; return the runs that this cut off."""
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
        live: whether it is drawn, in a terminal.
        to_stderr: whether the lines go to stderr, because stdout is for data.
    """

    lanes: Lanes
    title: str
    live: bool = False
    to_stderr: bool = False
    events: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))

    def add_event(self, at: float, text: str, style: str = "", *, in_lanes: bool = False) -> None:
        """Show an event, ``at`` seconds after the beginning; with ``in_lanes`` the lanes show it in a terminal."""
        if not self.live:
            click.echo(f"{at:6.2f} s  {text}", err=self.to_stderr)
        elif not in_lanes:
            self.events.append((at, text, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        def character_of(mark: Mark | None) -> tuple[str, str]:
            unicode, ascii_, style, _ = _MARKS[mark]
            return (ascii_ if options.ascii_only else unicode), style

        yield Text.assemble("\n  ", ("cronsensus demo", "bold"), "   " + self.title, no_wrap=True)
        yield Text("  One column a second: the job `tick` is due, and one mark says which node ran it.\n", "dim")
        width = max(20, min(options.max_width, 100))
        name_width = max(map(len, self.lanes))
        most_columns = max(10, min(MOST_COLUMNS, width - name_width - 36))
        columns = self.lanes.columns(most_columns)
        axis = " " * (name_width + 4)
        for number, column in enumerate(columns):
            if column.second % 10 == 0 and number + 8 <= most_columns:
                axis = axis.ljust(name_width + 4 + number) + f"{column.astimezone():%H:%M:%S}"
        yield Text(axis, "dim")
        for name, lane in self.lanes.items():
            title = f"  {name:<{name_width}}  ", "bold" if lane.state == "alive" else "dim"
            marks = [character_of(lane.marks.get(column)) for column in columns]
            rest = " " * (most_columns - len(columns) + 2)
            row = Text.assemble(title, *marks, rest, lane.describe_work(), no_wrap=True)
            row.truncate(width, overflow="ellipsis")
            yield row
        legend = Text("\n  ")
        for mark, (*_, words) in _MARKS.items():
            if words:
                legend.append(*character_of(mark)).append(f" {words}   ", "dim")
        yield legend.append(f"{self.lanes.finished} runs done\n", "bold")
        for at, text, style in self.events:
            yield Text.assemble((f"  {at:5.1f} s  ", "dim"), (text, style), overflow="fold")
