"""What one sees: one lane a node and one column a nominal second, or one line an event where there is no terminal."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Self

import click

from cronsensus.cli.demo.trace import Line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

TICK = "tick"
"""The job that has the columns; the others are named beside the lane while they run."""
SECOND = timedelta(seconds=1)
STRIP = 34
"""Most columns of a lane; with names and what runs it fits into 80."""
MOST_SAID = 7

Mark = Literal["running", "finished", "killed", "taken", "taking"]
_MARKS: dict[Mark, tuple[str, str, str, str]] = {
    "running": ("▸", ">", "bold cyan", "running"),
    "finished": ("●", "o", "green", "finished"),
    "killed": ("✗", "x", "bold red", "cut off by kill -9"),
    "taken": ("◆", "T", "bold yellow", "taken over"),
    "taking": ("▸", ">", "bold yellow", ""),
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
        """From the kill to the takeover; infinite if there is none."""
        return float("inf") if self.taken is None else self.taken.at - self.at


@dataclass(slots=True)
class Lane:
    """One node's part. ``state``: starting, alive, dead or stopped. ``running``: by token."""

    state: str = "starting"
    pid: int | None = None
    marks: dict[datetime, Mark] = field(default_factory=dict)
    running: dict[int, Line] = field(default_factory=dict)

    def doing(self) -> tuple[str, str]:
        """Return what the node does, and the style."""
        if self.state == "dead":
            return f"killed (pid {self.pid})", "bold red"
        if self.state != "alive":
            return self.state, "dim"
        runs = list(self.running.values())  # at once: another thread changes it
        return ("runs " + ", ".join(map(label, runs)), "cyan") if runs else ("waits", "dim")


class Lanes:
    """All lanes, changed by what the runs write and by what is done to the nodes.

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
        first = max(min(seconds), max(seconds) - (width - 1) * SECOND)
        return [first + index * SECOND for index in range((max(seconds) - first) // SECOND + 1)]

    def _mark(self, line: Line, mark: Mark) -> None:
        if line.job == TICK and line.scheduled_for is not None:
            self.by_name[line.node].marks[line.scheduled_for] = mark


def label(line: Line) -> str:
    """Return what names an occurrence in few characters: its job, and its nominal time in the local zone."""
    return line.job if line.scheduled_for is None else f"{line.job} {line.scheduled_for.astimezone():%H:%M:%S}"


class Screen:
    """Where the demo shows what happens.

    Args:
        console: the terminal; ``None``: there is none, so print a line per event.
        to_stderr: where the lines go; data goes to the other place.
    """

    def __init__(self, lanes: Lanes, console: Console | None, title: str = "", *, to_stderr: bool = False) -> None:
        self._lanes, self._title, self._to_stderr = lanes, title, to_stderr
        self._said: deque[tuple[float, str, str]] = deque(maxlen=MOST_SAID)
        self._live = None
        if console is not None:
            from rich.live import Live

            self._glyph = 0 if (console.encoding or "").lower().startswith("utf") else 1
            self._live = Live(
                self, console=console, refresh_per_second=15, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, at: float, text: str, style: str = "", *, in_lanes: bool = False) -> None:
        """Tell an event, ``at`` seconds after the beginning; one that is ``in_lanes`` already needs no line there."""
        if self._live is None:
            click.echo(f"{at:6.2f} s  {text}", err=self._to_stderr)
        if not in_lanes:
            self._said.append((at, text, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text.assemble("\n  ", ("cronsensus demo", "bold"), "   " + self._title, no_wrap=True)
        yield Text("  One column a second: the job `tick` is due, and one mark says which node ran it.\n", "dim")
        yield from self._draw_lanes(max(20, min(options.max_width, 100)))
        legend = Text("\n  ")
        for mark, (*_, words) in _MARKS.items():
            if words:
                legend.append_text(self._draw_mark(mark)).append(f" {words}   ", "dim")
        yield legend.append(f"{self._lanes.finished} runs done\n", "bold")
        for at, text, style in self._said:
            yield Text.assemble((f"  {at:5.1f} s  ", "dim"), (text, style), overflow="fold")

    def _draw_lanes(self, width: int) -> list[Text]:
        from rich.text import Text

        names = max(map(len, self._lanes.by_name))
        strip = max(10, min(STRIP, width - names - 36))
        columns = self._lanes.columns(strip)
        axis = Text(" " * (names + 4), "dim")
        for number, column in enumerate(columns):
            if column.second % 10 == 0 and number + 8 <= strip:
                axis.append(f"{column.astimezone():%H:%M:%S}")
            elif len(axis) == names + 4 + number:
                axis.append(" ")
        rows = [axis]
        for name, lane in self._lanes.by_name.items():
            row = Text("  ", no_wrap=True, overflow="ellipsis")
            row.append(f"{name:<{names}}  ", "bold" if lane.state == "alive" else "dim")
            for column in columns:
                row.append_text(self._draw_mark(lane.marks.get(column)))
            row.append(" " * (strip - len(columns)) + "  ").append(*lane.doing()).truncate(width)
            rows.append(row)
        return rows

    def _draw_mark(self, mark: Mark | None) -> Text:
        from rich.text import Text

        drawn = _MARKS[mark] if mark else ("·", ".", "dim", "")
        return Text(drawn[self._glyph], drawn[2])
