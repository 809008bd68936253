"""One row per figure: what was asked, what was measured, and whether that is enough."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``ok=None``: there is no goal to compare with."""

    bench: str
    figure: str
    measured: str
    goal: str = ""
    ok: bool | None = None


def quantile(values: list[float], q: float) -> float:
    """Return the nearest-rank quantile; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(q * len(ordered) + 0.5) - 1))]


def milliseconds(seconds: float) -> str:
    """Return seconds as text in milliseconds."""
    return f"{seconds * 1000:.1f} ms"


def machine() -> str:
    """Say what this was measured on."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def markdown(rows: list[Row]) -> str:
    """Return the rows as a table for the documentation."""
    lines = ["| bench | figure | measured | goal | |", "|---|---|---|---|---|"]
    mark = {True: "✓", False: "✗", None: ""}
    lines += [f"| {row.bench} | {row.figure} | {row.measured} | {row.goal} | {mark[row.ok]} |" for row in rows]
    return "\n".join(lines)


def say(text: str) -> None:
    """Tell what is going on, on stderr."""
    print(text, file=sys.stderr, flush=True)
