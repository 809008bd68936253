"""``cronsensus audit``: check the whole ledger. Floor 7: ``cronsensus.audit`` judges, this shows."""

from __future__ import annotations

import json
from datetime import timedelta

import click

from cronsensus.audit import Report
from cronsensus.audit import audit as audit_store
from cronsensus.cli.app import complete_job, opened_store
from cronsensus.cli.audit_observed import audit_observed
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command
from cronsensus.cli.options import DurationType
from cronsensus.cli.output import Cell, Output, Row, print_message
from cronsensus.insight.live_nodes import live_nodes
from cronsensus.insight.time_words import brief_duration, exact_time, format_count, read_time

MOST_LINES = 20
MOST_ROWS = 50
COUNT_COLUMNS = (
    "expected", "succeeded", "failed", "cancelled", "skipped", "missed", "pending", "ran", "takeovers", "duplicates",
)  # fmt: skip
ALWAYS_SHOWN = {"expected", "succeeded", "missed", "duplicates"}


@click.command("audit", cls=Command)
@click.argument("names", metavar="[JOB]…", nargs=-1, shell_complete=complete_job)
@click.option("--from", "since", metavar="TIME", help="First nominal time to judge (default: the beginning).")
@click.option("--to", "until", metavar="TIME", help="Last nominal time to judge (default: now).")
@click.option(
    "--tolerance",
    type=DurationType(),
    default="30s",
    show_default=True,
    metavar="TIME",
    help="How long a nominal time may stay undecided, and a run stay with a dead node.",
)
@click.option("--observed", is_flag=True, help="Count what guards with observe=True saw, and would have prevented.")
def audit(names: tuple[str, ...], since: str | None, until: str | None, tolerance: timedelta, observed: bool) -> int:  # noqa: FBT001 - a flag
    """Check the ledger: each nominal time has exactly one verdict, and every run was allowed.

    Derives each nominal time anew from the trigger that held then, and looks for duplicates, gaps, strays, early
    starts, overlaps, results under an old token, and runs stuck with a dead node, and for runs that
    began before what they come after had ended. Exit code 1 if it finds any.

    TIME is ISO 8601, or how long ago: 2h, 1d.

    cronsensus audit
    cronsensus audit send_digest --from 2026-11-01 --to 2026-11-20
    cronsensus audit --from 1d -o json
    cronsensus audit --observed
    """
    output = Output.current()
    if observed:
        return audit_observed(output, names, since, until)
    with opened_store() as store:
        now = store.now()
        report = audit_store(
            store,
            jobs=names,
            since=None if since is None else read_time(since, now, what="--from"),
            until=None if until is None else read_time(until, now, what="--to"),
            tolerance=tolerance,
        )
        no_node = bool(report.pending) and not live_nodes(store)
    if output.as_json:
        output.line(json.dumps(report.to_json()))
    else:
        print_report(output, report, no_node=no_node)
    return OK if report.ok else FAILED


def print_report(output: Output, report: Report, *, no_node: bool = False) -> None:
    """Print a report as a table, its findings, and one sentence."""
    # Verdicts add up to what was expected; then what is counted beside them. Of all but the first and those that one
    # looks for, a column without a number tells nothing.
    numbers = [name for name in COUNT_COLUMNS if name in ALWAYS_SHOWN or any(getattr(job, name) for job in report.jobs)]
    rows: list[Row] = [
        [Cell(job.job, "bold"), *(style_count(name, getattr(job, name)) for name in numbers)]
        for job in report.jobs[:MOST_ROWS]
    ]
    if report.jobs_audited > 1:
        rows.append([Cell("all jobs", "bold"), *(style_count(name, getattr(report, name)) for name in numbers)])
    output.table(
        ["job", *("started" if name == "ran" else name for name in numbers)],
        rows,
        empty="there is no job in the store; start a node that declares some",
        prose=("job",),
        spare=("started", "takeovers"),
    )
    if report.jobs_audited > MOST_ROWS:
        print_message(f"{report.jobs_audited - MOST_ROWS:,} more jobs are counted, not shown; -o json shows them")
    if report.runs:
        late = report.lateness
        shown = [
            f"{name} {brief_duration(timedelta(seconds=late.quantile(q)))}" for name, q in (("p50", 0.5), ("p99", 0.99))
        ]
        output.line(f"started late by: {', '.join(shown)}, max {brief_duration(timedelta(seconds=late.max))}")
    for finding in report.findings[:MOST_LINES]:
        output.line(Cell(f"{finding.kind}: {finding.sentence}", "red"))
    if report.found > MOST_LINES:
        print_message(f"{report.found - MOST_LINES:,} more findings; -o json shows the first {len(report.findings):,}")
    for note in report.notes[:MOST_LINES]:
        print_message(f"note: {note}")
    output.line(closing_sentence(report, no_node=no_node))


def style_count(name: str, value: int) -> Cell:
    """Return a count, coloured where one should look at it."""
    style = {"duplicates": "bold red", "failed": "red", "missed": "bold magenta", "takeovers": "cyan"}.get(name, "")
    return Cell(f"{value:,}", style if value else "")


def closing_sentence(report: Report, *, no_node: bool = False) -> Cell:
    """Return the closing sentence; ``no_node``: none is alive to decide what is pending."""
    until_text = "" if report.until is None else f" up to {exact_time(report.until.replace(microsecond=0))}"
    if report.ok:
        allowed = "all allowed" if not report.left_open else f"{report.left_open:,} left open (see the notes)"
        attempts = f"{format_count(report.runs, 'attempt')}, {allowed}"
        if not report.pending:
            times = f"{format_count(report.expected, 'nominal time')}{until_text}"
            return Cell(f"ok: {times}, each with exactly one verdict; {attempts}", "bold green")
        decided = f"{report.expected - report.pending:,} of {format_count(report.expected, 'nominal time')}{until_text}"
        pending = f"{report.pending:,} pending" + (", and no node is alive" if no_node else "")
        return Cell(f"ok so far: {decided} have exactly one verdict, {pending}; {attempts}", "bold yellow")
    findings = format_count(report.found, "finding")
    return Cell(f"not ok: {findings} among {report.expected:,} nominal times{until_text}", "bold red")
