"""Failed runs that nobody ran again, grouped by their likely cause."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunError
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence

MOST_FAILURES = 500
"""Failures that are read, the newest first."""
MOST_ITEMS_READ = 20_000
"""Failed items among which the batches are found."""
_PLACE = re.compile(r'^\s*File "([^"]*)", line \d+, in (.+)$', re.MULTILINE)
_VARYING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures that seem to have the same cause.

    Attributes:
        fingerprint: names the group in commands and addresses; made of what makes the failures alike.
        type: of the error.
        message: of the newest.
        place: the innermost function and its file; empty where there is no traceback.
        runs: the newest first.
    """

    fingerprint: str
    type: str
    message: str
    place: str
    runs: tuple[Occurrence, ...]

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that failed so."""
        return sorted({run.job for run in self.runs})


def open_failures(
    store: Store, *, job: str | None = None, since: datetime | None = None, group: str | None = None
) -> list[Occurrence]:
    """Return at most ``MOST_FAILURES`` runs that failed for good and that nobody ran again, the newest first.

    A batch is listed in place of its items: a retry of the batch runs the items that failed.

    Args:
        store: where they are.
        job: only runs of this job.
        since: only runs that ended since then.
        group: only runs of the group with this fingerprint.
    """
    newest = islice(_failed(store, job), MOST_FAILURES)
    failures = [run for run in newest if run.retried_as is None and (since is None or _ended(run) >= since)]
    return failures if group is None else [run for run in failures if fingerprint_of(run.error) == group]


def failures_to_retry(
    store: Store, *, job: str | None = None, since: datetime | None = None, group: str | None = None
) -> list[Occurrence]:
    """Return what ``open_failures`` does, the oldest first, without runs of jobs that only other programs can run."""
    failures = open_failures(store, job=job, since=since, group=group)
    views = filter(None, map(store.job, sorted({run.job for run in failures})))
    jobs_elsewhere = {view.spec.name for view in views if view.spec.runs_elsewhere}
    return [run for run in reversed(failures) if run.job not in jobs_elsewhere]


def _failed(store: Store, job: str | None) -> Iterator[Occurrence]:
    """Yield failed runs, the newest first; of failed items their batch."""
    failed, seen_batches = OccurrenceFilter(job=job, states=(State.FAILED,)), set[int]()
    for occurrence in islice(every_occurrence(store, failed, newest_first=True), MOST_ITEMS_READ):
        if job is None and is_internal(occurrence.job):
            continue
        if occurrence.parent is None and occurrence.id not in seen_batches:
            yield occurrence
        elif occurrence.parent is not None and occurrence.parent not in seen_batches:
            seen_batches.add(occurrence.parent)
            batch = store.occurrence(occurrence.parent)
            if batch is not None and batch.state is State.FAILED:
                yield batch


def group_failures(failures: Iterable[Occurrence]) -> list[FailureGroup]:
    """Return failures by what makes them alike: type, place, and message without numbers; the largest group first."""
    groups: dict[str, list[Occurrence]] = {}
    for failure in failures:
        groups.setdefault(fingerprint_of(failure.error), []).append(failure)
    group_list = [
        FailureGroup(key, *_type_and_message(runs[0]), place_of(runs[0].error), tuple(runs))
        for key, runs in groups.items()
    ]
    return sorted(group_list, key=lambda group: (-len(group.runs), -group.runs[0].id))


def fingerprint_of(error: RunError | None) -> str:
    """Return what errors of one kind have in common, as 12 hexadecimal digits."""
    if error is None:
        return "0" * 12
    first_line = error.message.partition("\n")[0]
    in_common = "\n".join((error.type, place_of(error), _VARYING.sub("N", first_line)))
    return hashlib.sha256(in_common.encode("utf-8", "replace")).hexdigest()[:12]


def place_of(error: RunError | None) -> str:
    """Return the innermost function of a traceback and its file: a line's number changes with each release."""
    frames = _PLACE.findall(error.traceback) if error is not None else []
    if not frames:
        return ""
    file, function = frames[-1]
    return f"{function} in {file.rpartition('/')[2]}"


def _type_and_message(occurrence: Occurrence) -> tuple[str, str]:
    if occurrence.error is None:
        return "", occurrence.reason or ""
    return occurrence.error.type, occurrence.error.message.partition("\n")[0]


def _ended(occurrence: Occurrence) -> datetime:
    return occurrence.finished_at or occurrence.created_at
