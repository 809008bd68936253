"""What one sees: lanes that move in a terminal, one line per event in a pipe, in a file, and beside JSON."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

import click

from cronsensus.cli.demo.lanes import Lane, Lanes, Mark, label

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

STRIP = 34
"""Most columns of a lane; with names and what runs it fits into 80."""
MOST_SAID = 7

_MARKS: dict[Mark, tuple[str, str, str, str]] = {
    "running": ("▸", ">", "bold cyan", "running"),
    "finished": ("●", "o", "green", "finished"),
    "killed": ("✗", "x", "bold red", "cut off by kill -9"),
    "taken": ("◆", "T", "bold yellow", "taken over"),
    "taking": ("▸", ">", "bold yellow", ""),
}
"""As Unicode, as ASCII, the style, and the words of the legend."""


class Screen:
    """Where the demo shows what happens.

    Args:
        console: the terminal; ``None``: there is none, so print a line per event.
        to_stderr: where the lines go; data goes to the other place.
    """

    def __init__(self, lanes: Lanes, console: Console | None, title: str = "", *, to_stderr: bool = False) -> None:
        self._lanes = lanes
        self._title = title
        self._to_stderr = to_stderr
        self._said: deque[tuple[float, str, str]] = deque(maxlen=MOST_SAID)
        self._live = None
        if console is not None:
            from rich.live import Live

            self._ascii = not (console.encoding or "").lower().startswith("utf")
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

    def say(self, at: float, text: str, style: str = "") -> None:
        """Say something that one should not miss, ``at`` seconds after the beginning."""
        self._said.append((at, text, style))
        if self._live is None:
            click.echo(f"{at:6.2f} s  {text}", err=self._to_stderr)

    def mention(self, at: float, text: str) -> None:
        """Say something that the lanes show too."""
        if self._live is None:
            self.say(at, text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text.assemble("\n  ", ("cronsensus demo", "bold"), "   " + self._title, no_wrap=True)
        yield Text("  One column a second: the job `tick` is due, and one mark says who ran it.\n", "dim")
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
            row.append(" " * (strip - len(columns)) + "  ").append(*_doing(lane)).truncate(width)
            rows.append(row)
        return rows

    def _draw_mark(self, mark: Mark | None) -> Text:
        from rich.text import Text

        glyph, plain, style, _ = _MARKS[mark] if mark else ("·", ".", "dim", "")
        return Text(plain if self._ascii else glyph, style)


def _doing(lane: Lane) -> tuple[str, str]:
    """Return what a node does, and the style."""
    if lane.state == "dead":
        return f"killed (pid {lane.pid})", "bold red"
    if lane.state != "alive":
        return lane.state, "dim"
    runs = list(lane.running.values())  # at once: another thread changes it
    return ("runs " + ", ".join(map(label, runs)), "cyan") if runs else ("waits", "dim")
