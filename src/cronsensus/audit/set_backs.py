"""Read when the store's clock and schedules were set back: in these spans the order of times is not certain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from cronsensus.model.ledger import CLOCK_SET_BACK
from cronsensus.model.rewind import REWIND
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_trail_entry
from cronsensus.timing.instants import parse_instant

MOST_ENTRIES = 10_000


class SetBacks:
    """The time spans that came twice, by the store's trail; read once, at the first doubt."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stretches: list[tuple[datetime, datetime]] | None = None

    def may_have_swapped(self, earlier: datetime, later: datetime) -> bool:
        """Whether something recorded at ``later`` may have happened before something recorded at ``earlier``.

        Then the clock was set back over the whole time between them.
        """
        if self._stretches is None:
            self._stretches = list(_joined(sorted(_stretches(self._store, "", CLOCK_SET_BACK))))
        return any(since <= earlier and later <= until for since, until in self._stretches)


class Rewound:
    """The time spans over which an operator took a job's schedule back; read once, at the first doubt.

    Runs from when the clock was ahead stay there. A range that was written since only means that they did not run
    again.
    """

    def __init__(self, store: Store, job: str) -> None:
        self._store = store
        self._job = job
        self._stretches: list[tuple[datetime, datetime]] | None = None

    def covers(self, at: datetime) -> bool:
        """Whether a nominal time came a second time."""
        if self._stretches is None:
            self._stretches = list(_stretches(self._store, self._job, REWIND))
        return any(since < at <= until for since, until in self._stretches)


def _stretches(store: Store, target: str, action: str) -> Iterator[tuple[datetime, datetime]]:
    for entry in islice(every_trail_entry(store, target), MOST_ENTRIES):
        if entry.action == action:
            yield parse_instant(entry.details["from"]), parse_instant(entry.details["until"])


def _joined(stretches: list[tuple[datetime, datetime]]) -> Iterator[tuple[datetime, datetime]]:
    """Yield sorted time spans, with touching spans joined."""
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
