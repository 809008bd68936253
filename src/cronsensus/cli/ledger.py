"""``cronsensus ledger``: a verdict per nominal time."""

from __future__ import annotations

from datetime import tzinfo

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.group import Command
from cronsensus.cli.options import add_limit_option, job_argument
from cronsensus.cli.output import Cell, Output, Row, print_message, style_state
from cronsensus.cli.zones import default_zone
from cronsensus.insight.as_data import line_data
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.ledger import NO_VERDICT, LedgerLine, ledger_page
from cronsensus.insight.lookup import require_job
from cronsensus.insight.time_words import brief_duration, exact_time, read_time, shorten, typed_time


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
@add_limit_option(100, most=10_000)
def ledger(job: str, start: str, end: str, limit: int) -> None:
    """Show the verdict on each nominal time of a job: what became of it, why, where, in how many attempts.

    Long stretches with one verdict are one line. A time without an offset is in the job's own zone.

    cronsensus ledger send_digest --from 2026-11-01 --to 2026-11-20
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        view = require_job(store, job)
        zone = zone_of(view.spec.trigger, default_zone())
        since = read_time(start, now, tz=zone, what="--from")
        until = read_time(end, now, tz=zone, what="--to")
        page = ledger_page(store, view, since, until, now=now, limit=limit)
    if output.printed_json(
        {
            "job": job,
            "from": since,
            "to": until,
            "decided_up_to": view.watermark,
            "pruned_up_to": view.horizon,
            "lines": [line_data(line) for line in page.lines],
            "more_before": page.more_before,
        }
    ):
        return
    output.table(
        ["nominal time", "verdict", "reason", "node", "attempts", "started after", "took", "run"],
        [_row(line, zone) for line in page.lines],
        prose=("nominal time", "reason") if any(line.first != line.last for line in page.lines) else ("reason",),
        spare=("took", "attempts", "started after", "node"),
        empty=f"no nominal time of {job} lies between {exact_time(since, zone)} and {exact_time(until, zone)}; "
        f"see: cronsensus next {job}",
    )
    if view.horizon is not None and view.horizon >= since:
        print_message(f"pruned up to {exact_time(view.horizon, zone)}: of those times nobody can say any more")
    if page.more_before is not None:
        print_message(f"there are older ones: add --to '{typed_time(page.more_before, zone)}', or a larger --limit")
    if any(line.state == NO_VERDICT for line in page.lines):
        print_message("a decided time without a verdict must not be: cronsensus audit")


def _row(line: LedgerLine, zone: tzinfo) -> Row:
    when = exact_time(line.first, zone)
    if line.first != line.last:
        when = f"{when} to {exact_time(line.last, zone)} ({'many' if line.count is None else line.count} times)"
    occurrence = line.occurrence
    verdict = Cell(line.state, "bold red") if line.state == NO_VERDICT else style_state(line.state)
    if occurrence is None:
        return [when, verdict, str(line.text), "", "", "", "", ""]
    delay = "" if line.first_start is None else brief_duration(line.first_start - line.first)
    duration = (
        brief_duration(occurrence.finished_at - occurrence.begun_at)
        if occurrence.finished_at is not None and occurrence.begun_at is not None
        else ""
    )
    attempts = (
        str(occurrence.attempt) + (f" ({occurrence.crashes} crashed)" if occurrence.crashes else "")
        if occurrence.attempt
        else ""
    )
    return [when, verdict, shorten(str(line.text), 60), occurrence.node, attempts, delay, duration, str(occurrence.id)]
