"""Ask of each batch: are its items what it says, and of each item: is there a batch?

Only what the store can know: how many failures a job tolerates stands in code. What ``keep`` may have deleted is not
asked for. A batch that failed or was cancelled may have items that wait: they are cancelled as nodes come to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from cronsensus.audit.report import Finding
from cronsensus.audit.words import Words
from cronsensus.model.batch import list_length
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.states import State
from cronsensus.stores.base import Store

_REMEMBERED = 1_000
"""Batches that were there: of their items it is not asked again."""


class Batches:
    """Judges the batches of one job, and the items of its batches."""

    def __init__(self, store: Store, job: JobView, words: Words, tolerance: timedelta) -> None:
        self._store = store
        self._keep = job.spec.policies.keep
        self._words = words
        self._tolerance = tolerance
        self._now = store.now()
        self._there: set[int] = set()

    def judge(self, occurrence: Occurrence) -> Iterator[Finding]:
        """Yield what is wrong; each call looks anew."""
        if self._now - occurrence.created_at >= self._keep:
            return
        if occurrence.parent is not None:
            if not self._is_there(occurrence.parent):
                yield self._words.orphan(occurrence, occurrence.parent)
        elif occurrence.state is State.SUCCEEDED and (listed := list_length(occurrence.listed)) is not None:
            yield from self._of_success(occurrence, listed)

    def _is_there(self, batch: int) -> bool:
        if batch not in self._there:
            if self._store.children([batch])[batch].state is None:
                return False
            if len(self._there) >= _REMEMBERED:
                self._there.clear()
            self._there.add(batch)
        return True

    def _of_success(self, batch: Occurrence, listed: int) -> Iterator[Finding]:
        items = self._store.children([batch.id], limit=listed + 1)[batch.id]
        ended = batch.finished_at or self._now
        # A page that a frozen lister wrote late is cancelled as soon as a node comes to it.
        if items.open and self._now - ended > self._tolerance:
            yield self._words.left_open(batch, items.open)
        # What is retried by hand leaves out what had succeeded; nothing lists that anew.
        if batch.retry_of is None and items.total < listed:
            yield self._words.items_missing(batch, items.total, listed)
