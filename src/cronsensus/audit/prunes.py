"""Read which times operators may have pruned by hand: the audit does not report those as missing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from cronsensus.model.ledger import PRUNE
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_trail_entry
from cronsensus.timing.instants import parse_instant

MOST_ENTRIES = 10_000


class Prunes:
    """The prunes of operators, from the trail, which records a prune before it begins."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: datetime | None = None

    def may_have_pruned(self, moment: datetime) -> bool:
        """Whether an operator may have pruned what ended right after ``moment``.

        If no known prune covers it, the trail is read again: an operator may prune while the audit reads.
        """
        if self._last is None or moment >= self._last:
            self._last = max(self._bounds(), default=None)
        return self._last is not None and moment < self._last

    def _bounds(self) -> Iterator[datetime]:
        for entry in islice(every_trail_entry(self._store, ""), MOST_ENTRIES):
            if entry.action == PRUNE:
                # What ended after the prune was not there for it, whatever bound it was given.
                yield min(parse_instant(entry.details["until"]), entry.at)
