"""The progress of a batch: its items by state, the nodes that run them, their rate, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.insight.time_words import brief_duration, format_count
from cronsensus.model.batch import MOST_ITEMS, Children, shown_key
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import State
from cronsensus.stores.base import Store

_MOST_RUNNING = 500
_MOST_KEYS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """What is known of a batch.

    Attributes:
        running: how many of its items run on each node, by name.
        failed: some items that failed, by number, each with its key.
        elapsed: the time since its listing began, until now or its end.
    """

    children: Children
    running: dict[str, int]
    failed: Mapping[int, str]
    elapsed: timedelta | None

    @property
    def done(self) -> int:
        """How many items have ended."""
        return self.children.total - self.children.open

    @property
    def share(self) -> float:
        """The part of the items that has ended, from 0 to 1."""
        return self.done / self.children.total if self.children.total else 0.0

    @property
    def rate(self) -> float | None:
        """Items that end in a second, without the cancelled; ``None``: not known yet."""
        seconds = 0.0 if self.elapsed is None else self.elapsed.total_seconds()
        ran = self.done - self.children.cancelled
        return ran / seconds if ran and seconds > 0 else None

    @property
    def left(self) -> timedelta | None:
        """The time that the open items will take at that rate; ``None``: no item is open, or the rate is not known."""
        if not self.children.open or self.rate is None or self.children.listed is None:
            return None
        return timedelta(seconds=self.children.open / self.rate)

    @property
    def counts(self) -> dict[str, int]:
        """How many items are in each state; states without any are left out."""
        return counts_of(self.children)

    @property
    def text(self) -> str:
        """The counts of its items on a line."""
        return items_text(self.children)

    @property
    def pace(self) -> str:
        """The rate and the time left in a few words; empty while the rate is not known."""
        if self.rate is None:
            return ""
        rate = f"{self.rate:,.1f} items/s" if self.rate < _FAST_RATE else f"{self.rate:,.0f} items/s"
        return rate if self.left is None else f"{rate}, about {brief_duration(self.left)} left"


_FAST_RATE = 10


def counts_of(items: Children) -> dict[str, int]:
    """Return the number of items in each state, first those that ended; states without items are left out."""
    counts = {
        "succeeded": items.succeeded, "skipped": items.skipped, "failed": items.failed, "cancelled": items.cancelled,
        "running": items.running, "pending": items.pending,
    }  # fmt: skip
    return {state: count for state, count in counts.items() if count}


def items_text(children: Children) -> str:
    """Return the counts of a batch's items on a line."""
    names = {"pending": "waiting"}
    counts = (
        ", ".join(f"{count:,} {names.get(state, state)}" for state, count in counts_of(children).items()) or "none yet"
    )
    listed = "" if children.listed is not None or (children.state is not None and children.state.final) else " so far"
    return f"{format_count(children.total, 'item')}{listed}: {counts}"


def batch_view(store: Store, occurrence: Occurrence, attempts: Sequence[RunView], now: datetime) -> BatchView | None:
    """Return the progress of a batch; ``None``: the occurrence is no batch."""
    if occurrence.parent is not None:
        return None
    children = store.children([occurrence.id], limit=2 * MOST_ITEMS)[occurrence.id]
    if not children.total and not occurrence.is_batch:
        return None
    began = min((run.started_at for run in attempts), default=occurrence.created_at)
    running = _some(store, occurrence.id, State.RUNNING, _MOST_RUNNING) if children.running else []
    failed = _some(store, occurrence.id, State.FAILED, _MOST_KEYS) if children.failed else []
    return BatchView(
        children=children,
        running=dict(Counter(item.node or "?" for item in running).most_common()),
        failed={item.id: shown_key(item.key) for item in failed},
        elapsed=(occurrence.finished_at or now) - began,
    )


def _some(store: Store, batch: int, state: State, limit: int) -> list[Occurrence]:
    return store.occurrences(OccurrenceFilter(parent=batch, states=(state,)), limit=limit, newest_first=False)
