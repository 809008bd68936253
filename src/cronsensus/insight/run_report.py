"""All that is known of one run: its timeline, its attempts, its error, its log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.insight.batches import BatchView, batch_view
from cronsensus.model.ledger import TrailEntry
from cronsensus.model.occurrence import LogLine, Occurrence, RunView
from cronsensus.stores.base import Store
from cronsensus.timing.instants import LATEST

LogEntry = tuple[int, int, LogLine]
"""Sequence, attempt, line."""

_MOST_ACTS_READ = 200
_END = {
    "succeeded": "ended well",
    "failed": "failed",
    "cancelled": "was cancelled",
    "skipped": "skipped itself",
    "retry": "failed, to be tried again",
    "snoozed": "looked, and waits",
    "crashed": "ended with its node: taken over",
    "released": "was given back by a node that drained",
}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened to a run; ``after``: the time since the entry before."""

    at: datetime
    after: timedelta | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What is known of a run.

    Attributes:
        log: its last lines; ``log_length``: how many there are.
        acts: what operators did to it.
        batch: how far it is, if it is a batch.
    """

    occurrence: Occurrence
    attempts: tuple[RunView, ...]
    log: tuple[LogEntry, ...]
    log_length: int
    acts: tuple[TrailEntry, ...]
    batch: BatchView | None = None

    @property
    def timeline(self) -> list[TimelineEntry]:
        """What happened, in order."""
        moments = sorted(self._moments(), key=lambda moment: moment[0])
        befores = [None, *(at for at, _ in moments)]
        return [
            TimelineEntry(at, None if before is None else at - before, text)
            for (at, text), before in zip(moments, befores, strict=False)
        ]

    def _moments(self) -> Iterator[tuple[datetime, str]]:
        occurrence = self.occurrence
        if occurrence.scheduled_for is not None:
            yield occurrence.scheduled_for, "nominal time"
        if occurrence.created_at != occurrence.scheduled_for:
            yield occurrence.created_at, f"created ({occurrence.origin})"
        if occurrence.due_at not in {occurrence.scheduled_for, occurrence.created_at} and occurrence.due_at < LATEST:
            yield occurrence.due_at, "due"
        for run in self.attempts:
            yield run.started_at, f"attempt {run.attempt} started on {run.node or run.session}"
            if run.finished_at is not None:
                yield run.finished_at, f"attempt {run.attempt} {_END.get(run.end or '', run.end)}"
        if occurrence.finished_at is not None and not any(
            run.finished_at == occurrence.finished_at for run in self.attempts
        ):
            yield occurrence.finished_at, str(occurrence.state)
        for act in self.acts:
            yield act.at, f"{act.action} by {act.by}" + (f": {act.why}" if act.why else "")

    @property
    def error(self) -> str:
        """The whole error with its traceback; nothing if there is none."""
        error = self.occurrence.error
        if error is None:
            return ""
        message, traceback = f"{error.type}: {error.message}", error.traceback.rstrip()
        # A traceback ends with the message, unless it only shows where the run was when its time was up.
        return traceback if message in traceback else f"{message}\n{traceback}".rstrip()


def run_report(
    store: Store, occurrence: Occurrence, *, log_lines: int = 20, keep: Callable[[LogEntry], bool] | None = None
) -> RunReport:
    """Return what is known of a run, with the last ``log_lines`` lines of its log that ``keep`` accepts."""
    attempts = store.runs(occurrence.id)
    log: deque[LogEntry] = deque(maxlen=log_lines)
    length = 0
    for entry in every_log_entry(store, occurrence.id):
        if keep is not None and not keep(entry):
            continue
        log.append(entry)
        length += 1
    acts = [
        act
        for act in store.trail(target=occurrence.job, limit=_MOST_ACTS_READ)
        if act.details.get("occurrence") == occurrence.id
    ]
    return RunReport(
        occurrence=occurrence,
        attempts=tuple(attempts),
        log=tuple(log),
        log_length=length,
        acts=tuple(acts),
        batch=batch_view(store, occurrence, attempts, store.now()),
    )


def every_log_entry(store: Store, number: int, after: int = 0) -> Iterator[LogEntry]:
    """Yield what a run logged after a sequence number."""
    while page := store.logs(number, after=after):
        yield from page
        after = page[-1][0]
