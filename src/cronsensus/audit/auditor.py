"""Audit a store: each job in turn, verdicts first, then runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from cronsensus.audit import losses
from cronsensus.audit.nominal import MICROSECOND, Nominals
from cronsensus.audit.prunes import Prunes
from cronsensus.audit.report import JobReport, Report
from cronsensus.audit.runs import Runs, Sessions
from cronsensus.audit.set_backs import SetBacks
from cronsensus.audit.verdicts import Verdicts
from cronsensus.errors import UnknownJob
from cronsensus.model.job import JobView
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job
from cronsensus.timing.instants import as_utc, format_instant

TOLERANCE = timedelta(seconds=30)
"""The longest time for a nominal time to be undecided, or a run to stay with a dead session: a few leases."""

BEGINNING = datetime(1, 1, 2, tzinfo=UTC)


def audit(
    store: Store,
    *,
    jobs: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    tolerance: timedelta = TOLERANCE,
    on_job: Callable[[JobReport], None] = lambda _: None,
) -> Report:
    """Compare a store's ledger with the nominal times that its jobs' triggers give.

    Reads only, and may be used while nodes work. Memory is bounded; time grows with the number of runs, and by little
    with nominal times that verdict ranges speak for.

    Example:
        >>> from cronsensus.stores import open_store
        >>> audit(open_store("memory://audit-example")).ok
        True

    Args:
        store: the ledger.
        jobs: names; none given means all, the retired ones too.
        since: the first nominal time to judge. Defaults to the beginning.
        until: the last nominal time to judge. Defaults to the store's now, and is never later.
        tolerance: how long a nominal time may stay undecided, and a run stay with a dead session.
        on_job: called with the report of each job as soon as it is judged.

    Raises:
        UnknownJob: a name in ``jobs`` that the store does not know.
        InvalidOption: ``since`` or ``until`` is naive.
        StoreError: the store cannot be read.
    """
    now = store.now()
    since = None if since is None else as_utc(since, what="since")
    until = now if until is None else min(as_utc(until, what="until"), now)
    report = Report(since=since, until=until)
    report.notes += losses.notes(store, since, until)
    sessions, set_backs, prunes = Sessions(store), SetBacks(store), Prunes(store)
    for job in _jobs(store, jobs):
        result = _audit_job(
            store,
            job,
            sessions=sessions,
            set_backs=set_backs,
            prunes=prunes,
            since=since,
            until=until,
            now=now,
            tolerance=tolerance,
        )
        report.add(result)
        on_job(result)
    return report


def _audit_job(
    store: Store,
    job: JobView,
    *,
    sessions: Sessions,
    set_backs: SetBacks,
    prunes: Prunes,
    since: datetime | None,
    until: datetime,
    now: datetime,
    tolerance: timedelta,
) -> JobReport:
    name = job.spec.name
    report = JobReport(job=name)
    history = store.history(name)
    nominals = Nominals(history.eras, retired=job.retired_at is not None)
    after = BEGINNING if since is None else since - MICROSECOND
    if job.horizon is not None and job.horizon > after:
        after = job.horizon
        report.notes.append(f"nominal times up to {format_instant(job.horizon)} are pruned and not judged")
    if after < until:
        verdicts = Verdicts(store, job, nominals, report, pauses=history.pauses, set_backs=set_backs)
        verdicts.judge(after, until, late=now - tolerance)
    runs = Runs(
        store,
        job,
        nominals,
        report,
        sessions=sessions,
        set_backs=set_backs,
        prunes=prunes,
        tolerance=tolerance,
        eras=history.eras,
    )
    runs.judge(after, until, since)
    return report


def _jobs(store: Store, names: Sequence[str]) -> Iterator[JobView]:
    for name in dict.fromkeys(names):
        job = store.job(name)
        if job is None:
            raise UnknownJob(f"the store knows no job {name!r}; cronsensus jobs list shows the ones it knows")
        yield job
    if not names:
        yield from every_job(store, retired=True)
