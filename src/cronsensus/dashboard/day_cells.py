"""Draw the half hours of a job in the picture of a day, as SVG: a template is five times slower for a thousand."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from cronsensus.dashboard.day import DayRow
from cronsensus.dashboard.language import Words

_KIND_OF_STATE = {
    "succeeded": "ok",
    "failed": "fail",
    "missed": "miss",
    "running": "run",
    "pending": "wait",
    "skipped": "skip",
}
_HEIGHTS = {"ok": (6, 10), "run": (6, 10), "wait": (6, 10), "fail": (2, 18), "miss": (3, 16)}
"""Where a cell begins and how tall it is: heights tell verdicts apart where a cell is too narrow for a mark."""
_LOW_HEIGHT = (11, 5)
_MARKS = {"fail": ("x-on", "M-3-3l6 6m0-6l-6 6"), "miss": ("c-word", "M0-5v6m0 2v2")}
_TAKEOVER_MARK = ("c-take-corner", "M-3-3h6L0 3z")
_CELL_GAP = 0.2


def day_cells(row: DayRow, t: Words, base: str, width: float) -> Markup:
    """Return the cells of a row, each of which leads to the run that shows it, or to its job."""
    parts: list[Any] = []
    job, job_path = escape(row.job), f"/job?{urlencode({'name': row.job})}"
    for cell in row.cells:
        kind = _KIND_OF_STATE.get(cell.worst, "stop")
        top, tall = _HEIGHTS.get(kind, _LOW_HEIGHT)
        path = job_path if cell.run is None else f"/runs/{cell.run}"
        counts = ", ".join(f"{count} {escape(t(state))}" for state, count in cell.counts.items())
        takeover_text = f", {escape(t('taken over'))}" if cell.taken_over else ""
        parts.append(
            f'<a href="{escape(base + path)}" tabindex="-1">'
            f"<title>{job}, {t.hour(cell.at)}: {counts}{takeover_text}</title>"
            f'<rect class="c c-{kind}" x="{cell.x}%" y="{row.y + top}" width="{round(width - _CELL_GAP, 3)}%"'
            f' height="{tall}" rx="2"/>'
        )
        mark = _MARKS.get(kind) or (_TAKEOVER_MARK if cell.taken_over else None)
        if mark is not None:
            parts.append(
                f'<svg class="wide-only" x="{round(cell.x + (width - _CELL_GAP) / 2, 3)}%" y="{row.y + 11}" width="1"'
                f' height="1" overflow="visible"><path class="{mark[0]}" d="{mark[1]}"/></svg>'
            )
        parts.append("</a>\n")
    return Markup("".join(parts))  # noqa: S704 - all that is not ours is escaped above
