"""``cronsensus ledger``: a verdict per nominal time."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.find import require_job
from cronsensus.cli.group import Command
from cronsensus.cli.history import NO_VERDICT, UNDECIDED, Line, history
from cronsensus.cli.options import job_argument, limited
from cronsensus.cli.output import Cell, Output, Row, message, word
from cronsensus.insight.as_data import fields, seconds
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.summaries import error_text, why_ended
from cronsensus.insight.words import brief, exact, read_time, shorten
from cronsensus.stores.base import Store

_MOST_LOOKED_UP = 500


@click.command(cls=Command)
@job_argument
@click.option(
    "--from",
    "start",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="The first nominal time; 2h means two hours ago.",
)
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="The last nominal time.")
@limited(100, most=10_000)
def ledger(job: str, start: str, end: str, limit: int) -> None:
    """Show the verdict on each nominal time of a job: what became of it, why, where, in how many attempts.

    Long stretches with one verdict are one line. A time without an offset is in the job's own zone.

    cronsensus ledger send_digest --from 2026-11-01 --to 2026-11-20
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        view = require_job(store, job)
        zone = zone_of(view.spec.trigger)
        since = read_time(start, now, tz=zone, what="--from")
        until = read_time(end, now, tz=zone, what="--to")
        found = history(store, view, since, until, now=now, limit=limit)
        starts = first_starts(store, found.lines)
    if output.printed_json(
        {
            "job": job,
            "from": since,
            "to": until,
            "decided_up_to": view.watermark,
            "pruned_up_to": view.horizon,
            "lines": [_data(line, starts) for line in found.lines],
            "more_before": found.more_before,
        }
    ):
        return
    output.table(
        ["nominal time", "verdict", "reason", "node", "attempts", "started after", "took", "run"],
        [_row(line, zone, starts) for line in found.lines],
        prose=("nominal time", "reason") if any(line.first != line.last for line in found.lines) else ("reason",),
        spare=("took", "attempts", "started after", "node"),
        empty=f"no nominal time of {job} lies between {exact(since)} and {exact(until)}; see: cronsensus next {job}",
    )
    if view.horizon is not None and view.horizon >= since:
        message(f"pruned up to {exact(view.horizon)}: of those times nobody can say any more")
    if found.more_before is not None:
        message(f"there are older ones: add --to '{exact(found.more_before)}', or a larger --limit")
    if any(line.state == NO_VERDICT for line in found.lines):
        message("a decided time without a verdict must not be: cronsensus audit")


def first_starts(store: Store, lines: list[Line]) -> dict[int, datetime]:
    """Return when the first attempt of each run started, by run; an occurrence itself tells only of its last."""
    made = [line.occurrence for line in lines if line.occurrence is not None and line.occurrence.started_at is not None]
    starts = {one.id: one.started_at for one in made if one.started_at is not None and one.attempt <= 1}
    for one in [one for one in made if one.attempt > 1][-_MOST_LOOKED_UP:]:
        attempts = store.runs(one.id)
        if attempts:
            starts[one.id] = attempts[0].started_at
    return starts


def _row(line: Line, zone: tzinfo, starts: dict[int, datetime]) -> Row:
    when = exact(line.first, zone)
    if line.first != line.last:
        when = f"{when} to {exact(line.last, zone)} ({'many' if line.count is None else line.count} times)"
    one = line.occurrence
    verdict = Cell(line.state, "bold red") if line.state == NO_VERDICT else word(line.state)
    if one is None:
        reason = "no node has fired it yet" if line.state == UNDECIDED else line.reason
        return [when, verdict, reason, "", "", "", "", ""]
    reason = why_ended(one)
    if one.origin != "schedule":
        of = f"{one.origin}" + (f" of run {one.retry_of}" if one.retry_of else "")
        reason = of + (f": {reason}" if reason else "")
    delay = brief(starts[one.id] - line.first) if one.id in starts else ""
    taken = (
        brief(one.finished_at - one.started_at) if one.finished_at is not None and one.started_at is not None else ""
    )
    attempts = str(one.attempt) + (f" ({one.crashes} crashed)" if one.crashes else "") if one.attempt else ""
    return [when, verdict, shorten(reason, 60), one.node, attempts, delay, taken, str(one.id)]


def _data(line: Line, starts: dict[int, datetime]) -> dict[str, Any]:
    one = line.occurrence
    data: dict[str, Any] = {
        **fields(line, "count reason decided_at"),
        "scheduled_for": line.first,
        "until": line.last if line.last != line.first else None,
        "verdict": line.state,
    }
    if one is not None:
        data |= {
            **fields(one, "origin node crashes token started_at finished_at retry_of"),
            "run": one.id,
            "attempts": one.attempt,
            "started_after": starts[one.id] - line.first if one.id in starts else None,
            "seconds": seconds(one.started_at, one.finished_at),
            "error": error_text(one.error) or None,
        }
    return data
