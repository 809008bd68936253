"""One row per figure: what was asked, what was measured, and whether that is enough."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``ok=None``: there is no goal to compare with."""

    bench: str
    figure: str
    measured: str
    goal: str = ""
    ok: bool | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Several things, each measured in the same ways."""

    title: str
    columns: tuple[str, ...]
    lines: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def quantile(values: list[float], q: float) -> float:
    """Return the nearest-rank quantile; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(q * len(ordered) + 0.5) - 1))]


def milliseconds(seconds: float) -> str:
    """Return seconds as text in milliseconds."""
    return f"{seconds * 1000:,.1f} ms"


def machine() -> str:
    """Say what this was measured on."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def markdown(results: Sequence[Row | Table]) -> str:
    """Return the tables, and the rows as one more, for the documentation."""
    tables = [each for each in results if isinstance(each, Table)]
    rows = [each for each in results if isinstance(each, Row)]
    mark = {True: "✓", False: "✗", None: ""}
    if rows:
        lines = [(row.bench, row.figure, row.measured, row.goal, mark[row.ok]) for row in rows]
        tables.append(Table("", ("bench", "figure", "measured", "goal", ""), list(lines)))
    return "\n\n".join(map(_markdown, tables))


def _markdown(table: Table) -> str:
    lines = [f"**{table.title}**\n"] if table.title else []
    lines += [f"| {' | '.join(table.columns)} |", f"|{'---|' * len(table.columns)}"]
    lines += [f"| {' | '.join(line)} |" for line in table.lines]
    return "\n".join(lines + [f"\n{note}" for note in table.notes])


def say(text: str) -> None:
    """Tell what is going on, on stderr."""
    print(text, file=sys.stderr, flush=True)
