"""The counters of this process: its runs, takeovers and claims, and its calls of the store.

They count the scheduler's events, on the thread of its subscribers, so no run waits for them. If
``PROMETHEUS_MULTIPROC_DIR`` is set, the numbers are in files that all workers of a server share.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from cronsensus import errors
from cronsensus.errors import StoreError
from cronsensus.events import PlanCarriedOut, RunEnded, RunStarted, StoreVerb, TakenOver
from cronsensus.metrics.reading import JOB_LABEL, MOST_JOBS, chosen_by
from cronsensus.model.job import is_internal
from cronsensus.model.states import Origin
from cronsensus.node.stats import NodeStats
from cronsensus.process.forking import register_for_forks
from cronsensus.scheduler import Scheduler
from cronsensus.timing.clock import SystemClock

OTHER_JOBS = "(others)"
"""The label of runs of jobs without their own series."""
NOT_TIMED = frozenset({"wait", "transaction"})
"""Verbs whose time is a node's sleep, or the user's own code."""
_VERB_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
_RUN_SECONDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)
_DELAY_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)


class Counting:
    """The counters of a scheduler."""

    def __init__(self, scheduler: Scheduler, jobs: Sequence[str]) -> None:
        """Count from now on; jobs that fit none of these patterns share a series."""
        self._scheduler = weakref.ref(scheduler)
        self._patterns = tuple(jobs)
        self._labels: set[str] = set()
        self._clock = SystemClock()
        self._seen: tuple[NodeStats | None, NodeStats] = None, NodeStats()
        self._dropped = 0
        registry = self._registry = CollectorRegistry()
        prefix: Any = {"namespace": "cronsensus", "registry": registry}
        self._runs = _Runs(registry)
        self._took = Histogram("run_duration_seconds", "How long runs took.", buckets=_RUN_SECONDS, **prefix)
        delay = "From the nominal time to the start of its first attempt."
        self._delay = Histogram("run_start_delay_seconds", delay, buckets=_DELAY_SECONDS, **prefix)
        self._takeovers = Counter("takeovers", "Runs that this node took over from dead nodes.", **prefix)
        claims = "Claims of this node by result: won, lost to another node, or refused at the end of the run."
        self._claims = Counter("claims", claims, ["result"], **prefix)
        self._verbs = Histogram(
            "store_operation_seconds", "How long the store took to answer.", ["verb"], buckets=_VERB_SECONDS, **prefix
        )
        self._errors = Counter("store_errors", "How often the store could not answer.", **prefix)
        self._dropped_events = Counter("events_dropped", "Events that these counters did not receive.", **prefix)
        for result in ("won", "lost", "refused"):
            self._claims.labels(result)
        register_for_forks(self)
        self.forked()
        scheduler.on(RunStarted, self._count_start)
        scheduler.on(RunEnded, self._count_end)
        scheduler.on(TakenOver, self._count_takeover)
        scheduler.on(PlanCarriedOut, self._count_plans)
        scheduler.on(StoreVerb, self._count_answer)

    def forked(self) -> None:
        """Replace the lock: another thread may have held it."""
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters: of this process, or of all that share the folder of ``PROMETHEUS_MULTIPROC_DIR``."""
        self._count_stats()
        for family in _list_families(self._registry):
            if family.name.startswith("cronsensus_"):
                family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
                yield family

    # --- events, each on the thread of subscribers -------------------------------------------------------------------

    def _count_start(self, event: RunStarted) -> None:
        # A backfill or a retry is late on purpose.
        if event.scheduled_for is not None and event.attempt == 1 and event.origin is Origin.SCHEDULE:
            self._delay.observe(max(0.0, (self._clock.now() - event.scheduled_for).total_seconds()))

    def _count_end(self, event: RunEnded) -> None:
        if event.end == "snoozed":
            return  # it only found out that it has to wait
        self._count_run(event.job, event.end)
        if event.seconds is not None:
            self._took.observe(event.seconds)

    def _count_takeover(self, event: TakenOver) -> None:
        self._takeovers.inc(len(event.runs))
        for run in event.runs:
            if run.became.final:
                self._count_run(run.job, str(run.became))

    def _count_plans(self, event: PlanCarriedOut) -> None:
        for verdict in event.verdicts:
            self._count_run(event.job, str(verdict.state), verdict.count or 1)

    def _count_answer(self, event: StoreVerb) -> None:
        if event.verb not in NOT_TIMED:
            self._verbs.labels(event.verb).observe(event.seconds)
        if event.error is not None and _is_store_error(event.error):
            self._errors.inc()
        self._count_stats()

    def _count_run(self, job: str, verdict: str, by: int = 1) -> None:
        if not is_internal(job):
            self._runs.add(self._job_label(job), verdict, by)

    def _job_label(self, job: str) -> str:
        if job in self._labels:
            return job
        if len(self._labels) >= MOST_JOBS or not chosen_by(self._patterns, job):
            return OTHER_JOBS
        self._labels.add(job)
        return job

    def _count_stats(self) -> None:
        """Add the node's own counts since the last call; another node, after a new start, begins at zero."""
        scheduler = self._scheduler()
        if scheduler is not None:
            with self._lock:
                self._count_stats_of(scheduler)

    def _count_stats_of(self, scheduler: Scheduler) -> None:
        node, counted = self._seen
        stats = scheduler.stats or node  # a node that has left may have counted since
        if stats is not node:
            if node is not None:
                self._add_node(node, counted)
            counted = NodeStats()
        if stats is not None:
            self._seen = stats, self._add_node(stats, counted)
        # After a fork it counts from zero.
        dropped, self._dropped = self._dropped, scheduler.events_dropped
        self._dropped_events.inc(max(0, self._dropped - dropped))

    def _add_node(self, stats: NodeStats, counted: NodeStats) -> NodeStats:
        now = replace(stats)
        self._claims.labels("won").inc(now.claimed - counted.claimed)
        self._claims.labels("lost").inc(now.lost_races - counted.lost_races)
        self._claims.labels("refused").inc(now.refused - counted.refused)
        return now


class _Runs:
    """Counts runs by job and verdict, without the library unless other processes must see the counts.

    There may be thousands of series, for which the library takes three times as long.
    """

    _NAME, _WHAT = "runs", "Runs that ended on this node, and nominal times that it decided against."
    _LABELS = (JOB_LABEL, "verdict")

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._shared: Counter | None = None
        if shares_a_folder():
            self._shared = Counter(self._NAME, self._WHAT, self._LABELS, namespace="cronsensus", registry=registry)
        else:
            registry.register(self)

    def add(self, job: str, verdict: str, by: int) -> None:
        """Count so many more; called on one thread."""
        if self._shared is not None:
            self._shared.labels(job, verdict).inc(by)
        else:
            self._counts[job, verdict] = self._counts.get((job, verdict), 0) + by

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(f"cronsensus_{self._NAME}", self._WHAT, labels=self._LABELS)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        yield family

    def describe(self) -> Iterable[Metric]:
        return ()


def _list_families(registry: CollectorRegistry) -> Iterable[Metric]:
    if shares_a_folder():
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry.collect()


def shares_a_folder() -> bool:
    """Whether the workers of a server share their counters."""
    return bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))


def _is_store_error(name: str) -> bool:
    error_class = getattr(errors, name, None)
    return isinstance(error_class, type) and issubclass(error_class, StoreError)


_of: weakref.WeakKeyDictionary[Scheduler, Counting] = weakref.WeakKeyDictionary()


def counting_of(scheduler: Scheduler, jobs: Sequence[str]) -> Counting:
    """Return the counters of a scheduler, always the same: two would count twice into a shared folder."""
    counting = _of.get(scheduler)
    if counting is None:
        counting = _of[scheduler] = Counting(scheduler, jobs)
    return counting
