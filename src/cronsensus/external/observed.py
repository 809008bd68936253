"""Count the runs of observing processes: how often each time was run, and how many runs a guard would have prevented.

A time that n observing processes ran would have been run once, so n - 1 runs would have been prevented. If a guarded
process ran the same time, too (in a roll-out), all n would have been prevented.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.payload.codec import loads
from cronsensus.stores.base import Store
from cronsensus.timing.instants import from_micros, to_micros

OBSERVED_NAME = "observed"
"""The job of the guarded function whose results are the records."""
_OBSERVED_JOB = f"once:{OBSERVED_NAME}"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """How often the times of a job were run.

    Attributes:
        times: nominal times that observing processes ran.
        runs: how often they ran these times together.
        replicas: the most processes that ran the same time.
        guarded: how many of these times a guarded process ran, too.
        prevented: runs that would not have happened if all processes were guarded.
    """

    job: str
    times: int
    runs: int
    replicas: int
    guarded: int
    prevented: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed, by job; ``forgotten`` runs are missing, because the store was away for too long."""

    jobs: tuple[ObservedJob, ...]
    forgotten: int


def read_observed(
    store: Store, *, jobs: Collection[str] = (), since: datetime | None = None, until: datetime | None = None
) -> Observed:
    """Count the records of ``jobs`` (all, if none is named), for nominal times from ``since`` to ``until``."""
    first_micros = None if since is None else to_micros(since)
    last_micros = None if until is None else to_micros(until)
    times_by_job: dict[str, Counter[int]] = defaultdict(Counter)
    forgotten = 0
    for record in _records(store):
        forgotten += record["forgotten"]
        for job, runs in record["jobs"].items():
            if jobs and job not in jobs:
                continue
            times_by_job[job].update(
                time
                for time in expand_times(runs)
                if (first_micros is None or time >= first_micros) and (last_micros is None or time <= last_micros)
            )
    return Observed(
        tuple(_count(store, job, times_by_job[job]) for job in sorted(times_by_job) if times_by_job[job]), forgotten
    )


def _count(store: Store, job: str, ran: Counter[int]) -> ObservedJob:
    guarded = sum(time in ran for time in _guarded(store, job, min(ran), max(ran)))
    runs = ran.total()
    return ObservedJob(job, len(ran), runs, max(ran.values()), guarded, runs - len(ran) + guarded)


def _records(store: Store) -> Iterator[dict[str, Any]]:
    for run in _pages(store, OccurrenceFilter(job=_OBSERVED_JOB, states=(State.SUCCEEDED,))):
        if run.result is not None:
            yield loads(run.result)


def _guarded(store: Store, job: str, first: int, last: int) -> Iterator[int]:
    """Yield the times that guarded processes have run, run now, or sent to a worker."""
    in_span = OccurrenceFilter(job=job, scheduled_from=from_micros(first), scheduled_until=from_micros(last))
    for run in _pages(store, in_span):
        if run.scheduled_for is not None and (run.attempt or run.state is State.PENDING):
            yield to_micros(run.scheduled_for)


def _pages(store: Store, wanted: OccurrenceFilter) -> Iterator[Any]:
    after: int | None = None
    while True:
        page = store.occurrences(wanted, after=after, limit=_PAGE, newest_first=False)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].id


def compress_times(times: Sequence[int]) -> list[list[int]]:
    """Compress times into series of equal distance, ``[first, distance, count]``: a regular job has a single series."""
    runs: list[list[int]] = []
    for time in sorted(times):
        if runs and runs[-1][2] == 1 and time > runs[-1][0]:
            runs[-1][1:] = [time - runs[-1][0], 2]
        elif runs and time == runs[-1][0] + runs[-1][1] * runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([time, 0, 1])
    return runs


def expand_times(runs: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the times of ``compress_times``."""
    for begin, distance, count in runs:
        for number in range(count):
            yield begin + number * distance
