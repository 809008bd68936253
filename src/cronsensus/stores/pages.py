"""Iterate over lists that are too long for one answer of a store, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from cronsensus.model.gate import Rule
from cronsensus.model.job import JobSpec, JobView
from cronsensus.model.ledger import LedgerRange, TrailEntry
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.stores.base import Store
from cronsensus.stores.default_reads import PAGE, read_pages


def every_job(store: Store, *, after: str = "", retired: bool = False, page: int = PAGE) -> Iterator[JobView]:
    """Yield jobs by name."""

    def read(last: str) -> list[JobView]:
        return store.jobs(after=last, limit=page, retired=retired)

    return read_pages(read, after, page=page, position=lambda job: job.spec.name)


def every_edge(store: Store) -> Iterator[JobSpec]:
    """Yield the definitions of downstream jobs that are not retired, by name."""
    return read_pages(lambda last: store.edges(after=last, limit=PAGE), "", position=lambda spec: spec.name)


def rules_of(specs: Iterable[JobSpec]) -> dict[str, tuple[Rule, ...]]:
    """Return the upstreams of each of these jobs, by name; jobs without upstreams are left out."""
    return {spec.name: spec.after.upstreams for spec in specs if spec.after is not None}


def every_occurrence(
    store: Store, where: OccurrenceFilter, *, after: int | None = None, newest_first: bool = False, page: int = PAGE
) -> Iterator[Occurrence]:
    """Yield occurrences by id."""

    def read(last: int | None) -> list[Occurrence]:
        return store.occurrences(where, after=last, limit=page, newest_first=newest_first)

    return read_pages(read, after, page=page)


def every_range(store: Store, job: str, since: datetime, until: datetime) -> Iterator[LedgerRange]:
    """Yield the verdict ranges of a job that touch [since, until], by id."""
    return read_pages(lambda last: store.ranges(job, since=since, until=until, after=last, limit=PAGE), 0)


def every_trail_entry(store: Store, target: str | None = None) -> Iterator[TrailEntry]:
    """Yield the trail of a job, of the store itself (``""``), or of everything (``None``), newest first."""
    return read_pages(lambda last: store.trail(target=target, after=last, limit=PAGE), None)
