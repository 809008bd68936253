"""``cronsensus audit --observed``: what ran in programs that only observe, and what a guard would have prevented."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import OK
from cronsensus.cli.output import Cell, Output, Row, print_message
from cronsensus.external.observed import Observed, read_observed
from cronsensus.insight.time_words import format_count, read_time


def audit_observed(output: Output, names: Collection[str], since: str | None, until: str | None) -> int:
    """Print a row for each job, and a sentence about all of them."""
    with opened_store() as store:
        now = store.now()
        observed = read_observed(
            store,
            jobs=names,
            since=None if since is None else read_time(since, now, what="--from"),
            until=None if until is None else read_time(until, now, what="--to"),
        )
    if output.printed_json(dataclasses.asdict(observed) | {"prevented": _prevented(observed)}):
        return OK
    rows: list[Row] = [
        [Cell(job.job, "bold"), *(f"{count:,}" for count in (job.times, job.runs, job.replicas, job.prevented))]
        for job in observed.jobs
    ]
    output.table(
        ["job", "times", "runs", "replicas", "prevented"],
        rows,
        empty="nothing was observed yet: a process records what it ran after 15 s, and then every 5 minutes",
        prose=("job",),
    )
    if observed.forgotten:
        are = "is" if observed.forgotten == 1 else "are"
        print_message(f"{format_count(observed.forgotten, 'run')} {are} missing: the store was away for too long")
    if observed.jobs:
        output.line(Cell(describe_observed(observed), "bold"))
    return OK


def describe_observed(observed: Observed) -> str:
    """Return what was observed, in a sentence."""
    nominal_times = sum(job.times for job in observed.jobs)
    replicas = max(job.replicas for job in observed.jobs)
    guarded = sum(job.guarded for job in observed.jobs)
    also_guarded = f" (of which a guarded process ran {guarded:,} too)" if guarded else ""
    counts = f"{format_count(nominal_times, 'time')}{also_guarded}, {format_count(replicas, 'replica')}"
    return f"{counts}: would have prevented {format_count(_prevented(observed), 'run')}"


def _prevented(observed: Observed) -> int:
    return sum(job.prevented for job in observed.jobs)
