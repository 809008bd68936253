"""Warn of retired jobs with pending runs, and of signs that two applications share a namespace.

It only logs, and reads the store. The store decides what becomes of such jobs (``define_jobs``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from cronsensus.insight.lost_jobs import read_lost_job
from cronsensus.insight.two_programs import find_twice_declared
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job
from cronsensus.stores.values import DefineResult
from cronsensus.timing.durations import format_duration

_log = Logger("cronsensus.scheduler")

_MOST_NAMED = 10
_MOST_SHOWN = 5
_LEAST_COMMON = 0.2
"""Two releases of the same application share more of their jobs than this."""


def log_retired(store: Store, defined: DefineResult, retire_after: timedelta) -> None:
    """Log the jobs that were just retired; as a warning, with the number of runs, if they have pending runs."""
    if not defined.retired:
        return
    waiting = store.pending_of(defined.retired)
    without_runs = []
    for name in defined.retired:
        if name not in waiting:
            without_runs.append(name)
            continue
        _log.warning(
            "job %r is retired, because no running release declares it; %s, kept for %s in case a "
            "release declares it again, and then cancelled (at once: scheduler.remove_job(%r))",
            name, _in_words(waiting[name]), format_duration(retire_after), name,
        )  # fmt: skip
    if without_runs:
        unnamed = len(without_runs) - _MOST_NAMED
        names = ", ".join(without_runs[:_MOST_NAMED]) + (f" and {unnamed} more" if unnamed > 0 else "")
        _log.warning("retired, because no running release declares them: %s", names)


def record_meant(store: Store, retired: Mapping[str, str], by: str) -> None:
    """Record in the trail that jobs were retired on purpose, with the reason, once for each retirement.

    If two nodes do so at the same instant, the trail has it twice, which does no harm.
    """
    for name, reason in retired.items():
        if read_lost_job(store, name) is not None:
            store.retire(name, by=by, why=reason or "the code says that it is meant")


def _in_words(count: int) -> str:
    return "1 run of it is waiting" if count == 1 else f"{count:,} runs of it are waiting"


def warn_of_strangers(namespace: str, defined: DefineResult) -> None:
    """Warn if a release replaces nearly all jobs of the release before: most likely it is another application."""
    not_declared = len(defined.retired) + len(defined.kept)
    created = len(defined.created)
    common = len(defined.unchanged) + len(defined.changed) + len(defined.superseded)
    if not_declared and created and common <= _LEAST_COMMON * min(not_declared + common, created + common):
        _log.warning(
            "this release declares %d job(s), and of the %d that namespace %r had before it declares %d: if another "
            "application uses this store, give each a namespace of its own, Scheduler(…, namespace='…'); else each "
            "retires the other's jobs",
            created + common, not_declared + common, namespace, common,
        )  # fmt: skip


def warn_of_twice_declared(store: Store, warned: Collection[str]) -> set[str]:
    """Warn of jobs that another program declares with another function, except ``warned``; return their names."""
    nodes = [session for session in store.sessions() if session.is_node and session.state in {"alive", "draining"}]
    conflicts = [job for job in find_twice_declared(nodes) if job.job not in warned]
    for twice_declared in conflicts[:_MOST_NAMED]:
        _log.warning(
            "%s; give each program a namespace of its own, Scheduler(…, namespace='…'), or the job another name. It is "
            "normal during a deploy that moves the function",
            twice_declared.sentence,
        )
    if len(conflicts) > _MOST_NAMED:
        _log.warning("and %d more jobs that two programs declare; see: cronsensus doctor", len(conflicts) - _MOST_NAMED)
    return {twice_declared.job for twice_declared in conflicts}


def warn_of_nothing(store: Store, functions: Collection[str]) -> bool:
    """Warn of a node that has no function of a job in the store, and return whether it did.

    An import was forgotten, most likely; or a newer release that is alive has replaced all of its jobs.
    """
    if not functions:
        job_count = store.counts().jobs
        others = f"; the store has {job_count}, which other nodes must run" if job_count else ""
        _log.warning(
            "this node declares no job, so it runs nothing%s: import the modules that declare jobs before the node "
            "starts, or add jobs at run time with scheduler.add_job(…)",
            others,
        )
        return True
    jobs = [view.spec for view in every_job(store) if not view.spec.guarded and view.spec.keeper is None]
    if not jobs or any(spec.function in functions for spec in jobs):
        return False
    _log.warning(
        "this node has no function of the %d job(s) in namespace %r, so it runs nothing: it has %s, and they call %s. "
        "Start the newest release, import the modules that declare these jobs before the node starts, or give another "
        "application a namespace of its own",
        len(jobs), store.namespace, _some_names(sorted(functions)),
        _some_names(sorted({spec.function for spec in jobs})),
    )  # fmt: skip
    return True


def _some_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
