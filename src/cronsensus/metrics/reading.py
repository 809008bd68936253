"""Metrics of jobs and queues from the store: read at a scrape, and at most every two seconds.

All processes read the same store, so these are the numbers of the cluster, whichever process is scraped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from cronsensus.alerts.conditions import find_node_conditions
from cronsensus.alerts.events import RANGE_OVERLAP, Mark, read_events
from cronsensus.insight.successes import last_success
from cronsensus.insight.work_checks import OVERDUE
from cronsensus.model.glance import Glance
from cronsensus.model.job import JobView, is_internal
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job
from cronsensus.timing.clock import Clock
from cronsensus.timing.instants import to_micros

MOST_JOBS = 1_000
"""Jobs that have their own series: the first by name of those that are chosen."""
MOST_READ = 20_000
"""Jobs that are read to find the chosen ones."""
MOST_PENDING_READ = 50
"""How many of the oldest pending runs are read to find the oldest that is due."""
MOST_ENDED_READ = 600
"""How many ended runs a reading takes in. If more have ended, it reads the past of each job again."""
READ_OVERLAP = timedelta(seconds=10)
"""How far before the last reading the next one begins: a later commit may have an earlier time."""
READ_ALL_EVERY = timedelta(minutes=5)
"""After this time the past of each job is read again; after a fifth of it if more ended than a reading takes in."""
FIRST_WINDOW = timedelta(hours=1)
"""How far before the first reading it looks for failures, missed times and lost nodes."""
JOB_LABEL = "job_name"
"""The label of a job. Not ``job``, which the scrape sets: Prometheus would rename this label to ``exported_job``."""
_PAGE = 500
_JOBS_AT_ONCE = 50
_RUNS_OF_JOB = 30


@dataclass(frozen=True, slots=True)
class JobReading:
    """The metrics of a job.

    Attributes:
        next_run: its next nominal time; ``None``: there is none, or it does not count, as in a pause.
        last_success: when a run of it last succeeded, as far as the ledger reaches.
        last_failure: when a run of it last failed for good; ``last_missed``: when a time of it was last missed;
            ``None``: not since ``FIRST_WINDOW`` before the first reading.
        overdue: its time passed a minute ago, and no node has decided it; or it has not succeeded within its
            ``overdue=``.
    """

    name: str
    next_run: datetime | None
    last_success: datetime | None
    last_failure: datetime | None
    last_missed: datetime | None
    paused: bool
    overdue: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a reading.

    Attributes:
        pending: occurrences that wait, also for a later try; at most 10,000 are counted.
        oldest: seconds for which the oldest due occurrence has waited.
        slots: how many runs all nodes with a lease may execute at a time.
        busy: how many runs there are.
        skew: seconds that this host's clock is ahead of the store's.
        node_lost: when a node was last found dead, as ``last_failure``.
    """

    jobs: tuple[JobReading, ...]
    pending: int
    oldest: float
    slots: int
    busy: int
    skew: float
    node_lost: datetime | None


class Reader:
    """Reads the store, and remembers the last success of each job, so that it is not read again."""

    def __init__(self, jobs: Sequence[str], clock: Clock) -> None:
        """Choose the jobs whose names fit one of these patterns."""
        self._patterns = tuple(jobs)
        self._clock = clock
        self._succeeded: dict[str, datetime | None] = {}
        self._troubles = Troubles()
        self._read_at: datetime | None = None
        self._anew_at: datetime | None = None

    def read_store(self, store: Store) -> Reading:
        """Read the store."""
        before = self._clock.now()
        now = store.now()
        skew = before + (self._clock.now() - before) / 2 - now
        views, internal = self._choose_jobs(store)
        self._learn_successes(store, [view.spec.name for view in views], now)
        self._troubles.learn_troubles(store, now)
        counts, internal_pending = store.counts(), sum(store.pending_of(internal).values())
        return Reading(
            jobs=tuple(self._of_job(view, now) for view in views),
            pending=max(0, counts.pending - internal_pending),
            oldest=_find_oldest(store, now),
            slots=sum(
                session.concurrency
                for session in store.sessions()
                if session.state == "alive" and session.expires_in > timedelta(0)  # sessions without slots are no nodes
            ),
            busy=counts.running,
            skew=skew.total_seconds(),
            node_lost=self._troubles.node_lost,
        )

    def _of_job(self, view: JobView, now: datetime) -> JobReading:
        name, overdue_after = view.spec.name, view.spec.overdue
        decided_here = view.paused_at is None and view.spec.keeper is None
        due = view.next_due if decided_here else None
        succeeded = self._succeeded.get(name)
        return JobReading(
            name=name,
            next_run=due,
            last_success=succeeded,
            last_failure=self._troubles.last.get(("failed", name)),
            last_missed=self._troubles.last.get(("missed", name)),
            paused=view.paused_at is not None,
            overdue=(due is not None and now - due > OVERDUE)
            or (overdue_after is not None and now - (succeeded or view.created_at) > overdue_after),
        )

    def _choose_jobs(self, store: Store) -> tuple[list[JobView], list[str]]:
        views, internal = [], []
        for view in islice(every_job(store, page=_PAGE), MOST_READ):
            if is_internal(view.spec.name):
                internal.append(view.spec.name)
            elif chosen_by(self._patterns, view.spec.name):
                views.append(view)
                if len(views) == MOST_JOBS:
                    break
        return views, internal

    def _learn_successes(self, store: Store, names: Sequence[str], now: datetime) -> None:
        """Record the successes since the last reading; for new jobs, read their last success."""
        ended = [] if self._read_at is None else store.ran_since(self._read_at - READ_OVERLAP, limit=MOST_ENDED_READ)
        for glance in ended:
            self._note_success(glance.job, glance)
        too_many = len(ended) >= MOST_ENDED_READ
        since_full_read = None if self._anew_at is None else now - self._anew_at
        if (
            since_full_read is None
            or since_full_read > READ_ALL_EVERY
            or (too_many and since_full_read > READ_ALL_EVERY / 5)
        ):
            unknown, self._anew_at = list(names), now
        else:
            unknown = [name for name in names if name not in self._succeeded]
        for index in range(0, len(unknown), _JOBS_AT_ONCE):
            self._read_successes(store, unknown[index : index + _JOBS_AT_ONCE])
        self._succeeded = {name: self._succeeded.get(name) for name in names}
        self._read_at = now

    def _read_successes(self, store: Store, names: Sequence[str]) -> None:
        pasts = store.last_of(names, limit=_RUNS_OF_JOB)
        for name in names:
            glances = pasts[name].glances if name in pasts else ()
            for glance in glances:
                self._note_success(name, glance)
            # If the whole past was read, there is no success to find. Otherwise the job has failed for long.
            if self._succeeded.get(name) is None and len(glances) >= _RUNS_OF_JOB:
                success = last_success(store, name)
                self._succeeded[name] = None if success is None else success.finished_at

    def _note_success(self, name: str, glance: Glance) -> None:
        last = self._succeeded.get(name)
        if glance.parent is not None:  # an item is no success of its job
            return
        if (
            glance.state is State.SUCCEEDED
            and glance.finished_at is not None
            and (last is None or glance.finished_at > last)
        ):
            self._succeeded[name] = glance.finished_at


class Troubles:
    """When each job last failed or missed a time, and a node was last lost, for the whole cluster.

    They are read from the store. A counter of a process would start anew with it and die with events that were not
    scraped yet, and Prometheus's ``increase`` does not see the first event of a series.

    Attributes:
        last: the last time by event and name of the job.
        node_lost: the last time of any node.
    """

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], datetime] = {}
        self.node_lost: datetime | None = None
        self._mark: Mark | None = None
        self._gone: dict[str, int] = {}

    def learn_troubles(self, store: Store, now: datetime) -> None:
        """Read what has happened since the last time."""
        if self._mark is None:
            begin = to_micros(now - FIRST_WINDOW)
            newest_range = max((event.id for event in store.decided(after=-1)), default=0)
            ranges = max(0, newest_range - RANGE_OVERLAP)
            self._mark = Mark(begin, ranges, begin, ranges)
        events, self._mark = read_events(store, self._mark)
        # The lease of an idle node may have minutes yet when its process is gone.
        lost_nodes, self._gone = find_node_conditions(store, self._gone, now)
        for event in (*events, *lost_nodes):  # each oldest first
            if event.job is not None and event.event in {"failed", "missed"}:
                self.last.pop((event.event, event.job), None)
                self.last[event.event, event.job] = event.at
            elif event.event == "node_lost":
                self.node_lost = event.at
        while len(self.last) > MOST_READ:
            del self.last[next(iter(self.last))]


def chosen_by(patterns: Sequence[str], name: str) -> bool:
    """Whether a name fits one of these patterns; all do where there are none."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _find_oldest(store: Store, now: datetime) -> float:
    pending = OccurrenceFilter(states=(State.PENDING,))
    waiting = store.occurrences(pending, limit=MOST_PENDING_READ, newest_first=False)
    ages = ((now - occurrence.due_at).total_seconds() for occurrence in waiting if not is_internal(occurrence.job))
    return max([0.0, *ages])


class Series(NamedTuple):
    """A metric as a scrape shows it.

    Attributes:
        label: the name of its label; ``None``: it has none.
        values: the value by the label's value.
    """

    name: str
    help: str
    label: str | None
    values: list[tuple[str, float]]


def list_series(reading: Reading) -> Iterator[Series]:
    """Yield the series of a reading."""
    jobs = reading.jobs
    yield Series(
        "job_next_run_timestamp_seconds", "The next nominal time of a job that is not paused.", JOB_LABEL,
        [(job.name, job.next_run.timestamp()) for job in jobs if job.next_run is not None],
    )  # fmt: skip
    yield Series(
        "job_last_success_timestamp_seconds", "When a run of the job last succeeded, as far as the ledger reaches.",
        JOB_LABEL, [(job.name, job.last_success.timestamp()) for job in jobs if job.last_success is not None],
    )  # fmt: skip
    yield Series(
        "job_last_failure_timestamp_seconds", "When a run of the job last failed for good.", JOB_LABEL,
        [(job.name, job.last_failure.timestamp()) for job in jobs if job.last_failure is not None],
    )  # fmt: skip
    yield Series(
        "job_last_missed_timestamp_seconds", "When a nominal time of the job was last found to be missed.", JOB_LABEL,
        [(job.name, job.last_missed.timestamp()) for job in jobs if job.last_missed is not None],
    )  # fmt: skip
    yield Series("job_paused", "1: the job is paused.", JOB_LABEL, [(job.name, float(job.paused)) for job in jobs])
    help_text = "1: no node has decided a nominal time of a minute ago, or no success within its overdue=."
    yield Series("job_overdue", help_text, JOB_LABEL, [(job.name, float(job.overdue)) for job in jobs])
    yield Series("pending", "Occurrences that wait, 10,000 at most.", "queue", [("default", float(reading.pending))])
    yield Series(
        "oldest_pending_age_seconds", "How long the oldest that is due has waited.", None, [("", reading.oldest)]
    )
    yield Series("slots", "Runs that the nodes with a lease may do at a time.", None, [("", float(reading.slots))])
    yield Series("slots_busy", "Runs that there are, 10,000 at most.", None, [("", float(reading.busy))])
    yield Series(
        "node_clock_skew_seconds", "How far this host's clock is ahead of the store's.", None, [("", reading.skew)]
    )
    if reading.node_lost is not None:
        help_text = "When a node was last found dead: its lease ran out, or its process is gone."
        yield Series("node_lost_timestamp_seconds", help_text, None, [("", reading.node_lost.timestamp())])
