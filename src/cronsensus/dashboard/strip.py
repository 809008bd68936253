"""Draw the strip of a job's last verdicts, as SVG; for the 1,500 cells of a page a template is ten times slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from cronsensus.dashboard.language import Words

if TYPE_CHECKING:
    from cronsensus.dashboard.reads import Verdict

_STEP = 6
_FULL, _INNER, _LOW = ("h5v16h-5z", "h3.6v14.6h-3.6z", "h5v3h-5z")
_SHAPES = {
    "succeeded": ("s-ok", 0.0, "7", "h5v10h-5z"),
    "failed": ("s-fail", 0.0, "1", _FULL),
    "missed": ("s-miss", 0.7, "1.7", _INNER),
    "running": ("s-run", 0.8, "7.8", "h3.4v8.4h-3.4z"),
    "pending": ("s-run", 0.8, "7.8", "h3.4v8.4h-3.4z"),
}
_OTHER = ("s-skip", 0.0, "14", _LOW)
"""Each state has its own height and fill, so that it is recognized without its colour."""


def strip_svg(cells: Sequence[Verdict], t: Words, length: int) -> Markup:
    """Return the cells, the newest on the right of ``length`` places, each with a title."""
    label = t("Last {0}, newest right", len(cells))
    parts = [
        (
            f'<svg class="strip" viewBox="0 0 {length * _STEP} 18" role="img" aria-label="{escape(label)}">'
            f'<path class="s-none" d="M0 17h{length * _STEP - 1}v1H0z"/>'
        )
    ]
    first = length - len(cells)
    names = {state: escape(t(state)) for state in {cell.state for cell in cells}}
    for number, cell in enumerate(cells, first):
        kind, inset, y, shape = _SHAPES.get(cell.state, _OTHER)
        x = number * _STEP
        reason = f" ({escape(t.reason(cell.reason))})" if cell.reason else ""
        times = f" \N{MULTIPLICATION SIGN} {cell.count}" if cell.count > 1 else ""
        taken = cell.state == "succeeded" and cell.occurrence is not None and cell.occurrence.crashes
        above = f'<path class="s-take" d="M{x} 1h5v4h-5z"/>' if taken else ""
        parts.append(
            f"<g><title>{t.minute(cell.at)}: {names[cell.state]}{reason}{times}</title>"
            f'<path class="{kind}" d="M{x + inset if inset else x} {y}{shape}"/>{above}</g>'
        )
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - all that is not ours is escaped above
