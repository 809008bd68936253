"""All output of the commands is printed here.

Data goes to stdout: rich tables in a terminal, plain columns in a pipe (no boxes, no colours), or a JSON document with
``-o json``. Messages go to stderr. Text from users or from a store is made harmless before it is shown: the name of a
job must not colour a terminal, move its cursor, or write markup.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cronsensus.cli.group import Invocation
from cronsensus.cli.terminal import clean_text, pad_text, squeeze_text, width_of
from cronsensus.insight.as_data import json_leaf
from cronsensus.security.masking import mask

if TYPE_CHECKING:
    from rich.console import Console

    from cronsensus.stores.base import Store

STYLES = {
    "succeeded": "green", "failed": "bold red", "cancelled": "yellow", "skipped": "dim", "missed": "bold magenta",
    "running": "bold cyan", "pending": "blue", "paused": "yellow", "retired": "dim", "alive": "green",
    "draining": "yellow", "closed": "dim", "dead": "red", "crashed": "red", "released": "yellow", "retry": "yellow",
    "snoozed": "cyan",
    "active": "green", "kept": "yellow", "ok": "green", "warn": "yellow", "fail": "bold red",
    "gone": "red", "stopped": "red", "unknown": "yellow",
}  # fmt: skip
"""The styles of the ledger's words in a terminal; the word itself is always there too."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a rich style, for a terminal."""

    text: str
    style: str = ""


def style_state(text: str) -> Cell:
    """Return a state's name in its style."""
    return Cell(text, STYLES.get(text, ""))


Row = Sequence[str | Cell | None]

_COLUMN_GAP = 3
"""Characters between two columns in a terminal."""
_LEAST_PROSE = 16
"""Least width of a column with wrapped words."""
_LEAST_SQUEEZED = 9
"""Least width of a column that is cut in the middle, in a terminal that is too narrow."""
REFRESH_SECONDS = 2.0
LEAST_PAUSE = 0.3
_PAUSE = threading.Event()
"""Never set: for pauses that Ctrl-C ends."""


class Output:
    """Prints the results of a command in the format of its invocation."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.terminal = not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        # A pipe may end in a program that shows colours, such as the log of a CI job.
        self.styled = self.terminal or (not as_json and os.environ.get("FORCE_COLOR", "0") not in {"", "0"})
        self._console: Console | None = None

    @classmethod
    def current(cls) -> Output:
        """Return the output of the command which is running."""
        return cls(as_json=Invocation.current().output == "json")

    @property
    def console(self) -> Console:
        """Return rich's console on stdout; for live views in a terminal."""
        if self._console is None:
            from rich.console import Console

            # Set explicitly: rich reads the environment in its own way.
            self._console = Console(highlight=False, markup=False, emoji=False, force_terminal=self.styled)
        return self._console

    def document(self, data: Any) -> None:
        """Print ``data`` as one JSON document: instants as ISO 8601 with Z, durations in seconds."""
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        text = json.dumps(data, indent=2, default=json_leaf, ensure_ascii=not utf8, allow_nan=False)
        click.echo(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))

    def printed_json(self, data: Any) -> bool:
        """Print ``data`` as a document if the invocation asked for JSON; return whether it did."""
        if self.as_json:
            self.document(data)
        return self.as_json

    def show_live(self, store: Store, draw: Callable[[], bool | None], *, again: bool) -> None:
        """Draw once; with ``again`` draw anew at each notification of the store, until ``draw`` returns true or Ctrl-C.

        Raises:
            CommandError: ``again`` without a terminal to draw on.
        """
        if not again:
            draw()
            return
        if not self.terminal:
            from cronsensus.cli.errors import CommandError

            raise CommandError(
                "--watch needs a terminal", then="leave --watch out, or call the command again and again"
            )
        try:
            with self.console.screen():
                while True:
                    self.console.clear()
                    if draw():
                        return
                    # Notifications make it quick. The pause keeps it from reading a busy store all the time.
                    store.wait(REFRESH_SECONDS)
                    _PAUSE.wait(LEAST_PAUSE)
        except KeyboardInterrupt:
            return

    def line(self, text: str | Cell = "") -> None:
        """Print one line, or several separated by newlines."""
        cell = text if isinstance(text, Cell) else Cell(text)
        self._print(Cell(clean_text(cell.text, lines=True), cell.style))

    def _print(self, *cells: Cell) -> None:
        if self.styled and any(cell.style for cell in cells):
            from rich.text import Text

            self.console.print(Text.assemble(*((cell.text, cell.style) for cell in cells)), soft_wrap=True)
        else:
            click.echo("".join(cell.text for cell in cells))

    def heading(self, text: str) -> None:
        """Print the title of what follows."""
        self.line(Cell(text, "bold"))

    def pairs(self, pairs: Sequence[tuple[str, str | Cell | None]]) -> None:
        """Print names and values, one pair a line; those without a value are left out."""
        shown = [(name, value) for name, value in pairs if value is not None]
        width = max((width_of(name) for name, _ in shown), default=0)
        for name, value in shown:
            cell = value if isinstance(value, Cell) else Cell(value)
            first_line, *following = clean_text(cell.text, lines=True).splitlines() or [""]
            text = "\n".join([first_line, *(" " * (width + 4) + line for line in following)])
            self._print(Cell(f"  {pad_text(name, width)}  ", "dim"), Cell(text, cell.style))

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        empty: str = "",
        prose: Collection[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Print rows under ``columns``; without rows print ``empty``, which says how to get some, to stderr.

        If the terminal is too narrow, the columns of ``prose`` are wrapped between words. Then those of ``spare`` are
        left out one after the other, with a message. Then the widest cells are cut in the middle. In a pipe nothing is
        cut.
        """
        if not rows:
            if empty:
                print_message(empty)
            return
        cells = [[_cell(value) for value in row] for row in rows]
        # Leave out empty columns.
        used = [index for index in range(len(columns)) if any(row[index].text for row in cells)]
        columns = [columns[index] for index in used]
        cells = [[row[index] for index in used] for row in cells]
        if self.styled:
            least = _least_widths(columns, cells, prose)
            for column in spare:
                if sum(least.values()) + _COLUMN_GAP * (len(least) - 1) > self.console.width:
                    least.pop(column, None)
            kept = [index for index, column in enumerate(columns) if column in least]
            if len(kept) < len(columns):
                left_out = ", ".join(column for column in columns if column not in least)
                print_message(f"no room for: {left_out}; a wider terminal shows them, and so does -o json")
            cells = [[row[index] for index in kept] for row in cells]
            self._rich_table(*_fitted(least, cells, prose, self.console.width), prose)
        else:
            _plain_table(columns, cells)

    def _rich_table(self, columns: Mapping[str, int], rows: list[list[Cell]], prose: Collection[str]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        for column, least in columns.items():
            table.add_column(Text(column), no_wrap=column not in prose, overflow="ellipsis", min_width=least)
        for row in rows:
            table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
        self.console.print(table)


def print_message(text: str) -> None:
    """Print a message for the person at the keyboard to stderr, beside the data."""
    context = click.get_current_context(silent=True)
    typed = text if context is None else context.ensure_object(Invocation).typed(text)
    click.echo(clean_text(mask(typed), lines=True), err=True)


def message_once(text: str) -> None:
    """Print a message once in a command."""
    printed = Invocation.current().printed
    if text not in printed:
        printed.add(text)
        print_message(text)


def _cell(value: str | Cell | None) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value or "")
    return Cell(clean_text(cell.text), cell.style)


def _least_widths(columns: Sequence[str], rows: list[list[Cell]], prose: Collection[str]) -> dict[str, int]:
    """Return the least width of each column at which only prose is broken, and only between words."""
    widths = {}
    for index, column in enumerate(columns):
        widest = max(width_of(text) for text in (column, *(row[index].text for row in rows)))
        widths[column] = min(widest, _LEAST_PROSE) if column in prose else widest
    return widths


def _fitted(
    least: dict[str, int], rows: list[list[Cell]], prose: Collection[str], width: int
) -> tuple[dict[str, int], list[list[Cell]]]:
    """Return widths and rows that fit into ``width``, if possible: the widest cells are cut in the middle."""
    widths = dict(least)
    while sum(widths.values()) + _COLUMN_GAP * (len(widths) - 1) > width:
        widest = max((column for column in widths if column not in prose), key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= max(_LEAST_SQUEEZED, width_of(widest)):
            break
        widths[widest] -= 1
    places = list(widths.items())
    fitted = [
        [
            cell if column in prose else Cell(squeeze_text(cell.text, fits), cell.style)
            for cell, (column, fits) in zip(row, places, strict=True)
        ]
        for row in rows
    ]
    return widths, fitted


def _plain_table(columns: Sequence[str], rows: list[list[Cell]]) -> None:
    lines = [[column.upper() for column in columns], *([cell.text for cell in row] for row in rows)]
    widths = [max(width_of(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        click.echo("  ".join(pad_text(text, width) for text, width in zip(line, widths, strict=True)).rstrip())


_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON leaves as they are, and a terminal would obey. They occur only inside of strings."""
