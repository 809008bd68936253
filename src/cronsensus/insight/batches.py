"""How far a batch is: its items by state, where they run, how fast they end, and when the last of them will."""

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

_LOOKED_AT = 500
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """What is known of a batch.

    Attributes:
        running: how many of its items run on each node, by name.
        failed: some items that failed, by number, each with its key.
        elapsed: since it began to be listed, until now or its end.
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
        """Which part of the items has ended, from 0 to 1."""
        return self.done / self.children.total if self.children.total else 0.0

    @property
    def rate(self) -> float | None:
        """How many items end in a second, those that were cancelled left out; ``None``: it cannot be told yet."""
        seconds = 0.0 if self.elapsed is None else self.elapsed.total_seconds()
        ran = self.done - self.children.cancelled
        return ran / seconds if ran and seconds > 0 else None

    @property
    def left(self) -> timedelta | None:
        """How long the items that are open will take at that rate; ``None``: none is, or it cannot be told."""
        if not self.children.open or self.rate is None or self.children.listed is None:
            return None
        return timedelta(seconds=self.children.open / self.rate)

    @property
    def counts(self) -> dict[str, int]:
        """How many items are in each state; states without any are left out."""
        return counts_of(self.children)

    @property
    def text(self) -> str:
        """Return how far it is, in one line."""
        return items_text(self.children)

    @property
    def pace(self) -> str:
        """Return how fast it goes and how long it will take, in a few words; nothing where that cannot be told."""
        if self.rate is None:
            return ""
        rate = f"{self.rate:,.1f} items/s" if self.rate < _FAST else f"{self.rate:,.0f} items/s"
        return rate if self.left is None else f"{rate}, about {brief_duration(self.left)} left"


_FAST = 10


def counts_of(one: Children) -> dict[str, int]:
    """Return how many items are in each state, those that ended first; states without any are left out."""
    known = {
        "succeeded": one.succeeded, "skipped": one.skipped, "failed": one.failed, "cancelled": one.cancelled,
        "running": one.running, "pending": one.pending,
    }  # fmt: skip
    return {state: count for state, count in known.items() if count}


def items_text(one: Children) -> str:
    """Return how far the items of a batch are, in one line."""
    words = {"pending": "waiting"}
    counts = ", ".join(f"{count:,} {words.get(state, state)}" for state, count in counts_of(one).items()) or "none yet"
    listed = "" if one.listed is not None or (one.state is not None and one.state.final) else " so far"
    return f"{format_count(one.total, 'item')}{listed}: {counts}"


def batch_view(store: Store, one: Occurrence, attempts: Sequence[RunView], now: datetime) -> BatchView | None:
    """Return how far a batch is; ``None``: it is none."""
    if one.parent is not None:
        return None
    children = store.children([one.id], limit=2 * MOST_ITEMS)[one.id]
    if not children.total and not one.is_batch:
        return None
    begun = min((run.started_at for run in attempts), default=one.created_at)
    running = _some(store, one.id, State.RUNNING, _LOOKED_AT) if children.running else []
    failed = _some(store, one.id, State.FAILED, _NAMED) if children.failed else []
    return BatchView(
        children=children,
        running=dict(Counter(item.node or "?" for item in running).most_common()),
        failed={item.id: shown_key(item.key) for item in failed},
        elapsed=(one.finished_at or now) - begun,
    )


def _some(store: Store, batch: int, state: State, limit: int) -> list[Occurrence]:
    return store.occurrences(OccurrenceFilter(parent=batch, states=(state,)), limit=limit, newest_first=False)
