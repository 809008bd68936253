"""The attempts of a run to scale: where each began and ended, in percent of the width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.model.occurrence import RunView

HEAD, ROW = 24, 34
MOST_BARS = 12
_LEFT, _WIDTH = 2.0, 80.0
"""The margin, and the width of the bars: after the last bar there is room for a word."""
_LEAST_WIDTH = 0.4
_KIND_OF_END = {"succeeded": "ok", "failed": "fail", "retry": "retry", "crashed": "crash", None: "run"}
_STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (0.001, 0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86400, 7 * 86400)
)
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class AttemptBar:
    """An attempt; ``gap``: the time since the previous attempt ended, if that was cut off or failed."""

    run: RunView
    kind: str
    x: float
    width: float
    y: int
    gap: timedelta | None


@dataclass(frozen=True, slots=True)
class AttemptBars:
    """The picture; ``ticks``: positions of times since the beginning; ``hidden``: attempts before the first bar."""

    bars: tuple[AttemptBar, ...]
    ticks: tuple[tuple[float, timedelta], ...]
    begin: datetime
    height: int
    hidden: int


def draw_attempts(attempts: Sequence[RunView], now: datetime) -> AttemptBars | None:
    """Return the last attempts that did something, to scale; ``None``: fewer than two did."""
    did_something = [attempt for attempt in attempts if attempt.end != "snoozed"]
    shown = did_something[-MOST_BARS:]
    if len(shown) < 2:
        return None
    begin = min(run.started_at for run in shown)
    span = max(max(run.finished_at or now for run in shown) - begin, timedelta(milliseconds=1))
    step = next((step for step in _STEPS if span / step <= _MOST_TICKS), span)
    bars: list[AttemptBar] = []
    previous: RunView | None = None
    for number, run in enumerate(shown):
        x = _LEFT + _WIDTH * ((run.started_at - begin) / span)
        width = max(_LEAST_WIDTH, _WIDTH * (((run.finished_at or now) - run.started_at) / span))
        gap = None if previous is None or previous.finished_at is None else run.started_at - previous.finished_at
        kind = _KIND_OF_END.get(run.end, "skip")
        bars.append(AttemptBar(run, kind, round(x, 2), round(width, 2), HEAD + ROW * number, gap))
        previous = run
    ticks = tuple(
        (round(_LEFT + _WIDTH * (step * number / span), 2), step * number) for number in range(1, int(span / step) + 1)
    )
    return AttemptBars(tuple(bars), ticks, begin, HEAD + ROW * len(bars), len(did_something) - len(shown))
