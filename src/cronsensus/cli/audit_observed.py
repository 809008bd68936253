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
    """Print a row for each job, and one sentence of all."""
    with opened_store() as store:
        now = store.now()
        found = read_observed(
            store,
            jobs=names,
            since=None if since is None else read_time(since, now, what="--from"),
            until=None if until is None else read_time(until, now, what="--to"),
        )
    if output.printed_json(dataclasses.asdict(found) | {"prevented": _prevented(found)}):
        return OK
    rows: list[Row] = [
        [Cell(one.job, "bold"), *(f"{count:,}" for count in (one.times, one.runs, one.replicas, one.prevented))]
        for one in found.jobs
    ]
    output.table(
        ["job", "times", "runs", "replicas", "prevented"],
        rows,
        empty="nothing was observed yet: a process records what it ran after 15 s, and then every 5 minutes",
        prose=("job",),
    )
    if found.forgotten:
        print_message(f"{format_count(found.forgotten, 'run')} are missing: the store was away for too long")
    if found.jobs:
        output.line(Cell(describe_observed(found), "bold"))
    return OK


def describe_observed(found: Observed) -> str:
    """Return what was observed, in one sentence."""
    times = sum(one.times for one in found.jobs)
    replicas = max(one.replicas for one in found.jobs)
    guarded = sum(one.guarded for one in found.jobs)
    also = f" (of which a guarded process ran {guarded:,} too)" if guarded else ""
    return (
        f"{format_count(times, 'time')}{also}, {format_count(replicas, 'replica')}: would have prevented "
        + format_count(_prevented(found), "run")
    )


def _prevented(found: Observed) -> int:
    return sum(one.prevented for one in found.jobs)
