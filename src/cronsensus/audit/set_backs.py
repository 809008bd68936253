"""Which times of the ledger say nothing about what came first: the store's clock was set back there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from cronsensus.instants import parse_instant
from cronsensus.model.ledger import CLOCK_SET_BACK
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_trail_entry

MOST = 10_000


class SetBacks:
    """The stretches that came twice, by the store's own word, read once, when the first doubt arises."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stretches: list[tuple[datetime, datetime]] | None = None

    def may_have_swapped(self, earlier: datetime, later: datetime) -> bool:
        """Whether what bears the time ``later`` may have come before what bears ``earlier``.

        Then the clock went from the one to the other, back through everything between them.
        """
        if self._stretches is None:
            self._stretches = list(_joined(sorted(_stretches(self._store))))
        return any(since <= earlier and later <= until for since, until in self._stretches)


def _stretches(store: Store) -> Iterator[tuple[datetime, datetime]]:
    for entry in islice(every_trail_entry(store, ""), MOST):
        if entry.action == CLOCK_SET_BACK:
            yield parse_instant(entry.details["from"]), parse_instant(entry.details["until"])


def _joined(stretches: list[tuple[datetime, datetime]]) -> Iterator[tuple[datetime, datetime]]:
    """Give sorted stretches, those that touch as one."""
    joined: tuple[datetime, datetime] | None = None
    for since, until in stretches:
        if joined is not None and since <= joined[1]:
            joined = joined[0], max(joined[1], until)
            continue
        if joined is not None:
            yield joined
        joined = since, until
    if joined is not None:
        yield joined
