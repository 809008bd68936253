"""How the demo shows itself: live lanes in a terminal, one line per event in a pipe."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from cronsensus.cli.demo.lanes import Lane, Lanes, Mark

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

STRIP = 34
"""Most columns of a lane; with names and what runs it fits into 80."""
MOST_SAID = 7

_MARKS: dict[Mark, tuple[str, str, str]] = {
    "running": ("▸", ">", "bold cyan"),
    "finished": ("●", "o", "green"),
    "killed": ("✗", "x", "bold red"),
    "taking": ("▸", ">", "bold yellow"),
    "taken": ("◆", "T", "bold yellow"),
}
"""As Unicode, as ASCII, and the style."""
_LEGEND: tuple[tuple[Mark, str], ...] = (
    ("running", "running"),
    ("finished", "finished"),
    ("killed", "cut off by kill -9"),
    ("taken", "taken over"),
)


class Screen(ABC):
    """Where the demo shows what happens."""

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - most have nothing to put away
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the screen as it is."""

    @abstractmethod
    def say(self, at: float, text: str, style: str = "") -> None:
        """Say something that one should not miss."""

    @abstractmethod
    def mention(self, at: float, text: str) -> None:
        """Say something that the lanes show too."""

    @abstractmethod
    def draw(self, at: float, lanes: Lanes) -> None:
        """Show how it stands ``at`` seconds after the beginning."""


class PlainScreen(Screen):
    """One line per event; for pipes, files, and beside JSON."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr

    def say(self, at: float, text: str, style: str = "") -> None:  # noqa: ARG002 - plain text has no style
        """Print the line."""
        click.echo(f"{at:6.2f} s  {text}", err=self._to_stderr)
        (sys.stderr if self._to_stderr else sys.stdout).flush()

    def mention(self, at: float, text: str) -> None:
        """Print the line."""
        self.say(at, text)

    def draw(self, at: float, lanes: Lanes) -> None:
        """Draw nothing: the lines tell all."""


class LiveScreen(Screen):
    """Lanes that move, and below them the last that was said."""

    def __init__(self, console: Console, title: str) -> None:
        from rich.live import Live

        self._title = title
        self._said: deque[tuple[float, str, str]] = deque(maxlen=MOST_SAID)
        self._lanes = Lanes([])
        self._at = 0.0
        self._ascii = not (console.encoding or "").lower().startswith("utf")
        self._live = Live(self, console=console, refresh_per_second=15, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, at: float, text: str, style: str = "") -> None:
        """Put it below the lanes."""
        self._said.append((at, text, style))

    def mention(self, at: float, text: str) -> None:
        """Leave it to the lanes."""

    def draw(self, at: float, lanes: Lanes) -> None:
        """Let the next refresh show this."""
        self._at, self._lanes = at, lanes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text()
        yield Text.assemble("  ", ("cronsensus demo", "bold"), "   " + self._title, no_wrap=True)
        yield Text("  One column a second: the job `tick` is due, and one mark says who ran it.", "dim")
        yield Text()
        yield from self._draw_lanes(max(20, min(options.max_width, 100)))
        yield Text()
        yield self._legend()
        yield Text()
        for at, text, style in self._said:
            yield Text.assemble((f"  {at:5.1f} s  ", "dim"), (text, style), overflow="fold")

    def _draw_lanes(self, width: int) -> list[Text]:
        from rich.text import Text

        lanes = self._lanes
        names = max([len(name) for name in lanes.by_name], default=6)
        strip = max(10, min(STRIP, width - names - 36))
        columns = lanes.columns(strip)
        axis = Text(" " * (names + 4))
        column = 0
        while column < len(columns):
            at = columns[column].astimezone()
            if at.second % 10 == 0 and column + 8 <= strip:
                axis.append(f"{at:%H:%M:%S}  ", "dim")
                column += 10
            else:
                axis.append(" ")
                column += 1
        rows = [axis]
        for lane in lanes.by_name.values():
            row = Text("  ", no_wrap=True, overflow="ellipsis")
            row.append(f"{lane.name:<{names}}  ", "bold" if lane.state == "alive" else "dim")
            for at in columns:
                mark = lane.marks.get(at)
                glyph, plain, style = _MARKS[mark] if mark is not None else ("·", ".", "dim")
                row.append(plain if self._ascii else glyph, style)
            row.append(" " * (strip - len(columns)) + "  ")
            row.append_text(_doing(lane))
            row.truncate(width)
            rows.append(row)
        return rows

    def _legend(self) -> Text:
        from rich.text import Text

        text = Text("  ")
        for mark, words in _LEGEND:
            glyph, plain, style = _MARKS[mark]
            text.append(plain if self._ascii else glyph, style)
            text.append(f" {words}   ", "dim")
        text.append(f"{self._lanes.numbers['finished']} runs done", "bold")
        return text


def _doing(lane: Lane) -> Text:
    from rich.text import Text

    match lane.state:
        case "dead":
            return Text(f"killed (pid {lane.pid})", "bold red")
        case "alive":
            doing = lane.doing()
            return Text(f"runs {doing}", "cyan") if doing else Text("waits", "dim")
        case state:
            return Text(state, "dim")
