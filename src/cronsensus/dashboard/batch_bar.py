"""The bar of a batch: a segment for each state of its items."""

from __future__ import annotations

from dataclasses import dataclass

from cronsensus.insight.batches import BatchView


@dataclass(frozen=True, slots=True)
class Segment:
    """The items of one state: ``x`` and ``width`` in percent."""

    state: str
    count: int
    x: float
    width: float


def draw_segments(batch: BatchView) -> list[Segment]:
    """Return the segments from the left; pending items are the empty rest."""
    found: list[Segment] = []
    x = 0.0
    for state, count in batch.counts.items():
        if state != "pending":
            width = 100 * count / batch.children.total
            found.append(Segment(state, count, round(x, 3), round(width, 3)))
            x += width
    return found
