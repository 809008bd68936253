"""Check that each batch has the items that it lists, and that each item has a batch that waited for it.

Only what the store knows is checked: how many failures a job tolerates is in code. Occurrences that ``keep`` or an
operator's prune may have deleted are not missed. A batch that failed or was cancelled may have pending items: nodes
cancel them when they claim them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cronsensus.audit.finding_words import Words
from cronsensus.audit.prunes import Prunes
from cronsensus.audit.report import Finding, JobReport
from cronsensus.audit.set_backs import SetBacks
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence
from cronsensus.timing.instants import format_instant

_MOST_REMEMBERED = 1_000
"""Batches that were read, and are not read again for their further items."""
_STATES_OF_FUNCTION = frozenset({State.SUCCEEDED, State.FAILED, State.SKIPPED})
"""Ends that only the function of an item causes. Items that were added late are cancelled after the batch's end."""


class _Batch(NamedTuple):
    """A batch that exists; if it succeeded: when its last attempt started, and when it ended."""

    id: int
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Batches:
    """Judges the batches of a job, and the items of its batches."""

    def __init__(
        self,
        store: Store,
        job: JobView,
        words: Words,
        report: JobReport,
        *,
        set_backs: SetBacks,
        prunes: Prunes,
        tolerance: timedelta,
    ) -> None:
        self._store = store
        self._keep = job.spec.policies.keep
        self._retired = job.retired_at is not None
        self._words = words
        self._report = report
        self._set_backs = set_backs
        self._prunes = prunes
        self._tolerance = tolerance
        self._now = store.now()
        self._there: dict[int, _Batch] = {}
        self._has_noted = False

    def judge(self, occurrence: Occurrence, runs: Sequence[RunView]) -> Iterator[Finding]:
        """Yield findings; each call reads the store anew."""
        if occurrence.parent is not None:
            yield from self._of_item(occurrence, occurrence.parent)
        elif (listed := occurrence.listed) is not None:
            if occurrence.state is State.SUCCEEDED:
                yield from self._of_success(occurrence, listed)
            elif occurrence.is_parked and not self._retired:
                yield from self._of_parked(occurrence, runs)

    def _of_item(self, item: Occurrence, parent: int) -> Iterator[Finding]:
        batch = self._read_batch(parent)
        if batch is None:
            if not self._may_be_pruned(item.created_at):
                yield self._words.orphan(item, parent)
            return
        batch_started, batch_ended, item_ended = batch.started_at, batch.finished_at, item.finished_at
        if batch_started is None or batch_ended is None or item_ended is None or item.state not in _STATES_OF_FUNCTION:
            return
        # An item that a frozen lister added during the last attempt was not there to wait for.
        if item.created_at < batch_started and batch_ended < item_ended:
            finding = self._words.outlived(item, item_ended, parent, batch_ended)
            if self._set_backs.may_have_swapped(batch_ended, item_ended):
                self._report.leave_open(finding)
            else:
                yield finding

    def _read_batch(self, batch_id: int) -> _Batch | None:
        if (remembered := self._there.get(batch_id)) is not None:
            return remembered
        occurrence = self._store.occurrence(batch_id)
        if occurrence is None:
            return None
        succeeded = occurrence.state is State.SUCCEEDED
        batch = _Batch(batch_id, occurrence.started_at, occurrence.finished_at) if succeeded else _Batch(batch_id)
        if occurrence.state.final:
            if len(self._there) >= _MOST_REMEMBERED:
                self._there.clear()
            self._there[batch_id] = batch
        return batch

    def _of_success(self, batch: Occurrence, listed: int) -> Iterator[Finding]:
        items = self._store.children([batch.id], limit=listed + 1)[batch.id]
        ended = batch.finished_at or self._now
        # A page that a frozen lister wrote late is cancelled as soon as a node comes to it.
        if items.open and self._now - ended > self._tolerance:
            yield self._words.left_open(batch, items.open)
        # What is retried by hand leaves out what had succeeded; nothing lists that anew.
        if batch.retry_of is None and items.total < listed and not self._may_be_pruned(batch.created_at):
            yield self._words.items_missing(batch, items.total, listed)

    def _of_parked(self, batch: Occurrence, runs: Sequence[RunView]) -> Iterator[Finding]:
        children = self._store.children([batch.id])[batch.id]
        if children.state is not State.PENDING or children.open:
            return
        now, last = self._store.now(), batch.created_at
        ends = [run.finished_at for run in runs if run.finished_at is not None]
        items = every_occurrence(self._store, OccurrenceFilter(parent=batch.id), newest_first=True)
        for end in (*ends, *(item.finished_at or now for item in items)):
            last = max(last, end)
            if now - last <= self._tolerance:
                return
        yield self._words.parked(batch, "its items", now - last)

    def _may_be_pruned(self, since: datetime) -> bool:
        """Whether what ended after ``since`` may be gone, by ``keep`` or by an operator."""
        if self._now - since >= self._keep:
            return True
        if not self._prunes.may_have_pruned(since):
            return False
        if not self._has_noted:
            self._has_noted = True
            when = format_instant(since)
            self._report.notes.append(f"batches up to that of {when} were pruned in part by hand, and are not counted")
        return True
