"""Print a run, a batch, or a line of a run's log."""

from __future__ import annotations

from datetime import datetime, tzinfo

from cronsensus.cli.output import Cell, Output, style_state
from cronsensus.insight.run_report import LogEntry, RunReport
from cronsensus.insight.summaries import error_text, run_state, took, what_for
from cronsensus.insight.time_words import brief_duration, exact_time, shorten
from cronsensus.model.batch import shown_key

_BAR_WIDTH = 40
_LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red", "DEBUG": "dim"}


def print_run(output: Output, report: RunReport, now: datetime, zone: tzinfo) -> None:
    """Print everything that is known about a run, with times in ``zone``."""
    from cronsensus.payload.codec import dumps_masked, loads

    occurrence = report.occurrence
    output.heading(f"run {occurrence.id} of {occurrence.job}")
    arguments = (
        shorten(dumps_masked([occurrence.args, occurrence.kwargs]), 400)
        if occurrence.args or occurrence.kwargs
        else None
    )
    output.pairs(
        [
            ("state", Cell(run_state(occurrence), style_state(occurrence.state).style)),
            ("for", what_for(occurrence, zone)),
            (
                "key",
                shown_key(occurrence.key)
                if occurrence.scheduled_for is None or occurrence.origin != "schedule"
                else None,
            ),
            ("arguments", arguments),
            ("result", None if occurrence.result is None else shorten(dumps_masked(loads(occurrence.result)), 400)),
            ("retry of", None if occurrence.retry_of is None else f"run {occurrence.retry_of}"),
            ("item of", None if occurrence.parent is None else f"batch {occurrence.parent}"),
            ("batch", None if report.batch is None else report.batch.text),
            ("pace", None if report.batch is None else report.batch.pace or None),
            ("failed items", None if report.batch is None else ", ".join(report.batch.failed.values()) or None),
            ("tried again as", None if occurrence.retried_as is None else f"run {occurrence.retried_as}"),
        ]
    )
    output.line()
    output.heading("Timeline")
    output.table(
        ["when", "after", "what"],
        [
            [exact_time(event.at, zone), "" if event.after is None else f"+{brief_duration(event.after)}", event.text]
            for event in report.timeline
        ],
        prose=("what",),
    )
    if report.attempts:
        output.line()
        output.heading("Attempts")
        output.table(
            ["attempt", "token", "node", "took", "end", "reason"],
            [
                [
                    str(run.attempt),
                    str(run.token),
                    run.node,
                    took(run, now),
                    style_state(run.end or "running"),
                    run.reason or error_text(run.error),
                ]
                for run in report.attempts
            ],
            prose=("reason",),
            spare=("node",),
        )
    if report.error:
        output.line()
        output.heading("Error")
        output.line(report.error)
    if report.log:
        output.line()
        output.heading("Log")
        for entry in report.log:
            show_entry(output, entry, zone, attempts=occurrence.attempt)


def print_batch(output: Output, report: RunReport) -> None:
    """Print the progress of a batch: a bar, counts, pace, and a line for each node."""
    occurrence, batch = report.occurrence, report.batch
    assert batch is not None  # noqa: S101 - for the type checker
    filled = round(_BAR_WIDTH * batch.share)
    output.heading(f"batch {occurrence.id} of {occurrence.job}")
    bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
    output.line(Cell(f"{bar} {batch.share:.0%}  {batch.pace}", style_state(occurrence.state).style))
    output.pairs(
        [
            ("state", Cell(run_state(occurrence), style_state(occurrence.state).style)),
            ("items", batch.text),
            (
                "took" if occurrence.finished_at else "for",
                None if batch.elapsed is None else brief_duration(batch.elapsed),
            ),
            ("failed items", ", ".join(batch.failed.values()) or None),
        ]
    )
    output.line()
    output.table(
        ["node", "runs"],
        [[node, str(count)] for node, count in sorted(batch.running.items())],
        empty="no item runs" if occurrence.state.final else "no item runs now",
    )


def show_entry(output: Output, entry: LogEntry, zone: tzinfo, *, attempts: int) -> None:
    """Print a line of a log, with its time in ``zone``, and with its attempt if there were several."""
    _, attempt, line = entry
    attempt_text = f" #{attempt}" if attempts > 1 else ""
    style = _LEVEL_STYLES.get(line.level.upper(), "")
    output.line(Cell(f"{exact_time(line.at, zone)}{attempt_text} {line.level:<7} {line.text}", style))
